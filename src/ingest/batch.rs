//! Applies the requests of a batch in their order.

use dwell_connectors::Message;
use tokio_util::sync::CancellationToken;

use super::Ingest;
use super::reject::Rejections;
use super::replies::{Replies, Reply};
use super::store_backoff::StoreBackoff;
use crate::events::JobEvent;
use crate::job::{Action, Conflict, Target, Verdict};
use crate::request::{Code, Rejection, Request, parse};
use crate::store::error::{Class, ErrorKind, StoreError};
use crate::store::jobs::batch::Answer;
use crate::telemetry::trace::{About, Span};

/// The message of a request that is not applied yet.
struct Original {
    message: Message,
    span: Span,
}

/// What has the id of a request that gets `conflict`, where the request's own rule refuses nothing:
/// a schedule that of a job, or a job that of a schedule.
fn stands(request: &Request) -> Option<&'static str> {
    let (conflict, stands) = match request {
        Request::NewJob(new_job) => (new_job.conflict, "schedule"),
        Request::NewSchedule(new) => (new.conflict, "job"),
        Request::Act(_) => return None,
    };
    (conflict != Conflict::Reject).then_some(stands)
}

impl Ingest {
    /// Applies a batch in its order. True once each message is stored, rejected or answered; false
    /// if given up, and then none may be acknowledged.
    pub async fn apply_batch(&self, messages: Vec<Message>, give_up: &CancellationToken) -> bool {
        let now_ms = self.apply.store.now_ms();
        let mut requests: Vec<Request> = Vec::with_capacity(messages.len());
        let mut originals: Vec<Original> = Vec::with_capacity(messages.len());
        let mut rejections = Rejections::new();
        for message in messages {
            let about = About {
                connector: &self.source,
                exchange: "",
                address: &self.options.topic,
                template: None,
                group: &self.options.group,
                message: &message,
            };
            let mut span = self.apply.traces.request(about);
            match parse(&message, &self.rules, now_ms) {
                Ok(mut request) => {
                    match &mut request {
                        Request::NewJob(new_job) => {
                            span.job(new_job.id.as_str());
                            new_job.job.trace = span.traceparent();
                        }
                        Request::NewSchedule(new) => {
                            span.job(new.id.as_str());
                            new.job.trace = span.traceparent();
                        }
                        Request::Act(act) => span.job(act.id.as_str()),
                    }
                    requests.push(request);
                    originals.push(Original { message, span });
                }
                Err(rejection) => {
                    self.refused(span, &rejection);
                    rejections.push((message, rejection));
                }
            }
        }
        // Good requests are stored first: they do not wait for the confirms of bad ones.
        let Some(answers) = self.answers(&mut requests, give_up).await else { return false };
        let (mut replies, mut unreadable) = (Replies::new(), None);
        for ((request, answer), Original { message, span }) in
            requests.into_iter().zip(answers).zip(originals)
        {
            let stands = stands(&request);
            let (id, action, target, reply_to) = match request {
                Request::NewJob(new_job) => {
                    (new_job.id, Action::Add, Some(new_job.job.target), new_job.reply_to)
                }
                Request::NewSchedule(new) => {
                    (new.id, Action::Add, Some(new.job.target), new.reply_to)
                }
                Request::Act(act) => (act.id, act.action, None, act.reply_to),
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    let rejection = match target.as_ref().and_then(Target::queue) {
                        Some(queue) if error.class == Class::QueueFull => {
                            self.rules.queue_full(queue)
                        }
                        None if error.class == Class::QueueFull => Rejection::full_queue_of(&id),
                        _ if error.kind() == ErrorKind::Rejected => {
                            Rejection::new(Code::BadSchedule, error.to_string())
                        }
                        _ => {
                            unreadable.get_or_insert_with(|| (id.clone(), error.clone()));
                            Rejection::unreadable(&id, &error)
                        }
                    };
                    self.refused(span, &rejection);
                    rejections.push((message, rejection));
                    continue;
                }
            };
            let (ingest, verdict) = (&*self.name, answer.verdict);
            let event = JobEvent::Received { ingest, id: &id, action, verdict };
            self.apply.events.end(span, &event);
            if answer.verdict == Verdict::Conflict {
                let rejection = stands.map_or_else(
                    || Rejection::conflict(&id),
                    |stands| Rejection::clash(&id, stands),
                );
                rejections.push((message, rejection));
            }
            replies.extend(reply_to.map(|to| Reply { to, id, action, answer }));
        }
        if let Some((id, error)) = unreadable {
            self.with_metrics(|metrics| metrics.last_error().record(&error));
            // One log line for the whole batch.
            tracing::error!(ingest = self.name, %id, %error, hint = error.hint, "a stored job cannot be read, requests for it are rejected");
        }
        if !self.reject(rejections, give_up).await {
            return false;
        }
        self.replier.reply(replies, give_up).await;
        true
    }

    /// The request of a message is bad.
    fn refused(&self, span: Span, Rejection { code, detail }: &Rejection) {
        let (ingest, code) = (&*self.name, code.as_str());
        self.apply.events.end(span, &JobEvent::BadRequest { ingest, code, detail });
    }

    /// Applies requests until each has its answer or its refusal; `None` if given up.
    /// The batch is held until then: every other error may pass, and a rejection would lose the
    /// request.
    pub(super) async fn answers(
        &self,
        requests: &mut [Request],
        give_up: &CancellationToken,
    ) -> Option<Vec<Result<Answer, StoreError>>> {
        let answers = self.apply.all(requests, &mut StoreBackoff::new(self, give_up)).await;
        let is_over = |answer: &Result<Answer, StoreError>| !matches!(answer, Err(error) if !error.is_refusal());
        answers.iter().all(is_over).then_some(answers)
    }
}
