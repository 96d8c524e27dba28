//! The new job of a request: its due time, its id, and its rules.

use bytes::Bytes;
use dwell_connectors::Message;

use super::debounce;
use super::due::{due, missing_delay, spread};
use super::template::{Receiver, job};
use crate::config::MissingDelay;
use crate::job::{Conflict, Due};
use crate::request::control::Control;
use crate::request::reject::{Code, Rejection};
use crate::request::rules::RequestRules;
use crate::request::{NewJob, origin, rounds, target};

/// A new job. `body`: the body in the envelope.
pub(super) fn schedule(
    mut control: Control,
    message: &Message,
    body: Option<Bytes>,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<NewJob, Rejection> {
    let round = rounds::of(message, rules)?;
    if let Some(stray) = control.recurring.first_set() {
        return Err(Rejection::new(
            Code::BadHeader,
            format!("delay-{stray} is for a recurring schedule: send it with delay-schedule"),
        ));
    }
    let stated = debounce::conflict(&control)?;
    let asked = due(&control, message, rules, now_ms)?;
    let due = match asked {
        Some(due) => due,
        None if round > 0 && !rounds::may_lack_delay(message, rules) => {
            return Err(rounds::without_delay());
        }
        None if rules.ingest.missing_delay == MissingDelay::Immediate => Due::In(0),
        None => return Err(missing_delay()),
    };
    let receiver = Receiver::of(&control, message, rules)?;
    if let (Receiver::Target(target), None, 1..) = (&receiver, asked, round) {
        rounds::leads_on(message, target, rules)?;
    }
    let reply_to = target::reply_to(&control, rules)?;
    let queue_full = match &receiver {
        Receiver::Queue(queue) => rules.full_queues.is_full(&queue.name),
        Receiver::Target(_) => false,
    };
    let job = job(&mut control, message, body, receiver, (round, false), rules, now_ms)?;
    let generated = control.id.is_none();
    let origin = origin::origin(message, rules);
    let is_new_message = generated && origin::is_new_message(message, rules);
    // A generated id belongs to this message alone and replaces nothing.
    let conflict = if generated { Conflict::Keep } else { stated.unwrap_or_default() };
    let id = control.id.unwrap_or_else(|| origin::generated_id(message, rules));
    let due = match control.spread_ms {
        Some(within) => {
            spread(due, control.delay_for, (&id, within), rules.limits.max_delay.ms(), now_ms)?
        }
        None => due,
    };
    Ok(NewJob {
        id,
        generated,
        call_id: (is_new_message || !origin.maybe_redelivered).then(rand::random),
        is_new_message,
        queue_full,
        own_queues: None,
        due,
        conflict,
        job,
        origin,
        reply_to,
    })
}
