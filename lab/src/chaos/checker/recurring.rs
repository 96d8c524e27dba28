//! Recurring schedules. An occurrence is a job like any other, and is judged as one. Of a schedule
//! each nominal time is made once or counted as missed, and nothing is made after its cancel, while
//! it is paused, or beyond its count.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use super::Case;
use super::timeline::{Asked, Came, Timeline};
use super::verdict::Wrong;
use crate::chaos::history::{Event, Job, Op, Recurring, Schedule, UNREADABLE};
use crate::checker::occurrences::{Claim, Flaw, Made, off, split};

/// Before a failover and after its end, the time in which an occurrence may be made that the promoted
/// master does not know, µs.
const MAX_FORGOTTEN_AGE_US: i64 = 2_000_000;
/// The verdicts on a cancel after which the schedule is over.
const ENDED: [&str; 2] = ["cancelled", "in_flight"];

/// The job of each occurrence that arrived, by id.
pub(super) fn occurrences(events: &[Event]) -> HashMap<String, Job> {
    let mut schedules: HashMap<&str, &Job> = HashMap::new();
    let mut occurrences = HashMap::new();
    for event in events {
        match &event.op {
            Op::Schedule(Schedule { id, job: Some(job), .. }) if job.recurring.is_some() => {
                schedules.insert(id, job);
            }
            Op::Deliver(what) | Op::Dead(what) => {
                let Some((schedule, due_ms)) = split(&what.id) else { continue };
                if let Some(job) = schedules.get(schedule) {
                    let job = Job { due_ms, recurring: None, ..Job::clone(job) };
                    occurrences.insert(what.id.clone(), job);
                }
            }
            _ => {}
        }
    }
    occurrences
}

/// Gives the occurrences their jobs: nobody requested them one by one.
pub(super) fn adopt<'a>(
    timelines: &mut BTreeMap<&'a str, Timeline<'a>>,
    occurrences: &'a HashMap<String, Job>,
) {
    for (id, timeline) in timelines {
        if let Some(job) = occurrences.get(*id) {
            (timeline.job, timeline.certain) = (Some(job), true);
            timeline.sent_us = job.due_ms * 1000;
        }
    }
}

/// The occurrences of a schedule that arrived.
#[derive(Debug, Default)]
pub(super) struct Occurrences {
    made: Made,
    /// When each arrived first, epoch µs, by nominal time, epoch ms. A clock of Redis that is ahead
    /// makes an occurrence before its time.
    first_us: BTreeMap<i64, i64>,
}

/// The occurrences of each schedule.
pub(super) fn made<'a>(
    timelines: &BTreeMap<&'a str, Timeline<'a>>,
) -> HashMap<&'a str, Occurrences> {
    let mut all: HashMap<&str, Occurrences> = HashMap::new();
    for (&id, timeline) in timelines {
        let Some((schedule, nominal_ms)) = split(id) else { continue };
        let of = all.entry(schedule).or_default();
        let numbers = timeline.deliveries.iter().map(|came| came.what.occurrence.unwrap_or(0));
        of.made.entry(nominal_ms).or_default().extend(numbers);
        let first_us = timeline.deliveries.iter().map(Came::taken_us).min();
        of.first_us.extend(first_us.map(|first_us| (nominal_ms, first_us)));
    }
    all
}

impl Case<'_, '_> {
    /// Checks a schedule. `claims`: what the schedules that are left say of themselves; `None` if
    /// nobody asked them.
    pub(super) fn schedule(
        &mut self,
        recurring: Recurring,
        occurrences: Option<&Occurrences>,
        claims: Option<&[Claim]>,
    ) {
        let Case { id, job, timeline, windows, .. } = *self;
        let (none, every_ms) = (Occurrences::default(), recurring.every_ms);
        let occurrences = occurrences.unwrap_or(&none);
        let made = &occurrences.made;
        self.verdict.counts.occurrences += made.len() as u64;
        self.returned();
        for nominal_ms in made.keys().copied() {
            let after_ms = nominal_ms - job.due_ms;
            if after_ms < 0 || after_ms % every_ms.max(1) != 0 {
                self.find(Wrong::Unexpected, format!("{nominal_ms} is no time of the schedule"));
            } else if let Some(why) =
                self.stopped(nominal_ms * 1000, occurrences.first_us.get(&nominal_ms).copied())
            {
                self.find(Wrong::FalseVerdict, format!("made at {nominal_ms}, although {why}"));
            }
        }
        self.unheard_cancel();
        let is_returned = timeline.replies.iter().any(|heard| heard.res == UNREADABLE);
        let Some(claims) = claims.filter(|_| !is_returned && !windows.may_repeat(timeline.sent_us))
        else {
            return;
        };
        let forgotten = self.forgotten(every_ms);
        match claims.iter().find(|claim| claim.id == id) {
            Some(claim) => self.claimed(claim, occurrences, forgotten),
            None => self.ended(recurring, made, forgotten),
        }
    }

    /// How many occurrences promoted masters may not know of: they make these again, or count them as
    /// missed.
    fn forgotten(&self, every_ms: i64) -> u64 {
        let Case { id, timeline, windows, .. } = *self;
        let times = windows.faults().filter(|fault| fault.rolls_back(id)).map(|fault| {
            let from_us = (fault.began_us - MAX_FORGOTTEN_AGE_US).max(timeline.sent_us);
            let span_us = fault.healed_us + MAX_FORGOTTEN_AGE_US - from_us;
            u64::try_from(span_us / (every_ms.max(1) * 1000) + 1).unwrap_or(0)
        });
        times.sum()
    }

    /// Why no occurrence of this time, which arrived then, may have been made, epoch µs.
    fn stopped(&self, nominal_us: i64, first_us: Option<i64>) -> Option<&'static str> {
        let Case { id, timeline, windows, .. } = *self;
        // A master that does not know yet of its successor goes on.
        let is_after = |at_us: i64| {
            first_us.is_none_or(|first_us| first_us > at_us)
                && nominal_us > at_us + windows.jump_us(at_us, nominal_us)
                && !windows.rolls_back(id, at_us, nominal_us)
                && !windows.may_repeat(timeline.sent_us)
        };
        let mut cancels = timeline.heard("cancel").filter(|heard| ENDED.contains(&heard.res));
        if cancels.next().is_some_and(|heard| is_after(heard.at_us)) {
            return Some("it was cancelled");
        }
        let paused_us = asked(timeline, "pause").and_then(|pause| pause.confirmed_us);
        let resumed_us = asked(timeline, "resume").map_or(i64::MAX, |resume| resume.at_us);
        let jump_us = windows.jump_us(nominal_us, resumed_us);
        let is_paused = paused_us.is_some_and(is_after) && nominal_us + jump_us < resumed_us;
        is_paused.then_some("it was paused")
    }

    fn unheard_cancel(&mut self) {
        let timeline = self.timeline;
        let Some(cancel) = asked(timeline, "cancel").filter(|cancel| cancel.by_message) else {
            return;
        };
        if cancel.confirmed_us.is_some() && timeline.answer("cancel").is_none() {
            let at_us = cancel.at_us;
            self.unanswered((at_us, at_us), format!("the cancel at {at_us} has no answer"));
        }
    }

    /// The schedule is left, and says how many times it made and missed.
    fn claimed(&mut self, claim: &Claim, occurrences: &Occurrences, forgotten: u64) {
        let made = &occurrences.made;
        self.verdict.counts.missed += claim.missed;
        if claim.start_ms != self.job.due_ms {
            self.find(Wrong::Misdated, format!("it starts at {}", claim.start_ms));
        }
        match claim.flaw(made, &self.left_out(claim, occurrences)) {
            Some((Flaw::Lost(_), what)) => self.find(Wrong::Lost, what),
            Some((Flaw::Twice(count), what)) if count > forgotten => {
                self.find(Wrong::Unexplained, what);
            }
            Some((Flaw::Numbers(off), what)) if off > forgotten => {
                self.find(Wrong::WrongAttempt, what);
            }
            _ => {}
        }
    }

    /// The number of the times, at least and at most, that the schedule need not decide: those
    /// before it was stored, and those while it was paused.
    fn left_out(&self, claim: &Claim, occurrences: &Occurrences) -> RangeInclusive<u64> {
        let Case { timeline, windows, .. } = *self;
        let Occurrences { made, first_us } = occurrences;
        let first_ms = made.keys().next().copied().unwrap_or(claim.next_ms);
        // By Redis's clock, which may have been ahead.
        let by_ms = |heard_us| (heard_us + windows.jump_us(heard_us, heard_us)) / 1000;
        let before_ms = timeline.heard_us("schedule").map_or(first_ms - 1, by_ms);
        let mut most = claim.times_within(claim.start_ms, before_ms);
        let Some(pause) = asked(timeline, "pause") else { return 0..=most };
        let resume = asked(timeline, "resume");
        let until_us = resume.and_then(|resume| resume.confirmed_us).unwrap_or(i64::MAX);
        let jump_us = windows.jump_us(pause.at_us, until_us);
        let [from_ms, to_ms] =
            [pause.at_us - jump_us, until_us.saturating_add(jump_us)].map(|us| us / 1000);
        most += claim.times_within(from_ms, to_ms);
        let least = pause.confirmed_us.map_or(0, |paused_us| {
            let until_us = resume.map_or(i64::MAX, |resume| resume.at_us);
            let (from_ms, to_ms) =
                ((paused_us + jump_us) / 1000 + 1, (until_us - jump_us) / 1000 - 1);
            // Made before the pause, by a clock that was ahead.
            let is_before = |(nominal_ms, first_us): (&i64, &i64)| {
                (from_ms..=to_ms).contains(nominal_ms) && *first_us <= paused_us
            };
            let before = first_us.iter().filter(|first| is_before(*first)).count();
            claim.times_within(from_ms, to_ms).saturating_sub(before as u64)
        });
        least..=most
    }

    /// The schedule is not left: it was cancelled, it has made its count, or it was never stored.
    fn ended(&mut self, recurring: Recurring, made: &Made, forgotten: u64) {
        let timeline = self.timeline;
        let count = made.len() as u64;
        let is_over = timeline.may("cancel", &ENDED) || recurring.count.is_some();
        if timeline.certain && !is_over {
            self.find(Wrong::Lost, "the schedule is gone");
        }
        if off(made) > forgotten {
            self.find(Wrong::WrongAttempt, format!("occurrences with the numbers {made:?}"));
        }
        let wanted = recurring.count.filter(|_| timeline.certain || count > 0);
        if let Some(wanted) = wanted.filter(|wanted| count < *wanted) {
            self.find(Wrong::Lost, format!("{count} of {wanted} occurrences"));
        } else if recurring.count.is_some_and(|most| count > most + forgotten) {
            self.find(Wrong::Unexplained, format!("{count} occurrences of {:?}", recurring.count));
        }
    }
}

/// The request for this action: a schedule gets one of each.
fn asked<'r, 'a>(timeline: &'r Timeline<'a>, action: &str) -> Option<&'r Asked<'a>> {
    timeline.asks.iter().find(|ask| ask.action == action)
}
