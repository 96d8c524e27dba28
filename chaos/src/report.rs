//! What campaigns came to: by kind of fault, how often, how many copies, how long until it was over; memory; what was wrong. Of several runs one.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::checker::verdict::{Counts, Strike, Verdict, Wrong};
use crate::history::{Event, History, Op, Sample};

/// Of one campaign, or of several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Each campaign.
    pub runs: Vec<Run>,
    /// All of them together.
    pub counts: Counts,
    /// By the name of the fault.
    pub faults: BTreeMap<String, Tally>,
    /// What is wrong, with the run in front of each.
    pub findings: BTreeMap<Wrong, Vec<String>>,
}

/// One campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// `nats`, `kafka` or `amqp`
    pub broker: String,
    /// The seed.
    pub seed: u64,
    /// The tree.
    pub commit: String,
    /// How many `dwell run`.
    pub instances: usize,
    /// `redis.durability`
    pub durability: String,
    /// From the first event to the last, seconds.
    pub seconds: i64,
    /// How many faults.
    pub faults: usize,
    /// From the first fault to the heal of the last, seconds: what is before and after is calm.
    #[serde(default)]
    pub struck_seconds: i64,
    /// The verdict is not that of the run, but of a checker that judged its record later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked_again: bool,
    /// Jobs that were taken.
    pub jobs: u64,
    /// No promise broke.
    pub sound: bool,
    /// The arguments that repeat it.
    pub repeat: String,
    /// Memory of each instance.
    pub memory: Vec<Memory>,
}

/// What one kind of fault came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// How often.
    pub count: u64,
    /// Copies that it explains.
    pub duplicates: u64,
    /// From each heal until the first overdue job came, ms; of those that left one.
    pub first_ms: Vec<i64>,
    /// And until the last.
    pub last_ms: Vec<i64>,
    /// The most that a job was late which fell due meanwhile, ms.
    pub lateness_ms: i64,
}

/// Resident memory of the process of an instance that lived longest, bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Which instance.
    pub instance: usize,
    /// How long it was looked at, seconds.
    pub seconds: i64,
    /// At first.
    pub first: u64,
    /// At last.
    pub last: u64,
    /// The most, of any of its processes.
    pub most: u64,
    /// How much it rose an hour, by least squares; `None` where it did not live for ten minutes, of which a start is too much.
    pub hourly: Option<f64>,
}

impl Report {
    /// Of one run.
    #[must_use]
    pub fn of(history: &History, verdict: &Verdict) -> Report {
        let head = &history.head;
        let times = || history.events.iter().map(|event| event.t_us);
        let seconds = times().max().unwrap_or(0).saturating_sub(times().min().unwrap_or(0)) / 1_000_000;
        let run = Run {
            broker: head.broker.clone(),
            seed: head.seed,
            commit: head.commit.clone(),
            instances: head.instances,
            durability: head.durability.clone(),
            seconds,
            faults: verdict.strikes.len(),
            struck_seconds: struck_seconds(&verdict.strikes),
            checked_again: false,
            jobs: verdict.counts.taken,
            sound: verdict.is_sound(),
            repeat: head.repeat.clone(),
            memory: memory(&history.events),
        };
        let mut faults: BTreeMap<String, Tally> = BTreeMap::new();
        for strike in &verdict.strikes {
            let tally = faults.entry(strike.kind.clone()).or_default();
            tally.count += 1;
            tally.duplicates += strike.duplicates;
            tally.first_ms.extend(strike.first_us.map(|us| us / 1000));
            tally.last_ms.extend(strike.last_us.map(|us| us / 1000));
            tally.lateness_ms = tally.lateness_ms.max(strike.lateness_us / 1000);
        }
        let named = |what: &String| format!("{} {}: {what}", head.broker, head.seed);
        let findings = verdict.findings.iter().map(|(wrong, whats)| (*wrong, whats.iter().map(named).collect())).collect();
        Report { runs: vec![run], counts: verdict.counts, faults, findings }
    }

    /// This one and another.
    #[must_use]
    pub fn and(mut self, other: Report) -> Report {
        self.runs.extend(other.runs);
        self.counts = self.counts + other.counts;
        for (kind, more) in other.faults {
            let tally = self.faults.entry(kind).or_default();
            tally.count += more.count;
            tally.duplicates += more.duplicates;
            tally.first_ms.extend(more.first_ms);
            tally.last_ms.extend(more.last_ms);
            tally.lateness_ms = tally.lateness_ms.max(more.lateness_ms);
        }
        for (wrong, whats) in other.findings {
            self.findings.entry(wrong).or_default().extend(whats);
        }
        self
    }

    /// A run of the other that is in this one already: it would count twice.
    #[must_use]
    pub fn repeated<'a>(&self, other: &'a Report) -> Option<&'a Run> {
        let same =
            |one: &Run, run: &Run| (&one.broker, one.seed, &one.commit, &one.repeat) == (&run.broker, run.seed, &run.commit, &run.repeat);
        other.runs.iter().find(|run| self.runs.iter().any(|one| same(one, run)))
    }

    /// No promise broke in any run.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty() && self.runs.iter().all(|run| run.sound)
    }
}

impl Run {
    /// Its tree can be had again: it is known, and nothing in it was changed.
    #[must_use]
    pub fn can_be_repeated(&self) -> bool {
        !self.commit.is_empty() && !self.commit.ends_with("-dirty")
    }
}

fn struck_seconds(strikes: &[Strike]) -> i64 {
    let began_us = strikes.iter().map(|strike| strike.began_us).min();
    let healed_us = strikes.iter().map(|strike| strike.healed_us).max();
    began_us.zip(healed_us).map_or(0, |(began_us, healed_us)| healed_us.saturating_sub(began_us) / 1_000_000)
}

/// The middle one, the later of two.
#[must_use]
pub fn median(values: &[i64]) -> Option<i64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

fn memory(events: &[Event]) -> Vec<Memory> {
    let mut lives: BTreeMap<(usize, u32), Vec<(i64, u64)>> = BTreeMap::new();
    for event in events {
        if let Op::Sample(Sample { instance, pid, rss, .. }) = event.op {
            lives.entry((instance, pid)).or_default().push((event.t_us, rss));
        }
    }
    let mut longest: BTreeMap<usize, Memory> = BTreeMap::new();
    for ((instance, _), samples) in lives {
        let [(from_us, first), .., (to_us, last)] = samples[..] else { continue };
        let (seconds, most) = ((to_us - from_us) / 1_000_000, samples.iter().map(|(_, rss)| *rss).max().unwrap_or(0));
        let memory = Memory { instance, seconds, first, last, most, hourly: (seconds >= 600).then(|| hourly(&samples)) };
        let known = longest.entry(instance).or_insert_with(|| memory.clone());
        let most = known.most.max(most);
        if known.seconds < seconds {
            *known = memory;
        }
        known.most = most;
    }
    longest.into_values().collect()
}

/// Bytes an hour, by least squares.
#[allow(clippy::cast_precision_loss, reason = "bytes and µs of one run")]
fn hourly(samples: &[(i64, u64)]) -> f64 {
    let origin = samples.first().map_or(0, |(t_us, _)| *t_us);
    let points = || samples.iter().map(|(t_us, rss)| ((t_us - origin) as f64 / 3.6e9, *rss as f64));
    let count = samples.len() as f64;
    let (mean_t, mean_rss) = (points().map(|(t, _)| t).sum::<f64>() / count, points().map(|(_, rss)| rss).sum::<f64>() / count);
    let (above, below) = points()
        .fold((0.0, 0.0), |(above, below), (t, rss)| (above + (t - mean_t) * (rss - mean_rss), below + (t - mean_t) * (t - mean_t)));
    if below > 0.0 { above / below } else { 0.0 }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memory { instance, seconds, first, last, most, hourly } = self;
        let [first, last, most] = [first, last, most].map(|bytes| mib(*bytes));
        write!(f, "dwell-{instance}: {first:.1} MiB, after {seconds} s {last:.1} MiB, at most {most:.1} MiB")?;
        hourly.map_or(Ok(()), |hourly| write!(f, ", {:+.1} MiB an hour", hourly / f64::from(1 << 20)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Run { broker, seed, instances, durability, seconds, faults, jobs, sound, memory, .. } in &self.runs {
            let word = if *sound { "sound" } else { "NOT SOUND" };
            writeln!(f, "{word}: {broker}, seed {seed}, {instances} instances, {durability}: {jobs} jobs, {faults} faults in {seconds} s")?;
            for memory in memory {
                writeln!(f, "  {memory}")?;
            }
        }
        writeln!(f, "{}", self.counts)?;
        writeln!(f, "{:26} {:>5} {:>6} {:>9} {:>9} {:>9} {:>9}", "fault", "times", "copies", "first ms", "at most", "all ms", "latest ms")?;
        for (kind, tally) in &self.faults {
            let Tally { count, duplicates, first_ms, last_ms, lateness_ms } = tally;
            let number = |value: Option<i64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
            let (first, at_most) = (number(median(first_ms)), number(first_ms.iter().max().copied()));
            let all = number(last_ms.iter().max().copied());
            writeln!(f, "{kind:26} {count:>5} {duplicates:>6} {first:>9} {at_most:>9} {all:>9} {lateness_ms:>9}")?;
        }
        for (wrong, whats) in &self.findings {
            writeln!(f, "{}: {}", wrong.as_str(), whats.len())?;
            for what in whats.iter().take(20) {
                writeln!(f, "  {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Phase;
    use crate::history::tests::head;

    fn strike(kind: &str, first_us: Option<i64>) -> Strike {
        let (last_us, detail) = (first_us.map(|us| us * 2), String::new());
        Strike {
            kind: kind.to_owned(),
            began_us: 0,
            healed_us: 9_000_000,
            in_flight: 3,
            duplicates: 2,
            overdue: 1,
            first_us,
            last_us,
            lateness_us: 7000,
            detail,
        }
    }

    fn report(wrong: Option<Wrong>) -> Report {
        let sample = |second: i64, pid, rss| {
            let op = Op::Sample(Sample { instance: 0, pid, rss, possible_duplicates: None });
            Event { t_us: second * 1_000_000, proc: "campaign".to_owned(), phase: Phase::Ok, op }
        };
        let events = vec![
            sample(0, 1, 50 << 20),
            sample(1, 1, 90 << 20),
            sample(2, 2, 10 << 20),
            sample(1802, 2, 11 << 20),
            sample(3602, 2, 12 << 20),
        ];
        let mut verdict = Verdict { strikes: vec![strike("redis-kill", Some(5000)), strike("redis-kill", None)], ..Verdict::default() };
        verdict.counts.taken = 10;
        verdict.findings.extend(wrong.map(|wrong| (wrong, vec!["x".to_owned()])));
        Report::of(&History { head: head(), events }, &verdict)
    }

    #[test]
    fn reports_of_several_runs_are_one() {
        let other = Report { runs: vec![Run { seed: 8, ..report(None).runs.remove(0) }], ..report(Some(Wrong::Lost)) };
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
        assert!(text.contains("NOT SOUND: nats, seed 7") && text.contains("lost: 1"), "{text}");
        let json = serde_json::to_string(&both).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), both);
    }

    #[test]
    fn a_tree_that_is_unknown_or_was_changed_cannot_be_had_again() {
        let of = |commit: &str| Run { commit: commit.to_owned(), ..report(None).runs.remove(0) }.can_be_repeated();
        assert_eq!((of("abc"), of("abc-dirty"), of("")), (true, false, false));
    }

    #[test]
    fn memory_is_that_of_the_longest_life_and_the_most_of_any() {
        let run = &report(None).runs[0];
        let memory = &run.memory[0];
        assert_eq!((memory.seconds, memory.first >> 20, memory.last >> 20, memory.most >> 20), (3600, 10, 12, 90));
        assert!((memory.hourly.unwrap() / f64::from(2 << 20) - 1.0).abs() < 0.01, "{memory}");
        assert_eq!(memory.to_string(), "dwell-0: 10.0 MiB, after 3600 s 12.0 MiB, at most 90.0 MiB, +2.0 MiB an hour");
    }

    #[test]
    fn the_median_of_nothing_is_none() {
        assert_eq!((median(&[]), median(&[3, 1, 2]), median(&[1, 2])), (None, Some(2), Some(2)));
    }
}
