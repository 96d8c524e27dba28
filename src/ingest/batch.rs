//! Does what the messages of a batch ask for, in their order.

use dwell_connectors::Message;
use tokio_util::sync::CancellationToken;

use super::Ingest;
use super::held::Held;
use super::reject::Rejections;
use super::replies::{Replies, Reply};
use crate::job::{Action, Verdict};
use crate::request::{Act, Rejection, Request, Schedule, parse};
use crate::telemetry::IngestResult;
use crate::telemetry::trace::{About, Span};

/// A request to schedule that was read and is not applied yet.
struct Original {
    message: Message,
    span: Span,
}

impl Ingest {
    /// Applies a batch in its order; true once every message of it is stored, rejected or answered. False: given up, nothing is acknowledged.
    pub async fn apply(&self, messages: Vec<Message>, give_up: &CancellationToken) -> bool {
        let now_ms = self.apply.store.now_ms();
        let mut schedules: Vec<Schedule> = Vec::with_capacity(messages.len());
        let mut originals: Vec<Original> = Vec::with_capacity(messages.len());
        let mut replies = Replies::new();
        let mut rejections = Rejections::new();
        for message in messages {
            let about = About { system: self.source.kind(), destination: &self.options.topic, headers: &message.headers };
            let mut span = self.apply.traces.request(about);
            match parse(&message, &self.rules, now_ms) {
                Ok(Request::Schedule(mut schedule)) => {
                    span.job(schedule.id.as_str());
                    schedule.job.trace = span.traceparent();
                    schedules.push(*schedule);
                    originals.push(Original { message, span });
                }
                Ok(Request::Act(act)) => {
                    span.job(act.id.as_str());
                    // What came before it is applied before it: it may be the same job.
                    if !self.schedule(&mut schedules, &mut originals, &mut replies, &mut rejections, give_up).await
                        || !self.act(act, span, &mut replies, give_up).await
                    {
                        return false;
                    }
                }
                Err(rejection) => {
                    span.failed(rejection.code.as_str(), &rejection.detail);
                    rejections.push((message, rejection));
                }
            }
        }
        // What is good is stored first: it does not wait for the confirms of what is not.
        let done = self.schedule(&mut schedules, &mut originals, &mut replies, &mut rejections, give_up).await
            && self.reject(rejections, give_up).await;
        if done {
            self.replier.reply(replies, give_up).await;
        }
        done
    }

    async fn schedule(
        &self,
        schedules: &mut Vec<Schedule>,
        originals: &mut Vec<Original>,
        replies: &mut Replies,
        rejections: &mut Rejections,
        give_up: &CancellationToken,
    ) -> bool {
        if schedules.is_empty() {
            return true;
        }
        let mut schedules = std::mem::take(schedules);
        let originals = std::mem::take(originals);
        // An error comes only once it was given up: until then the batch is held.
        let Ok(answers) = self.apply.schedule(&mut schedules, &mut Held::new(self, give_up)).await else { return false };
        let count = |of: &[Verdict]| answers.iter().filter(|answer| of.contains(&answer.verdict)).count() as u64;
        self.count(IngestResult::Scheduled, count(&[Verdict::Added, Verdict::Replaced]));
        self.count(IngestResult::Duplicate, count(&[Verdict::Duplicate, Verdict::Kept]));
        for ((schedule, answer), Original { message, span }) in schedules.into_iter().zip(answers).zip(originals) {
            span.succeeded(answer.verdict.as_str());
            if answer.verdict == Verdict::Conflict {
                rejections.push((message, Rejection::conflict(&schedule.id)));
            }
            replies.extend(schedule.reply_to.map(|to| Reply { to, id: schedule.id, action: Action::Schedule, answer }));
        }
        true
    }

    async fn act(&self, mut act: Act, span: Span, replies: &mut Replies, give_up: &CancellationToken) -> bool {
        let Ok(answer) = self.apply.act(&mut act, &mut Held::new(self, give_up)).await else { return false };
        span.succeeded(answer.verdict.as_str());
        self.count(IngestResult::Action, 1);
        replies.extend(act.reply_to.map(|to| Reply { to, id: act.id, action: act.action, answer }));
        true
    }
}
