//! The verdict of the checker.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::chaos::history::{End, Fault, Tally};
use crate::sums::sums;
use crate::words::word;

/// The kinds of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wrong {
    /// A confirmed job that is neither delivered nor dead nor cancelled.
    Lost,
    /// An arrival before the due time.
    Early,
    /// An arrival or answer that was not requested.
    Unexpected,
    /// An arrival with another body or other headers.
    Damaged,
    /// An arrival with a due time that was not requested.
    Misdated,
    /// Two copies with one attempt, or falling attempts; or occurrences with wrong numbers.
    #[serde(alias = "misnumbered")]
    WrongAttempt,
    /// A copy that no fault explains, or an occurrence too much.
    Unexplained,
    /// A verdict that contradicts the arrivals.
    FalseVerdict,
    /// Two different verdicts on one request.
    Differing,
    /// A confirmed request without a verdict, although the verdict could be published.
    Unanswered,
    /// A dead job without a cause in the run: attempts were used up.
    #[serde(alias = "burned")]
    DeadTooEarly,
    /// A valid request that was returned, or a bad one with the wrong code.
    Refused,
    /// A job that arrived too late although no fault affected it.
    Late,
    /// More deliveries to a limited target than its rate allows.
    OverLimit,
    /// Copies that no instance counted as possible duplicates.
    Uncounted,
    /// Jobs left in Redis.
    #[serde(alias = "left")]
    NotEmpty,
    /// `fsck` found damage.
    Damage,
    /// The campaign itself could not go on.
    Broken,
}

/// Totals of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Confirmed jobs.
    pub taken: u64,
    /// Jobs whose confirm was lost: they may arrive.
    pub uncertain: u64,
    /// Jobs that arrived at least once.
    pub delivered: u64,
    /// Jobs that arrived although their confirm was lost.
    pub recovered: u64,
    /// Jobs in the dead letters.
    pub dead: u64,
    /// Returned bad requests.
    pub rejected: u64,
    /// Requested cancels, reschedules and fires.
    pub asked: u64,
    /// Of those, answered.
    pub answered: u64,
    /// Confirmed requests whose answer could not be published.
    pub untold: u64,
    /// Jobs that their consumers confirm, and that arrived.
    pub held: u64,
    /// Of those, finished by their consumers.
    pub finished: u64,
    /// Copies after the first of a job, each explained by a fault.
    pub duplicates: u64,
    /// Jobs that ran again because their request was redelivered without the mark: on RabbitMQ,
    /// around a fault.
    pub redelivered: u64,
    /// Duplicates with the attempt number of another copy, which the client library repeated: on
    /// Kafka, around a fault of the broker.
    pub sent_again: u64,
    /// Jobs that expired.
    pub expired: u64,
    /// Jobs that arrived at the limited target.
    pub limited: u64,
    /// Bursts of requests, each for one job.
    pub bursts: u64,
    /// Occurrences of recurring schedules that arrived.
    pub occurrences: u64,
    /// Nominal times that the schedules that are left count as missed.
    pub missed: u64,
}

sums! { Counts:
    taken uncertain delivered recovered dead rejected asked answered untold held finished duplicates
    redelivered sent_again expired limited bursts occurrences missed
}

/// The states of leases that faults met, and what became of leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStates {
    /// Faults during which jobs were claimed.
    pub met_claimed: u64,
    /// Faults during which some jobs of a lease were settled and others were not.
    pub met_half_settled: u64,
    /// Faults during which jobs were held for their consumers.
    pub met_held: u64,
    /// Jobs that another instance took over from an owner whose lease had ended.
    pub rescued: u64,
    /// Claims without an answer that their owner gave back.
    pub reclaimed: u64,
    /// Jobs whose lease had ended before their owner settled them.
    pub lost: u64,
}

sums! { LeaseStates: met_claimed met_half_settled met_held rescued reclaimed lost }

impl fmt::Display for LeaseStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseStates { met_claimed, met_half_settled, met_held, rescued, reclaimed, lost } =
            self;
        write!(
            f,
            "faults met claimed jobs {met_claimed} times, half-settled leases {met_half_settled} times, held jobs {met_held} times; \
             {rescued} jobs rescued, {reclaimed} claims given back, {lost} jobs whose lease was lost"
        )
    }
}

/// A fault and its impact.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FaultImpact {
    /// Its name.
    pub kind: String,
    /// The start, epoch µs.
    pub began_us: i64,
    /// The end, epoch µs.
    pub healed_us: i64,
    /// The highest number of claimed jobs meanwhile.
    pub in_flight: u64,
    /// The copies that the fault explains.
    pub duplicates: u64,
    /// Jobs that fell due during the fault and had not arrived at the heal.
    pub overdue: u64,
    /// The time from the heal, or from the first due job after it, until an arrival, µs; `None`
    /// without an arrival.
    pub first_us: Option<i64>,
    /// The time from the heal until the last overdue job arrived, µs; `None` without overdue jobs.
    pub last_us: Option<i64>,
    /// The highest lateness of a job that fell due during the fault, µs.
    pub lateness_us: i64,
    /// The same for jobs that the fault does not affect; `None` if it affects all.
    pub beside_us: Option<i64>,
    /// The target and the method.
    pub detail: String,
}

impl From<&Fault> for FaultImpact {
    /// A fault whose impact is not known yet.
    fn from(fault: &Fault) -> FaultImpact {
        FaultImpact {
            kind: fault.kind.to_string(),
            began_us: fault.began_us,
            healed_us: fault.healed_us,
            in_flight: fault.in_flight,
            detail: fault.detail.clone(),
            ..FaultImpact::default()
        }
    }
}

/// The totals of a queue's campaign.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Hand-outs that a consumer saw.
    pub hand_outs: u64,
    /// Attempts that no consumer saw: the answer to a pop was lost.
    pub unseen: u64,
    /// The most attempts that may be unseen, by the pops without an answer.
    pub unseen_at_most: u64,
    /// Hand-outs that a promoted master forgot, so that their attempts came again.
    pub forgotten: u64,
    /// The counts of events at consumers.
    pub consumers: Tally,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// The totals.
    pub counts: Counts,
    /// The states of leases.
    pub leases: LeaseStates,
    /// The violations, with details.
    pub findings: BTreeMap<Wrong, Vec<String>>,
    /// The faults in their order.
    pub impacts: Vec<FaultImpact>,
    /// The counts of a queue's campaign.
    pub queue: Option<QueueCounts>,
}

/// The most violations of each kind that are shown to people.
const MAX_REPORTED_VIOLATIONS: usize = 8;

impl Verdict {
    /// Whether no promise was broken.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Adds a violation.
    pub(super) fn find(&mut self, wrong: Wrong, what: impl Into<String>) {
        self.findings.entry(wrong).or_default().push(what.into());
    }

    /// The store is empty at the end.
    pub(super) fn end(&mut self, end: Option<&End>) {
        let Some(end) = end else {
            self.find(Wrong::Broken, "the history has no end");
            return;
        };
        if let Some(left @ 1..) = end.unacknowledged {
            self.find(Wrong::NotEmpty, format!("the ingest has not acknowledged {left} requests"));
        }
        if end.scheduled + end.reserved > 0 {
            let why = format!("{} jobs wait and {} are claimed", end.scheduled, end.reserved);
            self.find(Wrong::NotEmpty, why);
        }
        for damage in &end.damage {
            self.find(Wrong::Damage, damage);
        }
        for broken in end.broken.iter().chain(&end.exits) {
            self.find(Wrong::Broken, broken);
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { taken, uncertain, recovered, delivered, dead, rejected, .. } = self;
        let Counts { answered, asked, untold, duplicates, .. } = self;
        let Counts { sent_again, redelivered, finished, held, .. } = self;
        let Counts { expired, limited, bursts, occurrences, missed, .. } = self;
        write!(
            f,
            "{taken} jobs confirmed, {uncertain} uncertain ({recovered} of them arrived), {delivered} delivered, {dead} dead, {rejected} rejected, \
             {answered} of {asked} answers ({untold} could not be published), {duplicates} duplicates"
        )?;
        if *sent_again > 0 {
            write!(f, " ({sent_again} of them with the same attempt)")?;
        }
        if *redelivered > 0 {
            write!(f, ", {redelivered} run again after a redelivered request")?;
        }
        if *held > 0 {
            write!(f, ", {finished} of {held} finished by their consumers")?;
        }
        if *occurrences > 0 {
            write!(
                f,
                ", {occurrences} occurrences of schedules ({missed} missed), {bursts} bursts, {limited} at a limited target, {expired} expired"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sound = if self.is_sound() { "sound" } else { "NOT SOUND" };
        write!(f, "{sound}: {}", self.counts)?;
        self.queue.map_or(Ok(()), |queue| write!(f, "\n  {queue:?}"))?;
        write_findings(f, &self.findings)
    }
}

/// Writes the violations, the first of each kind.
pub(crate) fn write_findings(
    f: &mut fmt::Formatter<'_>,
    findings: &BTreeMap<Wrong, Vec<String>>,
) -> fmt::Result {
    for (wrong, whats) in findings {
        write!(f, "\n  {}: {}", word(wrong), whats.len())?;
        for what in whats.iter().take(MAX_REPORTED_VIOLATIONS) {
            write!(f, "\n    {what}")?;
        }
        if whats.len() > MAX_REPORTED_VIOLATIONS {
            write!(f, "\n    and {} more", whats.len() - MAX_REPORTED_VIOLATIONS)?;
        }
    }
    Ok(())
}
