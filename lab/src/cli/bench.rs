//! `dwell-lab bench`: load on real servers, and its results.

mod args;

use std::time::Duration;

pub(super) use args::Args;
use args::What;

use crate::bench::lateness::{self, Rate};
use crate::bench::metric::Run;
use crate::bench::report::{Report, Setup};
use crate::bench::{Options, backlog, drain, ingest, memory, pages, relay, scale, start};
use dwell::cli::common::Common;
use dwell::cli::exit::{Exit, Stop};
use dwell_testkit::environment::Result;

/// Measures and prints the results. Fails if a job was lost, duplicated, early or damaged.
///
/// # Errors
/// A job was wrong, the servers failed, or a signal arrived.
pub(super) async fn run(common: &Common, args: &Args) -> Result<Exit, Stop> {
    if let What::Report { lines, peers, docs, html } = &args.what {
        return Ok(pages::write(lines, peers.as_deref(), docs.as_deref(), html.as_deref())
            .map(|()| Exit::Ok)?);
    }
    if let Some(flag) = unused(args) {
        return Err(Stop::because(
            Exit::Usage,
            format!("{flag} does nothing here"),
            "leave it out, or measure `scale`",
        ));
    }
    super::until_signal(Box::pin(measure(common, args))).await
}

/// A flag that does not apply to this measurement.
fn unused(args: &Args) -> Option<&'static str> {
    let is_scale = matches!(args.what, What::Scale { .. });
    let has_one = matches!(args.what, What::Start { .. } | What::Relay { .. });
    [
        (!is_scale && args.instances.len() > 1, "more than one number of --instances"),
        (!is_scale && args.buckets.len() > 1, "more than one number of --buckets"),
        (has_one && args.instances != [1], "--instances"),
    ]
    .into_iter()
    .find_map(|(is_unused, flag)| is_unused.then_some(flag))
}

/// A point of a measurement, and the report of its runs.
struct Point {
    options: Options,
    rate: Option<Rate>,
    report: Report,
}

/// Measures every point once in each run, so that a slower machine affects all points alike.
async fn measure(common: &Common, args: &Args) -> Result<Exit, Stop> {
    let mut points = points(args, super::progress(common));
    for _ in 0..args.runs {
        let mut runs = Vec::new();
        for point in &points {
            runs.push(Box::pin(one(point, &args.what)).await?);
        }
        if matches!(args.what, What::Scale { .. }) {
            scale::compare(&mut runs);
        }
        for (point, run) in points.iter_mut().zip(&runs) {
            point.report.add(run);
        }
    }
    for Point { report, .. } in &points {
        common.answer(report, &report.to_string())?;
    }
    let wrong: Vec<String> = points.iter().filter_map(|point| point.report.wrong()).collect();
    if wrong.is_empty() {
        Ok(Exit::Ok)
    } else {
        Err(Stop::because(Exit::Failed, wrong.join("; "), ""))
    }
}

/// One run at one point.
async fn one(point: &Point, what: &What) -> Result<Run> {
    let options = &point.options;
    match what {
        What::Drain(of) => Box::pin(drain::run(options, of.jobs.jobs, !of.alone)).await,
        What::Scale { jobs, .. } => Box::pin(drain::run(options, jobs.jobs, false)).await,
        What::Lateness { secs, .. } => {
            Box::pin(lateness::run(options, point.rate.unwrap_or(Rate::Half), *secs)).await
        }
        What::Backlog { overdue, rate, secs } => {
            Box::pin(backlog::run(options, *overdue, *rate, *secs)).await
        }
        What::Schedule(of) => Box::pin(ingest::run(options, of.jobs.jobs, !of.alone)).await,
        What::Memory { load_jobs, load_body, .. } => {
            Box::pin(memory::run(options, memory::Load { jobs: *load_jobs, body: *load_body }))
                .await
        }
        What::Relay { jobs } => Box::pin(relay::run(options, jobs.jobs)).await,
        What::Start { times, secs, .. } => {
            Box::pin(start::run(options, *times, Duration::from_secs(*secs))).await
        }
        What::Report { .. } => Err("a report measures nothing".into()),
    }
}

/// The points of a measurement: each number of waiting jobs with each rate, and for `scale` each
/// number of instances and of buckets.
fn points(args: &Args, say: fn(&str)) -> Vec<Point> {
    let (bench, jobs, secs, pending) = match &args.what {
        What::Drain(of) => ("drain", Some(of.jobs.jobs), None, vec![of.pending]),
        What::Lateness { secs, pending, .. } => ("lateness", None, Some(*secs), pending.clone()),
        What::Backlog { overdue, secs, .. } => ("backlog", Some(*overdue), Some(*secs), vec![0]),
        What::Schedule(of) => ("schedule", Some(of.jobs.jobs), None, vec![of.pending]),
        What::Memory { pending, .. } => ("memory", None, None, vec![*pending]),
        What::Scale { jobs, pending } => ("scale", Some(jobs.jobs), None, vec![*pending]),
        What::Relay { jobs } => ("relay", Some(jobs.jobs), None, vec![0]),
        What::Start { secs, pending, .. } => ("start", None, Some(*secs), pending.clone()),
        What::Report { .. } => return Vec::new(),
    };
    let rates: Vec<Option<Rate>> = match &args.what {
        What::Lateness { rate, .. } => rate.iter().copied().map(Some).collect(),
        _ => vec![None],
    };
    let load = match &args.what {
        What::Memory { load_jobs, load_body, .. } => Some((*load_jobs, *load_body)),
        _ => None,
    };
    let redis = if args.redis.is_some() { "given" } else { "private, appendfsync everysec" };
    let instances: Vec<usize> = args.instances.iter().copied().map(usize::from).collect();
    // The path of the program and the URL of Redis are not part of a report.
    let words = std::env::args()
        .skip(1)
        .map(|word| if word.contains("://") { "URL".to_owned() } else { word });
    let command: Vec<String> = std::iter::once("dwell-lab".to_owned()).chain(words).collect();
    let mut points = Vec::new();
    for &pending in &pending {
        for &rate in &rates {
            for scale::Point { instances, buckets } in scale::points(&instances, &args.buckets) {
                let options = Options {
                    broker: args.broker,
                    redis: args.redis.clone(),
                    instances,
                    buckets,
                    body: args.body,
                    pending,
                    distance: args.far,
                    say,
                };
                let setup = Setup {
                    broker: args.broker.as_str().to_owned(),
                    redis: redis.to_owned(),
                    instances,
                    buckets,
                    body: args.body,
                    jobs,
                    pending,
                    rate: rate.map(|rate| rate.to_string()),
                    secs,
                    load,
                };
                let report = Report::new(bench, setup, command.join(" "));
                points.push(Point { options, rate, report });
            }
        }
    }
    points
}
