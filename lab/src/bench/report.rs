//! The report of several runs: a line of JSON for the pages, and a table for people.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::metric::{Metric, Run, Unit};
use super::number::{number, number_of, show};
use super::percentiles::median;
use super::round::RoundResult;

/// The setup of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// `nats`, `kafka`, `amqp`
    pub broker: String,
    /// The kind of Redis, and its persistence.
    pub redis: String,
    /// The number of `dwell run`.
    pub instances: usize,
    /// Buckets of the namespace.
    pub buckets: u16,
    /// Bytes of each body.
    pub body: usize,
    /// The number of sent jobs, if it is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
    /// Jobs that only wait.
    #[serde(default)]
    pub pending: u64,
    /// Jobs due a second: a number, `half` of the drain rate, or `half-stored`: the same, with all
    /// jobs stored before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The duration, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secs: Option<u64>,
    /// The load of large bodies: how many, and bytes of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<(u64, usize)>,
}

/// A [`Setup::rate`] in words; `unit` follows a number.
pub fn words_of(rate: &str, unit: &str) -> String {
    match rate {
        "half" => "half of the drain rate".to_owned(),
        "half-stored" => "half of the drain rate, stored before".to_owned(),
        number => format!("{number}{unit}"),
    }
}

/// A metric over all runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The name of the metric.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// The median.
    pub median: f64,
    /// The minimum.
    pub least: f64,
    /// The maximum.
    pub most: f64,
    /// The values in the order of the runs.
    pub runs: Vec<f64>,
}

/// A measurement of one setup.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Its name: `drain`, `lateness`, …
    pub bench: String,
    /// The setup.
    pub setup: Setup,
    /// The number of runs.
    pub runs: usize,
    /// The values by name.
    pub figures: BTreeMap<String, Figure>,
    /// The names in the order of a table.
    pub order: Vec<String>,
    /// The result of all jobs of all runs.
    #[serde(alias = "tally")]
    pub result: RoundResult,
    /// The machine.
    pub machine: Machine,
    /// The command line.
    pub command: String,
}

impl Report {
    /// A report without runs.
    pub fn new(bench: &str, setup: Setup, command: String) -> Self {
        Report { bench: bench.to_owned(), setup, command, ..Report::default() }
    }

    /// Adds a run, whose machine is from now on that of the report.
    pub fn add(&mut self, run: &Run) {
        self.runs += 1;
        self.result += run.result;
        self.machine = run.machine.clone();
        for (kind, value) in &run.figures {
            self.figure(kind.name, kind.unit).add(*value);
        }
    }

    /// The value of this name, which may have no run yet.
    fn figure(&mut self, name: &str, unit: Unit) -> &mut Figure {
        self.figures.entry(name.to_owned()).or_insert_with(|| {
            self.order.push(name.to_owned());
            let (name, runs) = (name.to_owned(), Vec::new());
            Figure { name, unit, median: 0.0, least: 0.0, most: 0.0, runs }
        })
    }

    /// Adds the runs of another report of the same setup; false if the setup differs.
    pub fn merge(&mut self, other: &Report) -> bool {
        let same = (&self.bench, &self.setup, &self.command, &self.machine)
            == (&other.bench, &other.setup, &other.command, &other.machine);
        if same {
            self.runs += other.runs;
            self.result += other.result;
            for Figure { name, unit, runs, .. } in other.in_order() {
                let own = self.figure(name, *unit);
                runs.iter().for_each(|value| own.add(*value));
            }
        }
        same
    }

    /// The value of this metric.
    pub fn get(&self, kind: &Metric) -> Option<&Figure> {
        self.figures.get(kind.name)
    }

    /// All values in the order of a table.
    pub fn in_order(&self) -> impl Iterator<Item = &Figure> {
        self.order.iter().filter_map(|name| self.figures.get(name))
    }

    /// The broker, the setup as far as it is not the usual one, and the number of runs.
    pub fn label(&self) -> String {
        let Setup { broker, redis, instances, buckets, body, jobs, pending, rate, secs: _, load } =
            &self.setup;
        let bench = self.bench.as_str();
        let parts = [
            Some(broker.clone()),
            jobs.map(|jobs| format!("{} jobs", number_of(jobs))),
            load.map(|(jobs, body)| {
                format!("load of {} × {} bytes", number_of(jobs), number_of(body as u64))
            }),
            (*pending > 0 || matches!(bench, "start" | "lateness"))
                .then(|| format!("{} pending", number_of(*pending))),
            rate.as_ref().map(|rate| words_of(rate, "/s")),
            (*instances > 1 || bench == "scale").then(|| format!("{instances} × dwell")),
            (*buckets != 16 || bench == "scale").then(|| format!("{buckets} buckets")),
            (*body != 200).then(|| format!("{} bytes", number_of(*body as u64))),
            (!redis.ends_with("everysec")).then(|| format!("redis {redis}")),
            Some(if self.runs == 1 { "1 run".to_owned() } else { format!("{} runs", self.runs) }),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The problem of the result; `None` if all is well.
    pub fn wrong(&self) -> Option<String> {
        self.result.wrong()
    }
}

impl Figure {
    fn add(&mut self, value: f64) {
        self.runs.push(value);
        self.least = self.runs.iter().copied().fold(value, f64::min);
        self.most = self.runs.iter().copied().fold(value, f64::max);
        self.median = median(&self.runs);
    }

    /// The median with its unit.
    pub fn shown(&self) -> String {
        show(self.median, self.unit)
    }

    /// The minimum and the maximum beside a median; empty if both are the same.
    pub fn range_without_unit(&self) -> String {
        let (least, most) = (number(self.least, self.unit), number(self.most, self.unit));
        if least == most { String::new() } else { format!("{least} – {most}") }
    }

    /// The minimum and the maximum; empty for a single run.
    pub fn range(&self) -> String {
        if self.runs.len() < 2 {
            return String::new();
        }
        format!("{} – {}", number(self.least, self.unit), show(self.most, self.unit))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; median and range", self.bench, self.label())?;
        let width = self.order.iter().map(|name| name.len()).max().unwrap_or(0);
        for figure in self.in_order() {
            write!(
                f,
                "\n  {:width$}  {:>12}  {}",
                figure.name.replace('_', " "),
                figure.shown(),
                figure.range()
            )?;
        }
        if self.result.sent > 0 {
            write!(f, "\n  {:width$}  {}", "round", self.result)?;
        }
        write!(f, "\n  {:width$}  {}", "machine", self.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::super::metric;
    use super::*;

    #[test]
    fn runs_become_a_median_and_a_range_and_come_back_from_json() {
        let mut report = Report::new(
            "drain",
            Setup { broker: "nats".to_owned(), ..Setup::default() },
            "dwell-lab bench drain".to_owned(),
        );
        for rate in [30_000.0, 10_000.0, 20_000.0] {
            let mut run = Run {
                result: RoundResult { sent: 5, arrived: 5, ..RoundResult::default() },
                ..Run::default()
            };
            run.note(&metric::DRAIN, rate);
            run.note(&metric::OF_CEILING, 0.5);
            report.add(&run);
        }
        let figure = report.get(&metric::DRAIN).unwrap();
        assert_eq!(
            (figure.median, figure.shown(), figure.range()),
            (20_000.0, "20 000/s".to_owned(), "10 000 – 30 000/s".to_owned())
        );
        assert_eq!((report.runs, report.result.sent, report.wrong()), (3, 15, None));
        let mut twice = report.clone();
        assert!(
            twice.merge(&report)
                && !twice.merge(&Report::new("drain", Setup::default(), String::new()))
        );
        assert_eq!(
            (twice.runs, twice.get(&metric::DRAIN).unwrap().runs.len(), twice.result.sent),
            (6, 6, 30)
        );
        let again: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(again.to_string(), report.to_string());
        assert!(again.in_order().map(|figure| figure.name.as_str()).eq(["drain", "of_ceiling"]));
    }

    #[test]
    fn an_even_number_of_runs_has_its_median_between_two() {
        let mut figure = Figure {
            name: String::new(),
            unit: Unit::Ms,
            median: 0.0,
            least: 0.0,
            most: 0.0,
            runs: Vec::new(),
        };
        [4.0, 1.0, 2.0, 3.0].into_iter().for_each(|value| figure.add(value));
        assert_eq!((figure.median, figure.least, figure.most), (2.5, 1.0, 4.0));
    }
}
