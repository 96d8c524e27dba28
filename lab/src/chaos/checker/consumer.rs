//! Jobs that their consumers confirm: an attempt is repeated until the consumer has said `finish`,
//! and not after that; without a word it is repeated after the TTR and the next wait, and not
//! before.

use super::Checker;
use super::redelivery::Redelivery;
use super::timeline::{Came, Timeline};
use super::verdict::Wrong;
use crate::chaos::history::{Consumer, Job, UNREADABLE};

/// The tolerance between the clocks and of rounding, µs. RabbitMQ tells no time of receipt: there a
/// message counts from its reading.
const ROUNDING_TOLERANCE_US: i64 = 5_000;
const READING_TOLERANCE_US: i64 = 500_000;
/// The longest delay until the end of a TTR is noticed, µs.
const MAX_NOTICE_DELAY_US: i64 = 2_000_000;

impl Checker<'_> {
    /// Checks the fate of a job that its consumer confirms.
    pub(super) fn consumer(
        &mut self,
        id: &str,
        (job, consumer): (&Job, &Consumer),
        timeline: &Timeline<'_>,
        lives: &Redelivery<'_>,
        kept: bool,
    ) {
        let came = !timeline.deliveries.is_empty();
        let died = kept || !timeline.deaths.is_empty();
        let finished_us = heard_us(timeline, "finish", &["finished"]);
        let is_over = heard_us(timeline, "finish", &["finished", "fired"]).is_some();
        self.verdict.counts.held += u64::from(came);
        self.verdict.counts.finished += u64::from(is_over);
        if timeline.certain && came && !died && !is_over && !may_have(timeline, "finish") {
            self.verdict.find(Wrong::Lost, format!("{id}: nobody finished it, and it was neither repeated to its end nor is it dead"));
        }
        if let Some(finished_us) = finished_us {
            self.after_finish(id, timeline, lives, finished_us);
        }
        for (at_us, action, res) in
            timeline.replies.iter().filter(|(_, action, _)| matches!(*action, "finish" | "fail"))
        {
            if self.is_false(id, timeline, died, (*at_us, action, res)) {
                self.verdict.find(
                    Wrong::FalseVerdict,
                    format!("{id}: {action} is `{res}` at {at_us}, words {:?}", timeline.words),
                );
            }
        }
        // The job is removed once.
        let over_http = timeline
            .words
            .iter()
            .filter(|said| said.verdict.is_some_and(|(_, res)| res == "finished"));
        if over_http.count() > 1 && lives.begun_again() == 0 {
            self.verdict.find(
                Wrong::FalseVerdict,
                format!("{id}: it was finished twice: {:?}", timeline.words),
            );
        }
        self.unheard(id, timeline);
        self.repeats(id, job, consumer, timeline);
    }

    /// After a `finish` that counted, at most the attempt in flight arrives.
    fn after_finish(
        &mut self,
        id: &str,
        timeline: &Timeline<'_>,
        lives: &Redelivery<'_>,
        finished_us: i64,
    ) {
        let by_us = self.windows.lands_by_us(finished_us);
        let first = lives.each().next().unwrap_or_default();
        let after: Vec<i64> =
            first.iter().map(Came::taken_us).filter(|taken_us| *taken_us > finished_us).collect();
        let one = !self.windows.between(|effects| effects.holds_back, timeline.sent_us, by_us);
        let comes_back = after.iter().any(|taken_us| *taken_us > by_us) || (one && after.len() > 1);
        let dies =
            lives.begun_again() == 0 && timeline.deaths.iter().any(|came| came.taken_us() > by_us);
        if comes_back || dies {
            self.verdict.find(
                Wrong::FalseVerdict,
                format!("{id}: it was finished at {finished_us}, and came again at {after:?}"),
            );
        }
    }

    fn is_false(
        &self,
        id: &str,
        timeline: &Timeline<'_>,
        died: bool,
        (at_us, action, res): (i64, &str, &str),
    ) -> bool {
        let said = |action: &str| {
            timeline
                .words
                .iter()
                .filter(|said| said.action == action && said.at_us <= at_us)
                .count()
        };
        if said(action) == 0 {
            return true;
        }
        let sent_us = timeline.sent_us;
        // RabbitMQ may hand out a word again without saying so.
        let twice = || {
            said("finish") > 1
                || (self.history.head.broker == "amqp"
                    && self.windows.between(|effects| effects.requeues, sent_us, at_us))
        };
        match (action, res) {
            ("finish", "finished") | ("fail", "failed" | "stale" | "waiting") | (_, UNREADABLE) => {
                false
            }
            ("finish", "fired") => !twice(),
            ("fail", "fired") => said("finish") == 0,
            // A job that was dying may have been finished before its dead letter.
            ("fail", "dead") => {
                !died
                    && said("finish") == 0
                    && heard_us(timeline, "finish", &["finished"]).is_none()
            }
            // A promoted master may not know of the attempt.
            (_, "not_found") => !self.windows.rolls_back(id, sent_us, at_us),
            _ => true,
        }
    }

    /// Each word that the broker confirmed has an answer, if the answer could be published.
    fn unheard(&mut self, id: &str, timeline: &Timeline<'_>) {
        for action in ["finish", "fail"] {
            let confirmed = || {
                timeline
                    .words
                    .iter()
                    .filter(|said| said.action == action && said.by_message && said.confirmed)
            };
            let over_http = timeline
                .words
                .iter()
                .filter(|said| said.action == action && said.verdict.is_some())
                .count();
            let answers =
                timeline.replies.iter().filter(|(_, of, _)| *of == action).count() - over_http;
            let Some(first_us) =
                confirmed().map(|said| said.at_us).min().filter(|_| answers < confirmed().count())
            else {
                continue;
            };
            let last_us = confirmed().map(|said| said.at_us).max().unwrap_or(first_us)
                + self.history.head.lease_ms * 1000;
            if self.windows.between(|effects| effects.fails_publish, first_us, last_us) {
                self.verdict.counts.untold += 1;
            } else {
                let count = confirmed().count();
                self.verdict.find(
                    Wrong::Unanswered,
                    format!(
                        "{id}: {count} confirmed `{action}` from {first_us} on, {answers} answers"
                    ),
                );
            }
        }
    }

    /// Without a word in time the next attempt follows, or the dead letter.
    fn repeats(&mut self, id: &str, job: &Job, consumer: &Consumer, timeline: &Timeline<'_>) {
        let waits_us = waits_us(job).max().unwrap_or(0);
        let mut came: Vec<&Came<'_>> = timeline.deliveries.iter().chain(&timeline.deaths).collect();
        came.sort_by_key(|came| came.taken_us());
        for pair in came.windows(2) {
            let due_us = pair[0].taken_us() + ttr_us(consumer) + MAX_NOTICE_DELAY_US + waits_us;
            let late_ms = self.windows.unbroken_us(due_us, pair[1].taken_us()) / 1000;
            if late_ms > self.history.head.late_ms {
                let attempt = pair[0].what.attempt;
                self.verdict.find(
                    Wrong::Late,
                    format!(
                        "{id}: after attempt {attempt:?} {late_ms} ms late without an active fault"
                    ),
                );
            }
        }
    }

    /// Whether the later message is the next attempt, or the dead letter, of a job whose consumer
    /// let the time pass or failed. Anything earlier is a copy, which a fault must explain.
    pub(super) fn is_repeat(
        &self,
        timeline: &Timeline<'_>,
        one: &Came<'_>,
        other: &Came<'_>,
    ) -> bool {
        let Some((job, consumer)) =
            timeline.job.and_then(|job| Some((job, job.consumer.as_ref()?)))
        else {
            return false;
        };
        if one.what.attempt >= other.what.attempt && other.what.reason.is_empty() {
            return false;
        }
        let (one_us, other_us) = (one.taken_us(), other.taken_us());
        let wait_us =
            if other.what.reason.is_empty() { waits_us(job).min().unwrap_or(0) } else { 0 };
        let failed =
            timeline.words.iter().filter(|said| said.action == "fail" && said.at_us >= one_us);
        let ended_us = failed
            .map(|said| said.at_us)
            .chain([one_us + ttr_us(consumer)])
            .min()
            .unwrap_or(one_us);
        let tolerance_us = if self.history.head.broker == "amqp" {
            READING_TOLERANCE_US
        } else {
            ROUNDING_TOLERANCE_US
        };
        other_us + tolerance_us + self.windows.jump_us(one_us, other_us) >= ended_us + wait_us
    }

    /// Checks a death of a job that its consumer confirms: at the end of its array, by a word or
    /// without one.
    pub(super) fn consumer_death(
        &mut self,
        id: &str,
        job: &Job,
        timeline: &Timeline<'_>,
        (at_us, reason, attempt): (i64, &str, Option<u32>),
    ) {
        let spent = job
            .retry_ms
            .as_ref()
            .is_some_and(|waits| attempt.is_some_and(|attempt| attempt as usize > waits.len()));
        let may = match reason {
            "failed" => {
                timeline.words.iter().any(|said| said.action == "fail" && said.at_us <= at_us)
            }
            "retries_exhausted" => true,
            _ => false,
        };
        if !may || !spent {
            let waits = &job.retry_ms;
            self.verdict.find(
                Wrong::DeadTooEarly,
                format!("{id}: `{reason}` at attempt {attempt:?} with retry {waits:?}"),
            );
        }
    }
}

fn ttr_us(consumer: &Consumer) -> i64 {
    i64::try_from(consumer.ttr_ms).unwrap_or(i64::MAX / 2000) * 1000
}

fn waits_us(job: &Job) -> impl Iterator<Item = i64> {
    job.retry_ms.iter().flatten().map(|ms| i64::try_from(*ms).unwrap_or(i64::MAX / 2000) * 1000)
}

/// When one of these verdicts on the action was heard first, epoch µs.
fn heard_us(timeline: &Timeline<'_>, action: &str, verdicts: &[&str]) -> Option<i64> {
    timeline
        .replies
        .iter()
        .find(|(_, of, res)| *of == action && verdicts.contains(res))
        .map(|(at_us, ..)| *at_us)
}

/// Whether a word of this action may have counted although its answer is missing.
fn may_have(timeline: &Timeline<'_>, action: &str) -> bool {
    let of = || timeline.words.iter().filter(|said| said.action == action);
    let answers = timeline.replies.iter().filter(|(_, of, _)| *of == action).count();
    of().count() > answers
}
