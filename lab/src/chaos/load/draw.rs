//! The requests of the load: jobs of every kind, drawn from the seed.

use bytes::Bytes;
use dwell_connectors::Message;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::chaos::history::{Consumer, ControlRequest, Debounce, Job, Op, Recurring, Word, digest};
use crate::chaos::queue::scene::QUEUE;
use crate::chaos::system::{
    HOOK_BROKER, LIMITED_TARGET, NEVER_TARGET, REPLY_DESTINATION, SPARE_BROKER,
};

/// The delay of a job, ms.
const JOB_DELAY_MS: std::ops::Range<i64> = 200..5000;
/// The distance of a control request from the due time, ms.
const CONTROL_OFFSET_MS: std::ops::Range<i64> = -150..150;
/// The distance of a control request from the due time of a job that waits for a retry, ms.
const RETRY_CONTROL_OFFSET_MS: std::ops::Range<i64> = 300..3500;
/// The producer's own header, which must arrive unchanged.
pub(super) const NOTE_HEADER: &str = "x-note";
/// The actions of the consumer, for the reader that plays it: JSON.
pub(super) const CONSUMER_HEADER: &str = "x-consumer";
/// The TTR of a job that its consumer confirms, ms.
const TTR_MS: std::ops::Range<u64> = 600..1500;
/// The waits between its attempts, ms: all alike, so that the least time between two is known.
const RETRY_INTERVAL_MS: u64 = 300;
/// The time after which a job expires, ms.
const EXPIRE_MS: std::ops::Range<i64> = 300..3000;
/// The jobs for the limited target are due together, at the multiples of this, ms.
const LIMITED_INTERVAL_MS: i64 = 5000;
/// The largest body, bytes.
const MAX_BODY_BYTES: usize = 20_000;

/// Draws jobs.
pub(super) struct Draw {
    rng: StdRng,
    targets: Vec<String>,
    /// URLs that are targets too.
    urls: Vec<String>,
    /// The prefix of this run's ids.
    run: String,
    next: u64,
}

/// A job, and the control requests for it.
pub(super) struct Drawn {
    pub(super) id: String,
    pub(super) job: Job,
    pub(super) message: Message,
    pub(super) ask: Option<Plan>,
    /// The instance, for a job over HTTP; its body is text.
    pub(super) door: Option<usize>,
}

/// A control request.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The time, epoch ms.
    pub(super) at_ms: i64,
    pub(super) action: Action,
    /// The new time of a reschedule.
    pub(super) due_ms: Option<i64>,
    /// The instance, for a request over HTTP; `None`: a message.
    pub(super) door: Option<usize>,
    /// For a consumer's word: the due time, epoch ms, and the attempt of its message, and the
    /// number of the word.
    pub(super) seen: Option<Seen>,
}

/// The message that a consumer's word is about, and the number of the word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) due_ms: i64,
    pub(super) attempt: u32,
    pub(super) number: u64,
}

/// The action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Cancel,
    Reschedule,
    Fire,
    Pause,
    Resume,
    Finish,
    Fail,
}

impl Action {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Action::Cancel => "cancel",
            Action::Reschedule => "reschedule",
            Action::Fire => "fire",
            Action::Pause => "pause",
            Action::Resume => "resume",
            Action::Finish => "finish",
            Action::Fail => "fail",
        }
    }

    /// The operation in the history.
    pub(super) fn op(self, ask: ControlRequest) -> Op {
        match self {
            Action::Cancel => Op::Cancel(ask),
            Action::Reschedule => Op::Reschedule(ask),
            Action::Fire => Op::Fire(ask),
            Action::Pause => Op::Pause(ask),
            Action::Resume => Op::Resume(ask),
            Action::Finish => Op::Finish(ask),
            Action::Fail => Op::Fail(ask),
        }
    }
}

impl Draw {
    pub(super) fn new(seed: u64, targets: Vec<String>, urls: Vec<String>) -> Draw {
        Draw { rng: StdRng::seed_from_u64(seed), targets, urls, run: format!("{seed:x}"), next: 0 }
    }

    /// The next job. `instances`: the number of instances; `late`: a target that does not exist
    /// yet.
    pub(super) fn next(&mut self, now_ms: i64, instances: usize, late: Option<&str>) -> Drawn {
        self.next += 1;
        let lot = self.rng.random_range(0..100);
        let letter = if lot < 3 { 'b' } else { 'j' };
        let id = format!("{letter}-{}-{}", self.run, self.next);
        let due_ms = now_ms + self.rng.random_range(JOB_DELAY_MS);
        let target = any(&mut self.rng, &self.targets);
        let is_by_http = (85..95).contains(&lot) && instances > 0;
        let door = is_by_http.then(|| self.rng.random_range(0..instances));
        let mut body = self.body();
        if is_by_http {
            body = body.iter().map(|byte| b'a' + byte % 26).collect();
        }
        let note = format!("{:016x}", self.rng.random::<u64>());
        let digest = digest(&body, [(NOTE_HEADER, &*note)]);
        let mut job = Job { due_ms, target, digest, ..Job::default() };
        let mut ask = None;
        match lot {
            0..3 => job.refused = Some("missing_delay".to_owned()),
            3..8 => {
                if let Some(late) = late {
                    (job.target, job.absent) = (late.to_owned(), true);
                    if self.rng.random() {
                        ask = Some(self.plan(due_ms, RETRY_CONTROL_OFFSET_MS, instances));
                    }
                }
            }
            8..10 => {
                (job.target, job.absent) = (NEVER_TARGET.to_owned(), true);
                // The retries of the settings outlast the expiry.
                if lot == 8 {
                    job.expire_ms = Some(self.rng.random_range(EXPIRE_MS));
                } else {
                    job.retry_ms = Some(vec![100, 200]);
                }
            }
            10..14 => job.retry_ms = Some(Vec::new()),
            14..34 => ask = Some(self.plan(due_ms, CONTROL_OFFSET_MS, instances)),
            34..37 => job.broker = Some(SPARE_BROKER.to_owned()),
            37..57 => {
                let consumer = self.consumer();
                // A consumer that never finishes is given up soon; the others have attempts for
                // faults too.
                let is_patient = !matches!(consumer.words.last(), Some(Word::Silent | Word::Fail));
                job.retry_ms = Some(vec![RETRY_INTERVAL_MS; if is_patient { 8 } else { 2 }]);
                job.consumer = Some(consumer);
            }
            57..61 => {
                (job.target, job.limited) = (LIMITED_TARGET.to_owned(), true);
                job.due_ms = (due_ms / LIMITED_INTERVAL_MS + 1) * LIMITED_INTERVAL_MS;
                // A job without a retry dies if the wait for its turn uses up an attempt.
                job.retry_ms = self.rng.random::<bool>().then(Vec::new);
            }
            61..67 => job.expire_ms = Some(self.rng.random_range(EXPIRE_MS)),
            67..71 => {
                // The consumers compare the body with the id.
                (job.target, job.queued) = (QUEUE.to_owned(), true);
                body = Bytes::from(id.clone());
            }
            _ => {}
        }
        // Half of the jobs for targets that exist, where URLs are targets.
        let can_be_url = !self.urls.is_empty()
            && job.broker.is_none()
            && !(job.absent || job.limited || job.queued);
        if can_be_url && self.rng.random() {
            job.target = any(&mut self.rng, &self.urls);
            job.broker = Some(HOOK_BROKER.to_owned());
        }
        let mut message = message(&id, &job, body, note);
        if lot >= 95 {
            message = message.with_header("delay-reply-to", REPLY_DESTINATION);
        }
        Drawn { id, job, message, ask, door }
    }

    /// A consumer of any kind.
    fn consumer(&mut self) -> Consumer {
        let words = match self.rng.random_range(0..16) {
            0..5 => vec![Word::Finish],
            5..7 => vec![Word::FinishTwice],
            7..9 => vec![Word::FinishLate],
            9..11 => vec![Word::Fail, Word::Finish],
            11..13 => vec![Word::Silent, Word::Finish],
            13 => vec![Word::FailThenFinish],
            14 => vec![Word::Fail],
            _ => vec![Word::Silent],
        };
        Consumer { ttr_ms: self.rng.random_range(TTR_MS), words }
    }

    fn plan(&mut self, due_ms: i64, around_ms: std::ops::Range<i64>, instances: usize) -> Plan {
        let at_ms = due_ms + self.rng.random_range(around_ms);
        let action = [Action::Cancel, Action::Cancel, Action::Reschedule, Action::Fire]
            [self.rng.random_range(0..4)];
        // Later than the old due time, so that the due time of an arrival tells which one it is
        // for.
        let moved = (action == Action::Reschedule)
            .then(|| due_ms.max(at_ms) + self.rng.random_range(500..2000));
        let is_by_http = instances > 0 && self.rng.random();
        let door = is_by_http.then(|| self.rng.random_range(0..instances));
        Plan { at_ms, action, due_ms: moved, door, seen: None }
    }

    /// An empty, a small or a large body.
    fn body(&mut self) -> Bytes {
        let size = match self.rng.random_range(0..10) {
            0 => 0,
            1..8 => self.rng.random_range(1..400),
            _ => self.rng.random_range(400..MAX_BODY_BYTES),
        };
        let mut body = vec![0; size];
        self.rng.fill(&mut body[..]);
        Bytes::from(body)
    }
}

/// The request for this job as a message.
pub(super) fn message(id: &str, job: &Job, body: impl Into<Bytes>, note: String) -> Message {
    let to = if job.queued { "delay-queue" } else { "delay-target" };
    let mut message = Message::new(body)
        .with_header("delay-id", id)
        .with_header(to, &job.target)
        .with_header(NOTE_HEADER, note);
    if let Some(Debounce { delay_ms, max_wait_ms }) = job.debounce {
        message = message
            .with_header("delay-for", delay_ms.to_string())
            .with_header("delay-on-conflict", "debounce")
            .with_header("delay-max-wait", format!("{max_wait_ms}ms"));
    } else if let Some(Recurring { every_ms, count }) = job.recurring {
        message = message
            .with_header("delay-schedule", format!("@every {every_ms}ms"))
            .with_header("delay-start", job.due_ms.to_string())
            .with_header("delay-reply-to", REPLY_DESTINATION);
        if let Some(count) = count {
            message = message.with_header("delay-count", count.to_string());
        }
    } else if job.refused.is_none() {
        message = message.with_header("delay-until", job.due_ms.to_string());
    }
    if let Some(expire_ms) = job.expire_ms {
        message = message.with_header("delay-expire", format!("{expire_ms}ms"));
    }
    if let Some(waits) = &job.retry_ms {
        let waits: Vec<String> = waits.iter().map(|ms| format!("{ms}ms")).collect();
        let waits = if waits.is_empty() { "none".to_owned() } else { waits.join(",") };
        message = message.with_header("delay-retry", waits);
    }
    if let Some(broker) = &job.broker {
        message = message.with_header("delay-broker", broker);
    }
    if let Some(consumer) = &job.consumer {
        let words = serde_json::to_string(consumer).unwrap_or_default();
        message = message
            .with_header("delay-confirm", "consumer")
            .with_header("delay-ttr", format!("{}ms", consumer.ttr_ms))
            .with_header(CONSUMER_HEADER, words);
    }
    message
}

/// One of these.
fn any(rng: &mut StdRng, names: &[String]) -> String {
    names[rng.random_range(0..names.len())].clone()
}

impl Plan {
    /// The request as a message.
    pub(super) fn message(&self, id: &str) -> Message {
        let message = Message::new("")
            .with_header("delay-id", id)
            .with_header("delay-action", self.action.as_str())
            .with_header("delay-reply-to", REPLY_DESTINATION);
        match (self.due_ms, self.seen) {
            (_, Some(seen)) => message
                .with_header("delayed-due", seen.due_ms.to_string())
                .with_header("delayed-attempt", seen.attempt.to_string()),
            (Some(due_ms), _) => message.with_header("delay-until", due_ms.to_string()),
            _ => message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_seed_draws_one_load_with_every_kind_in_it() {
        let draw = |seed| {
            let mut draw = Draw::new(seed, owned(&["a", "b"]), owned(&["http://a/0"]));
            (0..500).map(|_| draw.next(1_000_000, 2, Some("late"))).collect::<Vec<_>>()
        };
        let (one, same, other) = (draw(7), draw(7), draw(8));
        let digests =
            |jobs: &[Drawn]| jobs.iter().map(|drawn| drawn.job.digest.clone()).collect::<Vec<_>>();
        assert_eq!(digests(&one), digests(&same));
        assert_ne!(digests(&one), digests(&other));
        let some = |test: &dyn Fn(&Drawn) -> bool| assert!(one.iter().any(test));
        some(&|drawn| {
            drawn.job.refused.is_some() && drawn.message.headers.text("delay-until").is_none()
        });
        some(&|drawn| drawn.job.absent && drawn.job.target == "late");
        some(&|drawn| {
            drawn.job.absent && drawn.message.headers.text("delay-retry") == Some("100ms,200ms")
        });
        some(&|drawn| drawn.message.headers.text("delay-retry") == Some("none"));
        some(&|drawn| {
            drawn.job.limited
                && drawn.message.headers.text("delay-target") == Some(LIMITED_TARGET)
                && drawn.job.due_ms % LIMITED_INTERVAL_MS == 0
        });
        for absent in [false, true] {
            some(&|drawn| {
                drawn.job.absent == absent && drawn.message.headers.text("delay-expire").is_some()
            });
        }
        some(&|drawn| {
            drawn.job.queued
                && drawn.message.headers.text("delay-queue") == Some(QUEUE)
                && drawn.message.body == drawn.id.as_bytes()
        });
        some(&|drawn| {
            drawn.job.broker.is_some()
                && drawn.message.headers.text("delay-broker") == Some(SPARE_BROKER)
        });
        for word in [
            Word::Finish,
            Word::FinishTwice,
            Word::FinishLate,
            Word::Fail,
            Word::FailThenFinish,
            Word::Silent,
        ] {
            some(&|drawn| {
                drawn
                    .job
                    .consumer
                    .as_ref()
                    .is_some_and(|consumer| consumer.words.last() == Some(&word))
            });
        }
        some(&|drawn| {
            drawn.message.headers.text("delay-confirm") == Some("consumer")
                && drawn.message.headers.text(CONSUMER_HEADER).is_some()
        });
        some(&|drawn| drawn.message.body.is_empty());
        for by_message in [true, false] {
            some(&|drawn| {
                drawn.job.broker.as_deref() == Some(HOOK_BROKER)
                    && drawn.job.target == "http://a/0"
                    && drawn.door.is_none() == by_message
            });
        }
        some(&|drawn| {
            drawn.door.is_some() && !drawn.message.body.is_empty() && drawn.message.body.is_ascii()
        });
        some(&|drawn| {
            drawn.job.absent
                && drawn.ask.as_ref().is_some_and(|plan| plan.at_ms >= drawn.job.due_ms + 300)
        });
        for action in [Action::Cancel, Action::Reschedule, Action::Fire] {
            for by_message in [true, false] {
                some(&|drawn| {
                    drawn.ask.as_ref().is_some_and(|plan| {
                        plan.action == action && plan.door.is_none() == by_message
                    })
                });
            }
        }
    }
}
