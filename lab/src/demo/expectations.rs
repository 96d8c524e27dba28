//! The expected and the actual fate of every job of the demo. Pure.
//!
//! - [`messages`]: what a broker's message says of a job.

pub mod messages;

use serde::Serialize;

use super::plan::{Fate, Planned};
use crate::bench::percentiles::{Latencies, Percentiles};

/// A job at its target.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Its id.
    pub id: &'a str,
    /// The target at which the job arrived.
    pub target: &'a str,
    /// Its body.
    pub body: &'a [u8],
    /// Its attempt, from 1.
    pub attempt: u32,
    /// Its due time, epoch ms.
    pub due_ms: i64,
}

/// The expectations of the demo.
#[derive(Debug)]
pub struct Expectations {
    entries: Vec<Entry>,
    times: Latencies,
    /// Unexpected events.
    odd: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    planned: Planned,
    /// The earliest allowed arrival, epoch ms.
    due_ms: i64,
    arrivals: u32,
    attempt: u32,
    early: bool,
    failures: u16,
    /// The reason of the dead letter, the code of the rejection, or the verdict.
    word: Option<String>,
}

/// The result of the demo.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Requests for a job.
    pub sent: usize,
    /// Jobs that arrived at their target.
    pub arrived: usize,
    /// Jobs that arrived after a failed attempt.
    pub retried: usize,
    /// Jobs that became dead letters.
    pub dead: usize,
    /// Jobs that were cancelled.
    pub cancelled: usize,
    /// Rejected requests.
    pub rejected: usize,
    /// Jobs without any result.
    pub lost: usize,
    /// Arrivals beyond the first of a job.
    pub duplicates: u32,
    /// Jobs that arrived before their due time.
    pub early: usize,
    /// Receipt minus due time, of first attempts.
    pub lateness: Percentiles,
    /// Deviations from the expectations, each a sentence.
    pub wrong: Vec<String>,
}

impl Expectations {
    /// The requests of a plan, sent at this time (epoch ms) or later.
    pub fn new(plan: Vec<Planned>, sent_ms: i64) -> Self {
        let entry = |planned: Planned| Entry {
            due_ms: sent_ms + i64::try_from(planned.delay_ms).unwrap_or(i64::MAX / 2),
            planned,
            arrivals: 0,
            attempt: 0,
            early: false,
            failures: 0,
            word: None,
        };
        Expectations {
            entries: plan.into_iter().map(entry).collect(),
            times: Latencies::default(),
            odd: Vec::new(),
        }
    }

    /// Records a job at its target, with its time of receipt (epoch µs). Returns a line for the
    /// screen.
    pub fn arrived(&mut self, arrival: &Arrival<'_>, at_us: i64) -> String {
        let Arrival { id, target, body, attempt, due_ms } = *arrival;
        let Some(entry) = entry(&mut self.entries, id) else {
            self.odd.push(format!("a message with the unknown id {id} arrived"));
            return line("odd", id, "nobody sent this");
        };
        if body != entry.planned.body() {
            self.odd.push(format!("{id} arrived with another body"));
        }
        if target != entry.planned.target {
            self.odd.push(format!("{id} arrived at {target}, not at {}", entry.planned.target));
        }
        entry.arrivals += 1;
        entry.attempt = attempt;
        // Neither before the requested delay, nor before the due time that the message names.
        entry.early |= at_us < due_ms * 1000 || at_us < entry.due_ms * 1000;
        let late_us = at_us - due_ms * 1000;
        let asked = span(i64::try_from(entry.planned.delay_ms * 1000).unwrap_or(i64::MAX));
        let mut how = format!("asked {asked}, {} late", span(late_us));
        if attempt == 1 {
            self.times.add(late_us);
        } else {
            how += &format!(", with attempt {attempt}");
        }
        line("arrived", id, &how)
    }

    /// Records a dead job.
    pub fn died(&mut self, id: &str, attempt: &str, error: &str, reason: &str) -> String {
        self.word(id, reason);
        line("dead", id, &format!("attempt {attempt}: {error}; {reason}"))
    }

    /// Records a rejected request.
    pub fn rejected(&mut self, id: &str, code: &str, detail: &str) -> String {
        self.word(id, code);
        line("rejected", id, &format!("{code}: {detail}"))
    }

    /// Records a verdict.
    pub fn verdict(&mut self, id: &str, verdict: &str) -> String {
        self.word(id, verdict);
        line("verdict", id, verdict)
    }

    /// Records a deviation that no job names.
    pub fn odd(&mut self, what: String) {
        self.odd.push(what);
    }

    fn word(&mut self, id: &str, word: &str) {
        match entry(&mut self.entries, id).map(|entry| &mut entry.word) {
            Some(Some(said)) => self.odd.push(format!("{id}: {word}, after {said}")),
            Some(said) => *said = Some(word.to_owned()),
            None => self.odd.push(format!("{word} for the unknown id {id}")),
        }
    }

    /// Records the failed attempts of a job. Returns a line for the screen if the number is new.
    pub fn failed(
        &mut self,
        id: &str,
        failures: u16,
        error: &str,
        next_in_ms: u64,
    ) -> Option<String> {
        let entry = entry(&mut self.entries, id).filter(|entry| entry.failures < failures)?;
        entry.failures = failures;
        let next = span(i64::try_from(next_in_ms * 1000).unwrap_or(0));
        Some(line("failed", id, &format!("attempt {failures}: {error}; again in {next}")))
    }

    /// The number of failed attempts of this job.
    pub fn failures(&self, id: &str) -> u16 {
        self.entries.iter().find(|entry| entry.planned.id == id).map_or(0, |entry| entry.failures)
    }

    /// The number of jobs whose fate is known.
    pub fn fulfilled(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_fulfilled()).count()
    }

    /// The number of sent requests.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no request was sent.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The result.
    pub fn summary(&self) -> Summary {
        let count =
            |test: &dyn Fn(&Entry) -> bool| self.entries.iter().filter(|entry| test(entry)).count();
        let fulfilled = |fate: fn(&Fate) -> bool| {
            count(&|entry| fate(&entry.planned.fate) && entry.is_fulfilled())
        };
        let mut wrong: Vec<String> = self.entries.iter().filter_map(Entry::wrong).collect();
        wrong.extend(self.odd.iter().cloned());
        Summary {
            sent: self.entries.len(),
            arrived: count(&|entry| entry.arrivals > 0),
            retried: count(&|entry| entry.arrivals > 0 && entry.attempt > 1),
            dead: fulfilled(|fate| matches!(fate, Fate::Dies(_))),
            cancelled: fulfilled(|fate| matches!(fate, Fate::Cancelled)),
            rejected: fulfilled(|fate| matches!(fate, Fate::Rejected(_))),
            lost: count(&|entry| entry.arrivals == 0 && entry.word.is_none()),
            duplicates: self.entries.iter().map(|entry| entry.arrivals.saturating_sub(1)).sum(),
            early: count(&|entry| entry.early),
            lateness: self.times.percentiles(),
            wrong,
        }
    }
}

impl Entry {
    fn is_fulfilled(&self) -> bool {
        match self.planned.fate {
            Fate::Arrives(_) => self.arrivals > 0,
            Fate::Dies(_) | Fate::Cancelled | Fate::Rejected(_) => self.word.is_some(),
        }
    }

    fn wrong(&self) -> Option<String> {
        let id = &self.planned.id;
        let said = self.word.as_deref();
        let (arrivals, expected) = match self.planned.fate {
            Fate::Arrives(_) => (1, None),
            Fate::Dies(reason) => (0, Some(reason.as_str())),
            Fate::Cancelled => (0, Some("cancelled")),
            Fate::Rejected(code) => (0, Some(code.as_str())),
        };
        if self.early {
            return Some(format!("{id} arrived before it was due"));
        }
        if self.arrivals == 0 && said.is_none() {
            return Some(format!("{id} is lost"));
        }
        if self.arrivals != arrivals {
            return Some(format!("{id} arrived {} times, not {arrivals}", self.arrivals));
        }
        if said != expected {
            let (said, expected) =
                (said.unwrap_or("nothing was said"), expected.unwrap_or("nothing"));
            return Some(format!("{id}: {said}, not {expected}"));
        }
        match self.planned.fate {
            Fate::Arrives(attempt) if attempt != self.attempt => {
                Some(format!("{id} arrived with attempt {}, not {attempt}", self.attempt))
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Summary { sent, arrived, retried, dead, cancelled, rejected, .. } = self;
        let Summary { lost, duplicates, early, lateness, wrong, .. } = self;
        writeln!(
            f,
            "sent {sent}: {arrived} arrived ({retried} of them after failed attempts), {dead} dead, {cancelled} cancelled, {rejected} rejected"
        )?;
        writeln!(f, "lost {lost}, early {early}, duplicates {duplicates}")?;
        let Percentiles { p50_ms, p99_ms, max_ms, .. } = lateness;
        write!(
            f,
            "first attempts were late by {p50_ms:.1} ms (p50), {p99_ms:.1} ms (p99), {max_ms:.1} ms (max)"
        )?;
        wrong.iter().try_for_each(|wrong| write!(f, "\nwrong: {wrong}"))
    }
}

fn entry<'a>(entries: &'a mut [Entry], id: &str) -> Option<&'a mut Entry> {
    entries.iter_mut().find(|entry| entry.planned.id == id)
}

/// A line for the screen.
pub(super) fn line(what: &str, id: &str, how: &str) -> String {
    format!("{what:<9} {id:<10} {how}")
}

/// A duration for people, from µs.
pub(super) fn span(us: i64) -> String {
    let ms = us as f64 / 1000.0;
    match ms.abs() {
        ms_abs if ms_abs < 100.0 => format!("{ms:.1} ms"),
        _ => format!("{:.2} s", ms / 1000.0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
