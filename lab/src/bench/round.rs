//! A round of jobs: the sent jobs, the arrivals, and the problems. Pure.
//!
//! A body is computed from its round and its job, so that an arrival is compared byte for byte
//! without keeping the body.

use bytes::Bytes;
use dwell_connectors::Message;

use super::JOB_TARGET;
use super::percentiles::{Latencies, Percentiles};
use crate::sums::sums;

/// The shortest body: it contains the numbers of its round and its job.
pub const BODY_MIN: usize = 16;

/// One round of jobs.
#[derive(Debug, Default)]
pub struct Round {
    id: u64,
    size: usize,
    jobs: Vec<Job>,
    times: Latencies,
    arrived: u64,
    damaged: u64,
    stray: u64,
    first_us: Option<i64>,
    last_us: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    due_us: i64,
    arrivals: u32,
    early: bool,
}

/// The result of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RoundResult {
    /// Jobs that had to arrive.
    pub sent: u64,
    /// Jobs that arrived at least once.
    pub arrived: u64,
    /// Jobs that did not arrive.
    pub lost: u64,
    /// Arrivals beyond the first of a job.
    pub duplicates: u64,
    /// Jobs that arrived before their due time.
    pub early: u64,
    /// Arrivals with an unknown body.
    pub damaged: u64,
    /// Arrivals of jobs of another round: an earlier one, or the jobs that only wait.
    #[serde(default)]
    pub stray: u64,
}

impl Round {
    /// A round of this number with bodies of `size` bytes ([`BODY_MIN`] at least).
    pub fn new(id: u64, size: usize) -> Self {
        Round { id, size: size.max(BODY_MIN), ..Round::default() }
    }

    /// Enters a job with this due time (epoch ms). Returns its body.
    pub fn enter(&mut self, due_ms: i64) -> Bytes {
        let index = self.jobs.len() as u64;
        self.jobs.push(Job { due_us: due_ms * 1000, arrivals: 0, early: false });
        body(self.id, index, self.size)
    }

    /// A body arrived at this time (epoch µs).
    pub fn arrived(&mut self, received: &[u8], at_us: i64) {
        let (Some(round), Some(index)) = (number(received, 0), number(received, 8)) else {
            self.damaged += 1;
            return;
        };
        if round != self.id && received == body(round, index, self.size) {
            self.stray += 1;
            return;
        }
        let place = usize::try_from(index).ok().and_then(|index| self.jobs.get_mut(index));
        let Some(job) = place.filter(|_| received == body(self.id, index, self.size)) else {
            self.damaged += 1;
            return;
        };
        job.arrivals += 1;
        job.early |= at_us < job.due_us;
        if job.arrivals == 1 {
            self.arrived += 1;
            self.times.add(at_us - job.due_us);
            self.first_us = Some(self.first_us.map_or(at_us, |first| first.min(at_us)));
            self.last_us = Some(self.last_us.map_or(at_us, |last| last.max(at_us)));
        }
    }

    /// The number of jobs that arrived at least once.
    pub fn count(&self) -> u64 {
        self.arrived
    }

    /// The time of the last first arrival, epoch µs.
    pub fn last_us(&self) -> Option<i64> {
        self.last_us
    }

    /// The time of the first arrival, epoch µs.
    pub fn first_us(&self) -> Option<i64> {
        self.first_us
    }

    /// The lateness of first arrivals.
    pub fn lateness(&self) -> Percentiles {
        self.times.percentiles()
    }

    /// The result of the jobs that are due by `until_ms` (epoch ms).
    pub fn result(&self, until_ms: i64) -> RoundResult {
        let of = || {
            self.jobs
                .iter()
                .filter(|job| job.due_us <= until_ms.saturating_mul(1000) || job.arrivals > 0)
        };
        let count = |test: fn(&Job) -> bool| of().filter(|job| test(job)).count() as u64;
        RoundResult {
            sent: of().count() as u64,
            arrived: count(|job| job.arrivals > 0),
            lost: count(|job| job.arrivals == 0),
            duplicates: of().map(|job| u64::from(job.arrivals.saturating_sub(1))).sum(),
            early: count(|job| job.early),
            damaged: self.damaged,
            stray: self.stray,
        }
    }
}

impl RoundResult {
    /// The problem of the round; `None` if every job arrived exactly once, on time and intact.
    pub fn wrong(&self) -> Option<String> {
        let faults = [
            (self.lost, "lost"),
            (self.duplicates, "duplicates"),
            (self.early, "early"),
            (self.damaged, "damaged"),
            (self.stray, "of another round"),
        ];
        let faults: Vec<String> = faults
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!faults.is_empty()).then(|| format!("of {} jobs: {}", self.sent, faults.join(", ")))
    }
}

sums! { RoundResult: sent arrived lost duplicates early damaged stray }

impl std::fmt::Display for RoundResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RoundResult { sent, arrived, lost, duplicates, early, damaged, stray } = self;
        write!(
            f,
            "{arrived} of {sent} arrived, {lost} lost, {duplicates} duplicates, {early} early, {damaged} damaged, {stray} of another round"
        )
    }
}

/// A request as producers send it. Dwell makes the id.
pub(super) fn request(body: Bytes, due_ms: i64) -> Message {
    Message::new(body)
        .with_header("delay-until", due_ms.to_string())
        .with_header("delay-target", JOB_TARGET)
}

/// Round, index, and noise that depends on both.
pub(super) fn body(round: u64, index: u64, size: usize) -> Bytes {
    let mut body = Vec::with_capacity(size + 8);
    body.extend(round.to_be_bytes());
    body.extend(index.to_be_bytes());
    let mut noise = (round ^ index.rotate_left(32)) | 1;
    while body.len() < size {
        // xorshift64
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        body.extend(noise.to_be_bytes());
    }
    body.truncate(size);
    Bytes::from(body)
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: i64 = 1_000_000;

    fn started(jobs: usize) -> (Round, Vec<Bytes>) {
        let mut round = Round::new(7, 40);
        let bodies = (0..jobs).map(|_| round.enter(DUE)).collect();
        (round, bodies)
    }

    #[test]
    fn a_round_without_faults_is_right() {
        let (mut round, bodies) = started(100);
        for (late, body) in (0..).zip(&bodies) {
            round.arrived(body, DUE * 1000 + late);
        }
        let result = round.result(DUE);
        assert_eq!((result.sent, result.arrived, result.wrong()), (100, 100, None));
        assert_eq!((round.first_us(), round.last_us()), (Some(DUE * 1000), Some(DUE * 1000 + 99)));
        assert!(bodies.iter().all(|body| body.len() == 40));
    }

    #[test]
    fn every_planted_fault_is_counted_and_named() {
        let (mut round, bodies) = started(10);
        for body in &bodies[2..] {
            round.arrived(body, DUE * 1000);
        }
        round.arrived(&bodies[1], DUE * 1000 - 1);
        round.arrived(&bodies[5], DUE * 1000 + 5);
        round.arrived(&bodies[5], DUE * 1000 + 6);
        let mut bent = bodies[0].to_vec();
        bent[39] ^= 1;
        round.arrived(&bent, DUE * 1000);
        round.arrived(&bodies[0][..39], DUE * 1000);
        round.arrived(b"short", DUE * 1000);
        round.arrived(&body(7, 10, 40), DUE * 1000);
        let result = round.result(DUE);
        assert_eq!(
            result,
            RoundResult {
                sent: 10,
                arrived: 9,
                lost: 1,
                duplicates: 2,
                early: 1,
                damaged: 4,
                stray: 0
            }
        );
        assert_eq!(result.wrong().unwrap(), "of 10 jobs: 1 lost, 2 duplicates, 1 early, 4 damaged");
    }

    #[test]
    fn an_early_copy_behind_a_good_one_is_early_too() {
        let (mut round, bodies) = started(1);
        round.arrived(&bodies[0], DUE * 1000);
        round.arrived(&bodies[0], DUE * 1000 - 1);
        assert_eq!(round.result(DUE).early, 1);
    }

    #[test]
    fn what_is_due_later_is_not_lost_yet_and_other_rounds_count_apart() {
        let (mut round, bodies) = started(1);
        let later = round.enter(DUE + 1);
        round.arrived(&bodies[0], DUE * 1000);
        round.arrived(&body(6, 0, 40), DUE * 1000);
        assert_eq!(
            (round.result(DUE).sent, round.result(DUE).wrong().unwrap().as_str()),
            (1, "of 1 jobs: 1 of another round")
        );
        round.arrived(&later, DUE * 1000);
        let result = round.result(DUE);
        assert_eq!(
            (result.sent, result.early),
            (2, 1),
            "what comes before its time is found though it is not waited for"
        );
    }
}
