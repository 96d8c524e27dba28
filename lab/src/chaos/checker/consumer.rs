//! Jobs that their consumers confirm: an attempt is repeated until the consumer has said `finish`,
//! and not after that; without a word it is repeated after the TTR and the next wait, and not
//! before.

use super::Case;
use super::timeline::{Came, Heard, Timeline};
use super::verdict::Wrong;
use super::windows::FaultWindows;
use crate::chaos::history::{Consumer, FINISHED, Job, UNREADABLE};

/// The tolerance between the clocks and of rounding, µs. RabbitMQ tells no time of receipt: there a
/// message counts from its reading.
const ROUNDING_TOLERANCE_US: i64 = 5_000;
const READING_TOLERANCE_US: i64 = 500_000;
/// The longest delay until the end of a TTR is noticed, µs.
const MAX_NOTICE_DELAY_US: i64 = 2_000_000;

impl Case<'_, '_> {
    /// Checks the fate of a job that its consumer confirms.
    pub(super) fn consumer(&mut self, consumer: &Consumer) {
        let Case { timeline, lives, .. } = *self;
        let came = self.came();
        let is_over = timeline.heard("finish").any(|heard| FINISHED.contains(&heard.res));
        self.verdict.counts.held += u64::from(came);
        self.verdict.counts.finished += u64::from(is_over);
        // A word may have counted although its answer is missing.
        let may_be_over =
            is_over || timeline.words("finish").count() > timeline.heard("finish").count();
        if timeline.certain && came && !self.died() && !may_be_over {
            self.find(Wrong::Lost, "neither finished, nor repeated to its end, nor dead");
        }
        if let Some(finished_us) = finished_us(timeline)
            && self.continues(finished_us)
        {
            let why = format!("it was finished at {finished_us}, and came again");
            self.find(Wrong::FalseVerdict, why);
        }
        for heard @ Heard { at_us, action, res } in &timeline.replies {
            if matches!(*action, "finish" | "fail") && self.is_false(heard) {
                let words = &timeline.words;
                let why = format!("{action} is `{res}` at {at_us}, words {words:?}");
                self.find(Wrong::FalseVerdict, why);
            }
        }
        // The job is removed once.
        let over_http = timeline.words.iter().filter(|word| word.verdict == Some("finished"));
        if over_http.count() > 1 && lives.begun_again() == 0 {
            let words = &timeline.words;
            self.find(Wrong::FalseVerdict, format!("it was finished twice: {words:?}"));
        }
        self.unheard();
        self.repeats(consumer);
    }

    /// Whether, after a `finish` that counted, more than the attempt in flight arrives.
    fn continues(&self, finished_us: i64) -> bool {
        let Case { timeline, lives, windows, .. } = *self;
        let by_us = windows.lands_by_us(finished_us);
        self.comes_back(lives.each().next().unwrap_or_default(), finished_us)
            || lives.begun_again() == 0
                && timeline.deaths.iter().any(|came| came.taken_us() > by_us)
    }

    fn is_false(&self, heard: &Heard<'_>) -> bool {
        let Case { id, timeline, windows, .. } = *self;
        let (at_us, sent_us) = (heard.at_us, timeline.sent_us);
        let said = |action: &str| timeline.words(action).filter(|word| word.at_us <= at_us).count();
        if said(heard.action) == 0 {
            return true;
        }
        // RabbitMQ may hand out a word again without saying so.
        let twice = || {
            said("finish") > 1
                || (windows.head.broker == "amqp"
                    && windows.between(|effects| effects.requeues, sent_us, at_us))
        };
        match (heard.action, heard.res) {
            ("finish", "finished") | ("fail", "failed" | "stale" | "waiting") | (_, UNREADABLE) => {
                false
            }
            ("finish", "fired") => !twice(),
            ("fail", "fired") => said("finish") == 0,
            // A job that was dying may have been finished before its dead letter.
            ("fail", "dead") => {
                !self.died() && said("finish") == 0 && finished_us(timeline).is_none()
            }
            // A promoted master may not know of the attempt.
            (_, "not_found") => !windows.rolls_back(id, sent_us, at_us),
            _ => true,
        }
    }

    /// Each word that the broker confirmed has an answer, if the answer could be published.
    fn unheard(&mut self) {
        let Case { timeline, .. } = *self;
        for action in ["finish", "fail"] {
            let confirmed = timeline
                .words(action)
                .filter(|word| word.by_message && word.confirmed_us.is_some());
            let sent_us: Vec<i64> = confirmed.map(|word| word.at_us).collect();
            let over_http = timeline.words(action).filter(|word| word.verdict.is_some()).count();
            let answers = timeline.heard(action).count() - over_http;
            let (Some(&first_us), Some(&last_us)) = (sent_us.iter().min(), sent_us.iter().max())
            else {
                continue;
            };
            if answers < sent_us.len() {
                let count = sent_us.len();
                self.unanswered(
                    (first_us, last_us),
                    format!("{count} confirmed `{action}` from {first_us} on, {answers} answers"),
                );
            }
        }
    }

    /// Without a word in time the next attempt follows, or the dead letter.
    fn repeats(&mut self, consumer: &Consumer) {
        let Case { job, timeline, windows, .. } = *self;
        let longest_us =
            us(consumer.ttr_ms) + MAX_NOTICE_DELAY_US + waits_us(job).max().unwrap_or(0);
        let mut came: Vec<&Came<'_>> = timeline.out().collect();
        came.sort_by_key(|came| came.taken_us());
        for pair in came.windows(2) {
            let (due_us, at_us) = (pair[0].taken_us() + longest_us, pair[1].taken_us());
            let late_ms = windows.unbroken_us(due_us, at_us) / 1000;
            if late_ms > windows.head.late_ms {
                let attempt = pair[0].what.attempt;
                let why =
                    format!("after attempt {attempt:?} {late_ms} ms late without an active fault");
                self.find(Wrong::Late, why);
            }
        }
    }
}

/// Whether the later message is the next attempt, or the dead letter, of a job whose consumer let
/// the time pass or failed. Anything earlier is a copy, which a fault must explain.
pub(super) fn is_repeat(
    windows: &FaultWindows<'_>,
    timeline: &Timeline<'_>,
    one: &Came<'_>,
    other: &Came<'_>,
) -> bool {
    let Some(job) = timeline.job else { return false };
    let Some(consumer) = &job.consumer else { return false };
    let is_letter = !other.what.reason.is_empty();
    if one.what.attempt >= other.what.attempt && !is_letter {
        return false;
    }
    let (one_us, other_us) = (one.taken_us(), other.taken_us());
    let wait_us = waits_us(job).min().filter(|_| !is_letter).unwrap_or(0);
    let failed_us = timeline.words("fail").map(|word| word.at_us).filter(|at_us| *at_us >= one_us);
    let ended_us = failed_us.fold(one_us + us(consumer.ttr_ms), i64::min);
    let tolerance_us =
        if windows.head.broker == "amqp" { READING_TOLERANCE_US } else { ROUNDING_TOLERANCE_US };
    other_us + tolerance_us + windows.jump_us(one_us, other_us) >= ended_us + wait_us
}

/// The waits between the attempts of a job, µs.
pub(super) fn waits_us(job: &Job) -> impl Iterator<Item = i64> {
    job.retry_ms.iter().flatten().map(|ms| us(*ms))
}

fn us(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX / 2000) * 1000
}

/// When the first `finished` was heard, epoch µs.
fn finished_us(timeline: &Timeline<'_>) -> Option<i64> {
    timeline.heard("finish").find(|heard| heard.res == "finished").map(|heard| heard.at_us)
}
