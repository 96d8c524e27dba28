//! The plots of each measurement.

use std::collections::BTreeMap;

use super::super::metric::{self, Metric};
use super::super::number::number_of;
use super::super::plot::{Line, Plot};
use super::super::report::{Report, Setup, words_of};

/// The plots of these reports of one measurement, each with a file name.
pub fn of(bench: &str, reports: &[&Report]) -> Vec<(String, Plot)> {
    match bench {
        "lateness" => lateness(reports),
        "scale" => scale(reports),
        _ => Vec::new(),
    }
}

/// Percentiles over the number of waiting jobs, a plot for each broker and rate; and over the rate,
/// a plot for each broker and number of waiting jobs.
fn lateness(reports: &[&Report]) -> Vec<(String, Plot)> {
    let rate = |report: &Report| report.setup.rate.clone().unwrap_or_default();
    let per_second = |rate: &str| words_of(rate, " jobs/s");
    // All points of a plot share the setup but for its x axis. If several commands measured the
    // same point, the one with most runs counts.
    let rest = |report: &Report| Setup {
        broker: String::new(),
        pending: 0,
        rate: None,
        ..report.setup.clone()
    };
    let own: Vec<&Report> =
        reports.iter().copied().filter(|report| rest(report) == rest(reports[0])).collect();
    let same =
        grouped(&own, |report| (report.setup.broker.clone(), report.setup.pending, rate(report)));
    let reports: Vec<&Report> = same
        .into_values()
        .filter_map(|own| own.into_iter().rev().max_by_key(|report| report.runs))
        .collect();
    let by_rate = grouped(&reports, |report| (report.setup.broker.clone(), rate(report)));
    // A rate with incoming requests and one without are different lines.
    let coming: Vec<&Report> =
        reports.into_iter().filter(|report| rate(report) != "half-stored").collect();
    let by_pending = grouped(&coming, |report| (report.setup.broker.clone(), report.setup.pending));
    let against_pending = by_rate.into_iter().map(|((broker, rate), own)| {
        let title = format!("Lateness against pending jobs: {broker}, {}", per_second(&rate));
        (
            format!("lateness-pending-{broker}-{rate}"),
            percentiles(title, "pending jobs", &own, |report| {
                Some(report.setup.pending.max(1) as f64)
            }),
        )
    });
    let against_rate = by_pending.into_iter().map(|((broker, pending), own)| {
        let title = format!("Lateness against rate: {broker}, {} pending", number_of(pending));
        let at = |report: &Report| report.get(&metric::RATE).map(|figure| figure.median);
        (format!("lateness-rate-{broker}-{pending}"), percentiles(title, "jobs/s", &own, at))
    });
    against_pending.chain(against_rate).filter(|(_, plot)| says_something(plot)).collect()
}

fn percentiles(
    title: String,
    x: &'static str,
    own: &[&Report],
    at: impl Fn(&Report) -> Option<f64>,
) -> Plot {
    let kinds: [(&str, &Metric); 4] = [
        ("p50", &metric::LATE_P50),
        ("p99", &metric::LATE_P99),
        ("p99.9", &metric::LATE_P999),
        ("max", &metric::LATE_MAX),
    ];
    let lines =
        kinds.into_iter().map(|(name, kind)| line(name.to_owned(), own, kind, &at)).collect();
    Plot { title, x, y: "ms after the due time", log_y: true, lines }
}

/// Drain rates over instances and over buckets, a line for each broker. The other of the two is
/// that of the broker's first report.
fn scale(reports: &[&Report]) -> Vec<(String, Plot)> {
    let brokers = grouped(reports, |report| report.setup.broker.clone());
    let instances: fn(&Setup) -> usize = |setup| setup.instances;
    let buckets: fn(&Setup) -> usize = |setup| usize::from(setup.buckets);
    let plot = |x: &'static str, at: fn(&Setup) -> usize, other: fn(&Setup) -> usize| {
        let of_broker = |(broker, own): (&String, &Vec<&Report>)| {
            let is_same = |report: &&Report| other(&report.setup) == other(&own[0].setup);
            let own: Vec<&Report> = own.iter().copied().filter(is_same).collect();
            line(broker.clone(), &own, &metric::DRAIN, |report| Some(at(&report.setup) as f64))
        };
        let (title, lines) = (format!("Drain against {x}"), brokers.iter().map(of_broker));
        let lines = lines.collect();
        (format!("scale-{x}"), Plot { title, x, y: "jobs/s", log_y: false, lines })
    };
    let plots = [plot("instances", instances, buckets), plot("buckets", buckets, instances)];
    plots.into_iter().filter(|(_, plot)| says_something(plot)).collect()
}

/// A line needs two points.
fn says_something(plot: &Plot) -> bool {
    plot.lines.iter().any(|line| line.points.windows(2).any(|pair| pair[0].0 < pair[1].0))
}

fn line(name: String, own: &[&Report], kind: &Metric, at: impl Fn(&Report) -> Option<f64>) -> Line {
    let mut points: Vec<(f64, f64)> =
        own.iter().filter_map(|report| Some((at(report)?, report.get(kind)?.median))).collect();
    points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    Line { name, points }
}

fn grouped<'a, K: Ord>(
    reports: &[&'a Report],
    key: impl Fn(&Report) -> K,
) -> BTreeMap<K, Vec<&'a Report>> {
    let mut groups: BTreeMap<K, Vec<&Report>> = BTreeMap::new();
    for report in reports {
        groups.entry(key(report)).or_default().push(report);
    }
    groups
}
