//! The metrics: name, unit and meaning, in one place for tables, JSON and pages.

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::percentiles::Percentiles;
use super::round::RoundResult;

/// A metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name in JSON; tables show it without underscores.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The meaning, in a sentence.
    pub means: &'static str,
}

/// A unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Jobs, or messages, a second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Ms,
    /// Microseconds.
    #[serde(rename = "µs")]
    Us,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// A ratio.
    #[serde(rename = "x")]
    Ratio,
    /// Percent of one core.
    #[serde(rename = "%")]
    Percent,
    /// A count.
    #[serde(rename = "")]
    Count,
}

macro_rules! kinds {
    ($($constant:ident $name:literal $unit:ident $means:literal;)*) => {
        $(#[doc = $means] pub const $constant: Metric = Metric { name: $name, unit: Unit::$unit, means: $means };)*
        /// Every metric, in the order of the pages.
        pub const KINDS: &[&Metric] = &[$(&$constant),*];
    };
}

kinds! {
    DRAIN "drain" PerSecond "Jobs that were all due at one instant, by the time from that instant to the last arrival at the consumer.";
    ACCEPT "accept" PerSecond "Jobs from producer to store, confirmed by the broker on the way, from the first sent to the last stored; the producer shares the machine.";
    FIRST "first" Ms "From the due instant to the first arrival at the consumer.";
    RELAY "relay" PerSecond "As many messages through the same connectors with nothing between source and sink: read, published, confirmed, acknowledged.";
    SCRIPTS "scripts" PerSecond "The scripts `claim` and `complete` for as many jobs on the same Redis by the same code, with no broker.";
    CEILING "ceiling" PerSecond "What the parts allow where both take their time on the same cores: 1 / (1/relay + 1/scripts).";
    OF_CEILING "of_ceiling" Ratio "The rate of Dwell over its ceiling.";
    OF_RELAY "of_relay" Ratio "The rate of Dwell over that of the bare relay.";
    INGEST "ingest" PerSecond "Requests that waited on the broker when Dwell started, by the time from the first stored to the last; each batch is acknowledged before the next is stored.";
    SOURCE "source" PerSecond "As many messages read and acknowledged by the same connector, and nothing done with them.";
    SCHEDULE "schedule_script" PerSecond "The script `schedule` for as many jobs on the same Redis by the same code, with no broker.";
    INGEST_CEILING "ingest_ceiling" PerSecond "What the parts allow where both take their time on the same cores: 1 / (1/source + 1/schedule_script).";
    OF_INGEST_CEILING "of_ingest_ceiling" Ratio "The ingest rate over its ceiling.";
    REDIS_LIFE "redis_life" Us "CPU time of Redis's main thread for one job, from its schedule to the memory of its outcome.";
    SCRIPTS_CPU "scripts_cpu" Us "CPU time of Redis's main thread for one job in `claim` and `complete`, alone.";
    SCHEDULE_CPU "schedule_cpu" Us "CPU time of Redis's main thread for one job in `schedule`, alone.";
    SET "set" Us "CPU time of Redis's main thread for one pipelined SET of the same body, in the same run.";
    LIFE_IN_SETS "life_in_sets" Ratio "CPU time of Redis for one job over that for one SET of the same body.";
    DWELL_CPU "dwell_cpu" Us "CPU time of all instances for one job, accepted and delivered.";
    BROKER_CPU "broker_cpu" Us "CPU time of the broker for one job, accepted and delivered.";
    RELAY_CPU "relay_cpu" Us "CPU time of the load generator with the relay in it, for one message.";
    AGAINST_FIRST "against_first" Ratio "The drain rate over that of the first setting in the same run.";
    CPU_AGAINST_FIRST "cpu_against_first" Ratio "CPU time for one job in Dwell and Redis over that of the first setting in the same run.";
    LATE_P50 "late_p50" Ms "Receipt at the consumer minus due time: half of the jobs are at most this late.";
    LATE_P90 "late_p90" Ms "The same: 90 % of the jobs.";
    LATE_P99 "late_p99" Ms "The same: 99 % of the jobs.";
    LATE_P999 "late_p999" Ms "The same: 99.9 % of the jobs.";
    LATE_MAX "late_max" Ms "The same: the latest job.";
    OVER_PEER "over_peer" Ratio "The figure of Dwell over that of a peer in the same round.";
    EARLY "early" Count "Jobs that arrived before their due time.";
    RATE "rate" PerSecond "Jobs that were due a second.";
    CAPACITY "capacity" Ratio "The rate times (1/accept + 1/drain), as measured in the same run: near 1 the machine can do no more.";
    BEHIND_P99 "behind_p99" Ms "How late the producer was with sending, 99 %; jobs are sent 1 to 3 s ahead, so that only seconds would show in the lateness.";
    DWELL_CORE "dwell_core" Percent "CPU of all instances meanwhile, of one core.";
    REDIS_CORE "redis_core" Percent "CPU of Redis meanwhile, of one core.";
    RSS "rss" Bytes "Resident memory of one instance at the end.";
    PEAK_RSS "peak_rss" Bytes "The most resident memory of one instance.";
    FILL "fill" PerSecond "How fast the jobs that wait were put into the store, by the script `schedule` over several connections.";
    OVERHEAD "overhead" Bytes "Memory of Redis for one waiting job, less its id and its body.";
    LOADED_RSS "loaded_rss" Bytes "The most resident memory of one instance while large bodies come in and go out as fast as they can.";
    SLOW_CALLS "slow_calls" Count "Calls that kept Redis for more than 20 ms, meanwhile and before; private Redis only.";
    FIRST_START "first_start" Ms "From exec to ready, of the very first start: namespace and streams are made.";
    START "start" Ms "From exec to ready, of each later start, looked at every 5 ms.";
    IDLE_DWELL "idle_dwell" Percent "CPU of one instance that has nothing to do, of one core.";
    IDLE_REDIS "idle_redis" Percent "CPU of Redis meanwhile, of one core.";
}

/// The result of one run.
#[derive(Debug, Default)]
pub struct Run {
    /// The values in the order of a table. A metric that occurs several times counts as several
    /// runs.
    pub figures: Vec<(&'static Metric, f64)>,
    /// The result of the jobs of all rounds.
    pub result: RoundResult,
    /// The machine.
    pub machine: Machine,
}

impl Run {
    /// Notes a value.
    pub fn note(&mut self, kind: &'static Metric, value: f64) {
        self.figures.push((kind, value));
    }

    /// Notes a value if it is known.
    pub fn note_known(&mut self, kind: &'static Metric, value: Option<f64>) {
        self.figures.extend(value.map(|value| (kind, value)));
    }

    /// Notes the lateness of the jobs.
    pub fn note_lateness(&mut self, late: &Percentiles) {
        self.note(&LATE_P50, late.p50_ms);
        self.note(&LATE_P90, late.p90_ms);
        self.note(&LATE_P99, late.p99_ms);
        self.note(&LATE_P999, late.p999_ms);
        self.note(&LATE_MAX, late.max_ms);
    }

    /// The last value of a metric.
    pub fn value(&self, kind: &Metric) -> Option<f64> {
        self.figures.iter().rev().find(|(noted, _)| *noted == kind).map(|(_, value)| *value)
    }
}

/// The metric of this name.
pub fn kind_of(name: &str) -> Option<&'static Metric> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}

/// The rate of two parts that run one after the other, or share the cores: 1 / (1/a + 1/b).
pub fn ceiling(a: f64, b: f64) -> f64 {
    if a > 0.0 && b > 0.0 { 1.0 / (1.0 / a + 1.0 / b) } else { 0.0 }
}

/// `a` / `b`, or zero if `b` is zero.
pub fn over(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_below_both_parts() {
        assert!(
            (ceiling(100.0, 100.0) - 50.0).abs() < 1e-9
                && (ceiling(150.0, 75.0) - 50.0).abs() < 1e-9
        );
        assert_eq!((ceiling(0.0, 5.0), over(1.0, 0.0)), (0.0, 0.0));
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
    }
}
