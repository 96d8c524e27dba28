//! The report of campaigns: for each kind of fault the count, the copies and the recovery times;
//! memory; violations. Reports can be merged.

mod memory;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::memory::Memory;
use self::memory::memory;
use crate::chaos::checker::verdict::{
    Counts, FaultImpact, LeaseStates, Verdict, Wrong, write_findings,
};
use crate::chaos::history::{History, single_redis};

/// The report of one or more campaigns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The campaigns.
    pub runs: Vec<Run>,
    /// The sum of their counts.
    pub counts: Counts,
    /// The states of leases in all of them.
    #[serde(default)]
    pub leases: LeaseStates,
    /// The summary of each fault, by name.
    pub faults: BTreeMap<String, FaultSummary>,
    /// The violations, each with its run.
    pub findings: BTreeMap<Wrong, Vec<String>>,
}

/// One campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// `nats`, `kafka` or `amqp`
    pub broker: String,
    /// The seed.
    pub seed: u64,
    /// The commit.
    pub commit: String,
    /// The number of `dwell run`.
    pub instances: usize,
    /// `redis.durability`
    pub durability: String,
    /// `redis.mode`; older reports are of `single`.
    #[serde(default = "single_redis")]
    pub redis: String,
    /// From the first event to the last, seconds.
    pub seconds: i64,
    /// The number of faults.
    pub faults: usize,
    /// The time from the first fault to the heal of the last, seconds.
    #[serde(default)]
    pub struck_seconds: i64,
    /// The verdict is that of a later checker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked_again: bool,
    /// Jobs that were taken.
    pub jobs: u64,
    /// No promise was broken.
    pub sound: bool,
    /// The command line that repeats the run.
    pub repeat: String,
    /// Memory of each instance.
    pub memory: Vec<Memory>,
}

/// The summary of one kind of fault.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultSummary {
    /// The number of injections.
    pub count: u64,
    /// The copies that it explains.
    pub duplicates: u64,
    /// The time from each heal, or from the first due job after it, until a job arrived, ms.
    pub first_ms: Vec<i64>,
    /// The time from each heal until the last job arrived that fell due during the fault, ms; only
    /// for faults with such a job.
    pub last_ms: Vec<i64>,
    /// The highest lateness of a job that fell due during the fault, ms.
    pub lateness_ms: i64,
    /// As above, of the jobs that the fault does not affect; `None` if it affects all jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_ms: Option<i64>,
}

impl Report {
    /// The report of one run.
    #[must_use]
    pub fn of(history: &History, verdict: &Verdict) -> Report {
        let head = history.head.clone();
        let (counts, leases, impacts) = (verdict.counts, verdict.leases, &verdict.impacts);
        let named = |what: &String| format!("{} {}: {what}", head.broker, head.seed);
        let findings = verdict.findings.iter();
        let findings =
            findings.map(|(wrong, whats)| (*wrong, whats.iter().map(named).collect())).collect();
        let mut faults: BTreeMap<String, FaultSummary> = BTreeMap::new();
        for impact in impacts {
            faults.entry(impact.kind.clone()).or_default().add(FaultSummary::of(impact));
        }
        let times = || history.events.iter().map(|event| event.t_us);
        let struck = impacts.iter().map(|impact| impact.began_us);
        let healed = impacts.iter().map(|impact| impact.healed_us);
        let run = Run {
            seconds: seconds(times().min(), times().max()),
            faults: impacts.len(),
            struck_seconds: seconds(struck.min(), healed.max()),
            checked_again: false,
            jobs: counts.taken,
            sound: verdict.is_sound(),
            memory: memory(&history.events),
            broker: head.broker,
            seed: head.seed,
            commit: head.commit,
            instances: head.instances,
            durability: head.durability,
            redis: head.redis,
            repeat: head.repeat,
        };
        Report { runs: vec![run], counts, leases, faults, findings }
    }

    /// Merges two reports.
    #[must_use]
    pub fn and(mut self, other: Report) -> Report {
        self.runs.extend(other.runs);
        self.counts += other.counts;
        self.leases += other.leases;
        for (kind, more) in other.faults {
            self.faults.entry(kind).or_default().add(more);
        }
        for (wrong, whats) in other.findings {
            self.findings.entry(wrong).or_default().extend(whats);
        }
        self
    }

    /// The time from each heal until a job arrived, of all faults: how many there are, their median
    /// and their maximum, ms.
    pub(super) fn recovery_ms(&self) -> Option<(usize, i64, i64)> {
        let all: Vec<i64> =
            self.faults.values().flat_map(|summary| summary.first_ms.iter().copied()).collect();
        median_and_most(&all).map(|(middle, most)| (all.len(), middle, most))
    }

    /// A run that both reports contain and that would count twice.
    #[must_use]
    pub fn repeated<'a>(&self, other: &'a Report) -> Option<&'a Run> {
        let same = |one: &Run, run: &Run| {
            (&one.broker, one.seed, &one.commit, &one.repeat)
                == (&run.broker, run.seed, &run.commit, &run.repeat)
        };
        other.runs.iter().find(|run| self.runs.iter().any(|one| same(one, run)))
    }

    /// No promise was broken in any run.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty() && self.runs.iter().all(|run| run.sound)
    }
}

impl FaultSummary {
    fn of(impact: &FaultImpact) -> FaultSummary {
        let ms = |us: Option<i64>| us.map(|us| us / 1000);
        FaultSummary {
            count: 1,
            duplicates: impact.duplicates,
            first_ms: ms(impact.first_us).into_iter().collect(),
            last_ms: ms(impact.last_us).into_iter().collect(),
            lateness_ms: impact.lateness_us / 1000,
            beside_ms: ms(impact.beside_us),
        }
    }

    fn add(&mut self, more: FaultSummary) {
        self.count += more.count;
        self.duplicates += more.duplicates;
        self.first_ms.extend(more.first_ms);
        self.last_ms.extend(more.last_ms);
        self.lateness_ms = self.lateness_ms.max(more.lateness_ms);
        self.beside_ms = self.beside_ms.max(more.beside_ms);
    }
}

impl Run {
    /// Whether the commit is known and its tree was unchanged.
    #[must_use]
    pub fn can_be_repeated(&self) -> bool {
        !self.commit.is_empty() && !self.commit.ends_with("-dirty")
    }
}

/// From one time to the other, epoch µs; 0 without them.
fn seconds(from_us: Option<i64>, to_us: Option<i64>) -> i64 {
    from_us.zip(to_us).map_or(0, |(from_us, to_us)| to_us.saturating_sub(from_us) / 1_000_000)
}

/// The median, the later of two, and the maximum.
pub(super) fn median_and_most(values: &[i64]) -> Option<(i64, i64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    Some((*sorted.get(sorted.len() / 2)?, *sorted.last()?))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in &self.runs {
            let Run { broker, redis, seed, instances, durability, .. } = run;
            let Run { seconds, faults, jobs, sound, memory, .. } = run;
            let word = if *sound { "sound" } else { "NOT SOUND" };
            writeln!(
                f,
                "{word}: {broker}, {redis} Redis, seed {seed}, {instances} instances, {durability}: {jobs} jobs, {faults} faults in {seconds} s"
            )?;
            for memory in memory {
                writeln!(f, "  {memory}")?;
            }
        }
        writeln!(f, "{}\n{}", self.counts, self.leases)?;
        if let Some((count, middle, most)) = self.recovery_ms() {
            writeln!(
                f,
                "{count} faults: deliveries resume {middle} ms after the heal (median), {most} ms at most"
            )?;
        }
        writeln!(
            f,
            "{:26} {:>5} {:>6} {:>9} {:>9} {:>9} {:>9}",
            "fault", "times", "copies", "first ms", "at most", "all ms", "latest ms"
        )?;
        for (kind, summary) in &self.faults {
            let FaultSummary { count, duplicates, first_ms, last_ms, lateness_ms, .. } = summary;
            let number = |of: Option<i64>| of.map_or_else(|| "-".to_owned(), |of| of.to_string());
            let (first, at_most) = median_and_most(first_ms).unzip();
            let [first, at_most, all] = [first, at_most, last_ms.iter().max().copied()].map(number);
            writeln!(
                f,
                "{kind:26} {count:>5} {duplicates:>6} {first:>9} {at_most:>9} {all:>9} {lateness_ms:>9}"
            )?;
        }
        write_findings(f, &self.findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::tests::head;

    fn impact(kind: &str, first_us: Option<i64>) -> FaultImpact {
        let (last_us, detail) = (first_us.map(|us| us * 2), String::new());
        FaultImpact {
            kind: kind.to_owned(),
            began_us: 0,
            healed_us: 9_000_000,
            in_flight: 3,
            duplicates: 2,
            overdue: 1,
            first_us,
            last_us,
            lateness_us: 7000,
            beside_us: None,
            detail,
        }
    }

    fn report(wrong: Option<Wrong>) -> Report {
        let mut verdict = Verdict {
            impacts: vec![impact("redis-kill", Some(5000)), impact("redis-kill", None)],
            ..Verdict::default()
        };
        verdict.counts.taken = 10;
        verdict.findings.extend(wrong.map(|wrong| (wrong, vec!["x".to_owned()])));
        Report::of(&History { head: head(), events: Vec::new() }, &verdict)
    }

    #[test]
    fn reports_of_several_runs_are_one() {
        let other = Report {
            runs: vec![Run { seed: 8, ..report(None).runs.remove(0) }],
            ..report(Some(Wrong::Lost))
        };
        assert_eq!(report(None).repeated(&other), None);
        assert_eq!(report(None).and(other).repeated(&report(None)).map(|run| run.seed), Some(7));
        let both = report(None).and(report(Some(Wrong::Lost)));
        assert_eq!(both.runs[0].struck_seconds, 9);
        let tally = &both.faults["redis-kill"];
        assert_eq!(
            (tally.count, tally.duplicates, &*tally.first_ms, &*tally.last_ms, tally.lateness_ms),
            (4, 8, &[5, 5][..], &[10, 10][..], 7)
        );
        assert_eq!((both.counts.taken, both.runs.len()), (20, 2));
        assert!(report(None).is_sound() && !both.is_sound());
        assert_eq!(both.findings[&Wrong::Lost], ["nats 7: x"]);
        let text = both.to_string();
        assert!(
            text.contains("NOT SOUND: nats, single Redis, seed 7") && text.contains("lost: 1"),
            "{text}"
        );
        assert!(
            text.contains("2 faults: deliveries resume 5 ms after the heal (median), 5 ms at most"),
            "{text}"
        );
        let json = serde_json::to_string(&both).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), both);
    }

    #[test]
    fn a_tree_that_is_unknown_or_was_changed_cannot_be_had_again() {
        let of = |commit: &str| {
            Run { commit: commit.to_owned(), ..report(None).runs.remove(0) }.can_be_repeated()
        };
        assert_eq!((of("abc"), of("abc-dirty"), of("")), (true, false, false));
    }

    #[test]
    fn the_median_of_nothing_is_none() {
        let median = |values: &[i64]| median_and_most(values).map(|(middle, _)| middle);
        assert_eq!((median(&[]), median(&[3, 1, 2]), median(&[1, 2])), (None, Some(2), Some(2)));
    }
}
