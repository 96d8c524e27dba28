//! The job that keeps a bad request as a dead one.

use dwell_connectors::{Destination, Message};

use crate::job::{Confirm, Conflict, Due, Job, Late, OnTimeout, Target};
use crate::request::rules::RequestRules;
use crate::request::{NewJob, origin};

/// A bad request as a dead job: a job for `rejected`, due at 0 and therefore too late, which is
/// published once it is requeued. `request`: as received; `message`: as it would be rejected.
#[must_use]
pub fn dead_job(
    request: &Message,
    message: Message,
    rejected: Destination,
    rules: &RequestRules,
    now_ms: i64,
) -> NewJob {
    let (id, origin) = origin::of_dead_job(request, &message, rules);
    let Message { body, has_body, key, headers, properties, .. } = message;
    NewJob {
        id,
        generated: true,
        call_id: (!origin.maybe_redelivered).then(rand::random),
        is_new_message: false,
        queue_full: false,
        own_queues: None,
        due: Due::At(0),
        conflict: Conflict::Keep,
        job: Job {
            target: Target::Broker { broker: rules.ingest.broker.clone(), to: rejected },
            key,
            headers,
            properties,
            ttr_ms: rules.ttr_ms,
            confirm: Confirm::Broker,
            retry: Some(Vec::new()),
            late: Some(Late::Dead),
            max_late_ms: Some(0),
            expire: None,
            on_timeout: OnTimeout::Ready,
            tries: None,
            remove_at_ms: None,
            created_ms: now_ms,
            origin: rules.origin().to_owned(),
            trace: None,
            round: 0,
            debounced_ms: None,
            has_body,
            body,
        },
        origin,
        reply_to: None,
    }
}
