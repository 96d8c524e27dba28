//! The recurring schedule of a request: when it fires, its id, and the job of its occurrences.

use bytes::Bytes;
use dwell_connectors::Message;

use super::debounce;
use super::template::{Receiver, job};
use crate::request::control::Control;
use crate::request::recurring::check_id;
use crate::request::reject::{Code, Rejection};
use crate::request::rules::RequestRules;
use crate::request::{KeptParts, NewSchedule};
use crate::request::{origin, rounds, target};

/// A recurring schedule. `body`: the body in the envelope.
pub(super) fn recurring(
    mut control: Control,
    message: &Message,
    body: Option<Bytes>,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<NewSchedule, Rejection> {
    let round = rounds::of(message, rules)?;
    if control.has_delay() {
        return Err(Rejection::new(
            Code::AmbiguousDelay,
            "the request has both delay-schedule and a delay: send one",
        ));
    }
    let id = control.id.clone().ok_or_else(|| {
        Rejection::new(
            Code::BadId,
            "a recurring schedule needs a delay-id, by which it is replaced and cancelled",
        )
    })?;
    check_id(&id)?;
    debounce::refuse(&control)?;
    let fields = std::mem::take(&mut control.recurring);
    let timing = fields.timing(control.zone.as_deref(), control.spread_ms, now_ms)?;
    let receiver = Receiver::of(&control, message, rules)?;
    let reply_to = target::reply_to(&control, rules)?;
    let job = job(&mut control, message, body, receiver, (round, true), rules, now_ms)?;
    Ok(NewSchedule {
        id,
        conflict: control.conflict.unwrap_or_default(),
        own_queues: None,
        is_paused: false,
        from_settings: false,
        timing,
        job,
        keep: KeptParts::default(),
        origin: origin::origin(message, rules),
        reply_to,
    })
}
