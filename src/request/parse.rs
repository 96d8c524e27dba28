//! Turns a message into a request: action, time, target, checked by the rules.

use dwell_connectors::stand_ins::stand_ins;
use dwell_connectors::{Destination, Message};

use super::control::{self, Control, Key};
use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::{Act, NewJob, Request, dialect, envelope, etf1, headers, origin, queue, rounds, target};
use crate::delayed_headers::{ATTEMPT, DUE};
use crate::job::{Action, Confirm, Conflict, Due, Job, JobId, Late, OnTimeout};
use crate::units::{MIN_EPOCH_MS, quote, show_duration_ms, show_size, show_time_ms};

/// Reads a message as a request. `now_ms` is approximately Redis's time. It only decides which
/// timestamps lie in the future and which delays exceed `max_delay`.
pub fn parse(message: &Message, rules: &RequestRules, now_ms: i64) -> Result<Request, Rejection> {
    check_age(message, rules, now_ms)?;
    headers::check_whole(&message.unreadable)?;
    headers::check(&message.headers, rules.source)?;
    let mut control = control::read(&message.headers)?;
    if let Some(action) = etf1::deletion(&control, message, rules)? {
        control.action = Some(action);
    }
    let mut body = None;
    if rules.ingest.envelope && control.action.is_none_or(|action| action == Action::Schedule) {
        body = Some(envelope::fill(&mut control, message, rules)?);
    }
    if control.id.is_none() && rules.ingest.id_from_key {
        control.id = Some(etf1::id(message, rules)?);
    }
    match control.action.unwrap_or(Action::Schedule) {
        Action::Schedule => {
            dialect::fill(&mut control, &message.headers, &rules.ingest)?;
            schedule(control, message, body, rules, now_ms).map(|new_job| Request::NewJob(Box::new(new_job)))
        }
        action => act(action, control, message, rules, now_ms).map(Request::Act),
    }
}

/// Reads a request that arrives as fields, each named as a `delay-*` header without its prefix. The
/// message holds the rest: body, key, headers.
pub fn from_fields(fields: &[(&str, String)], message: &Message, rules: &RequestRules, now_ms: i64) -> Result<NewJob, Rejection> {
    if let Some(header) = message.headers.iter().find(|header| control::strip_prefix_ignore_case(&header.name, "delay-").is_some()) {
        let detail = format!("header {} is a control header: use the field of the request", quote(&header.name));
        return Err(Rejection::new(Code::BadHeader, detail));
    }
    let mut control = Control::default();
    for (name, value) in fields {
        control.take(name, &name.replace('-', "_"), value)?;
    }
    schedule(control, message, None, rules, now_ms)
}

/// An action that arrives as fields. `due`: the new time of a reschedule, by [`due_within`].
#[must_use]
pub fn act_on(action: Action, id: JobId, due: Option<Due>) -> Act {
    Act { due, ..Act::new(action, id) }
}

/// Where a job goes.
enum Receiver<'a> {
    Target(target::Target<'a>),
    Queue(queue::Queue<'a>),
}

impl Receiver<'_> {
    /// The TTR of a job whose request names none.
    fn ttr_ms(&self, rules: &RequestRules) -> u32 {
        match self {
            Receiver::Target(_) => rules.ttr_ms,
            Receiver::Queue(queue) => queue.rules.ttr_ms,
        }
    }
}

/// A new job. `body`: the body in the envelope.
fn schedule(
    control: Control,
    message: &Message,
    body: Option<bytes::Bytes>,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<NewJob, Rejection> {
    let round = rounds::of(message, rules)?;
    let asked = due(&control, message, rules, now_ms)?;
    let due = match asked {
        Some(due) => due,
        None if round > 0 && !rounds::may_lack_delay(message, rules) => return Err(rounds::without_delay()),
        None if rules.ingest.missing_delay_immediate => Due::In(0),
        None => return Err(missing_delay()),
    };
    let receiver = match queue::resolve(&control, rules)? {
        Some(queue) => Receiver::Queue(queue),
        None => Receiver::Target(target::resolve(&control, message, rules)?),
    };
    if let (Receiver::Target(target), None, 1..) = (&receiver, asked, round) {
        rounds::leads_on(message, target, rules)?;
    }
    let reply_to = target::reply_to(&control, rules)?;
    let ttr_ms = ttr(&control, receiver.ttr_ms(rules), rules)?;
    check_retry(&control, rules)?;
    let (body, has_body) = match body {
        Some(body) => (body, true),
        None => (message.body.clone(), message.has_body),
    };
    if body.len() as u64 > rules.limits.max_body {
        return Err(Rejection::new(
            Code::BodyTooLarge,
            format!(
                "the body has {} bytes, and limits.max_body is {}: store it elsewhere and send a reference",
                body.len(),
                show_size(rules.limits.max_body)
            ),
        ));
    }
    let key = match control.key {
        Key::Own => message.key.clone(),
        Key::Named(key) => key,
    };
    let mut passed = match &receiver {
        Receiver::Queue(_) => queue::headers(message, key.as_ref(), has_body),
        Receiver::Target(target) => {
            let stand_ins = stand_ins(key.as_deref(), has_body, message.properties.as_deref(), target.rules.capabilities());
            headers::passed(&message.headers, &stand_ins, rules.origin(), target.rules, &target.to)?
        }
    };
    if let Some(id) = &control.id {
        etf1::stamp(&mut passed, id, message, rules);
    }
    let generated = control.id.is_none();
    let origin = origin::origin(message, rules);
    let apart = generated && origin::is_first(message, rules);
    // A generated id belongs to this message alone and replaces nothing.
    let conflict = if generated { Conflict::Keep } else { control.conflict.unwrap_or_default() };
    let mut job = Job {
        broker: String::new(),
        queue: None,
        to: Destination::default(),
        key: None,
        headers: passed,
        properties: None,
        ttr_ms,
        confirm: Confirm::Broker,
        retry: control.retry_ms,
        late: control.late,
        max_late_ms: control.max_late_ms,
        on_timeout: OnTimeout::Ready,
        tries: None,
        ends_ms: None,
        created_ms: now_ms,
        origin: rules.origin().to_owned(),
        trace: None,
        round,
        has_body,
        body,
    };
    let mut queue_full = false;
    match receiver {
        Receiver::Queue(queue) => {
            queue_full = rules.full_queues.is_full(&queue.name);
            job.queue = Some(queue.name);
            // Kept in the job, so that any instance can take over an ended lease.
            job.retry.get_or_insert_with(|| queue.rules.retry_ms.clone());
            job.on_timeout = queue.rules.on_timeout;
        }
        Receiver::Target(target) => {
            let capabilities = target.rules.capabilities();
            target.broker.clone_into(&mut job.broker);
            job.to = target.to;
            job.key = key.filter(|_| capabilities.keys);
            job.properties = message.properties.clone().filter(|_| capabilities.properties);
            job.confirm = control.confirm.unwrap_or(rules.confirm);
        }
    }
    Ok(NewJob {
        id: control.id.unwrap_or_else(|| origin::generated_id(message, rules)),
        generated,
        first: (apart || !origin.check).then(rand::random),
        apart,
        queue_full,
        own_queues: None,
        due,
        conflict,
        job,
        origin,
        reply_to,
    })
}

/// A bad request as a dead job: a job for `rejected`, due at 0 and therefore too late, which is
/// published once it is requeued. `request`: as received; `message`: as it would be rejected.
#[must_use]
pub fn dead_job(request: &Message, message: Message, rejected: Destination, rules: &RequestRules, now_ms: i64) -> NewJob {
    let (id, origin) = origin::of_dead_job(request, &message, rules);
    let Message { body, has_body, key, headers, properties, .. } = message;
    NewJob {
        id,
        generated: true,
        first: (!origin.check).then(rand::random),
        apart: false,
        queue_full: false,
        own_queues: None,
        due: Due::At(0),
        conflict: Conflict::Keep,
        job: Job {
            broker: rules.ingest.broker.clone(),
            queue: None,
            to: rejected,
            key,
            headers,
            properties,
            ttr_ms: rules.ttr_ms,
            confirm: Confirm::Broker,
            retry: Some(Vec::new()),
            late: Some(Late::Dead),
            max_late_ms: Some(0),
            on_timeout: OnTimeout::Ready,
            tries: None,
            ends_ms: None,
            created_ms: now_ms,
            origin: rules.origin().to_owned(),
            trace: None,
            round: 0,
            has_body,
            body,
        },
        origin,
        reply_to: None,
    }
}

/// An action on a job that exists; the body is ignored.
fn act(action: Action, control: Control, message: &Message, rules: &RequestRules, now_ms: i64) -> Result<Act, Rejection> {
    let new_due = match action {
        Action::Reschedule => Some(due(&control, message, rules, now_ms)?.ok_or_else(missing_delay)?),
        _ => None,
    };
    let (seen_due, seen_attempt) = match action {
        Action::Finish | Action::Fail => (carried(message, DUE)?, carried(message, ATTEMPT)?),
        _ => (None, None),
    };
    let reply_to: Option<Destination> = target::reply_to(&control, rules)?;
    let id: JobId = control.id.ok_or_else(|| Rejection::new(Code::BadAction, format!("{} needs a delay-id", action.as_str())))?;
    Ok(Act { due: new_due, seen_due, seen_attempt, origin: origin::origin(message, rules), reply_to, ..Act::new(action, id) })
}

/// The due time, within `max_delay`; `None` where the request has none.
fn due(control: &Control, message: &Message, rules: &RequestRules, now_ms: i64) -> Result<Option<Due>, Rejection> {
    due_within(control.delay_for, control.delay_until, counted_from(message, rules), rules.limits.max_delay_ms, now_ms)
}

/// The due time of a delay (ms, from `from_ms` or from receipt) or of a time (epoch ms), at most
/// `max_ms` ahead; `None` without both.
pub fn due_within(
    delay_for: Option<u64>,
    delay_until: Option<i64>,
    from_ms: Option<i64>,
    max_ms: u64,
    now_ms: i64,
) -> Result<Option<Due>, Rejection> {
    let too_long = |what: String| {
        Rejection::new(
            Code::DelayTooLong,
            format!("{what} exceeds limits.max_delay, {}: Dwell does not fire early", show_duration_ms(max_ms)),
        )
    };
    match (delay_for, delay_until) {
        (Some(_), Some(_)) => Err(Rejection::new(Code::AmbiguousDelay, "the request has both delay-for and delay-until: send one")),
        (None, None) => Ok(None),
        (Some(ms), None) if ms > max_ms => Err(too_long(format!("a delay of {}", show_duration_ms(ms)))),
        (Some(ms), None) => Ok(Some(match from_ms {
            Some(from_ms) if from_ms <= now_ms => Due::At(from_ms.saturating_add_unsigned(ms)),
            Some(from_ms) => Due::Earlier { at_ms: from_ms.saturating_add_unsigned(ms), in_ms: ms },
            None => Due::In(ms),
        })),
        (None, Some(at_ms)) if i128::from(at_ms) - i128::from(now_ms) > i128::from(max_ms) => Err(too_long(show_time_ms(at_ms))),
        (None, Some(at_ms)) => Ok(Some(Due::At(at_ms.max(0)))),
    }
}

/// The message's own time where `delay-for` counts from it; `None` where `delay-for` counts from
/// receipt, by Redis's clock.
fn counted_from(message: &Message, rules: &RequestRules) -> Option<i64> {
    // A queue stores no time, and the producer's time is in seconds and unreliable.
    let by_receipt = rules.ingest.from_receipt || rules.source.is_none_or(|source| !source.log);
    // Rounded up, so that no delay ends early.
    own_time(message).filter(|_| !by_receipt).map(|ms| ms.saturating_add(message.timestamp_is_cut.into()))
}

/// The message's own time; none where its producer has written seconds, or nothing.
pub(super) fn own_time(message: &Message) -> Option<i64> {
    message.timestamp_ms.filter(|ms| *ms >= MIN_EPOCH_MS)
}

/// Refuses a message older than `max_age`, by the broker's time, or else by the producer's. A
/// redelivered message was young enough at its first delivery and may be stored, so its age is
/// checked only where the broker does not report redeliveries.
fn check_age(message: &Message, rules: &RequestRules, now_ms: i64) -> Result<(), Rejection> {
    let reports_redelivery = rules.source.is_none_or(|source| source.reports_redelivery);
    let Some(most) = rules.ingest.max_age_ms.filter(|_| !message.redelivered || !reports_redelivery) else { return Ok(()) };
    let by_producer = || i64::try_from(message.properties.as_ref()?.timestamp?).ok()?.checked_mul(1000).filter(|ms| *ms >= MIN_EPOCH_MS);
    let sent_ms = own_time(message).or_else(by_producer);
    let Some(sent_ms) = sent_ms.filter(|sent_ms| i128::from(now_ms) - i128::from(*sent_ms) > i128::from(most)) else { return Ok(()) };
    let (sent, name, most) = (show_time_ms(sent_ms), &rules.name, show_duration_ms(most));
    let detail = format!(
        "the request was sent at {sent}, and ingest.{name}.max_age is {most}: check whether it was carried out before you send it again"
    );
    Err(Rejection::new(Code::TooOld, detail))
}

fn ttr(control: &Control, default_ms: u32, rules: &RequestRules) -> Result<u32, Rejection> {
    let Some(ms) = control.ttr_ms else { return Ok(default_ms) };
    u32::try_from(ms).ok().filter(|ms| (1..=rules.limits.max_ttr_ms).contains(ms)).ok_or_else(|| {
        let most = show_duration_ms(rules.limits.max_ttr_ms.into());
        Rejection::new(Code::BadTtr, format!("a time to run of {} is not from 1ms to limits.max_ttr, {most}", show_duration_ms(ms)))
    })
}

fn check_retry(control: &Control, rules: &RequestRules) -> Result<(), Rejection> {
    let Some(waits) = &control.retry_ms else { return Ok(()) };
    if waits.len() > rules.limits.max_retries {
        return Err(Rejection::new(
            Code::BadRetry,
            format!("delay-retry has {} waits, and limits.max_retries is {}", waits.len(), rules.limits.max_retries),
        ));
    }
    if let Some(wait) = waits.iter().find(|wait| **wait > rules.limits.max_delay_ms) {
        let most = show_duration_ms(rules.limits.max_delay_ms);
        return Err(Rejection::new(Code::BadRetry, format!("a wait of {} exceeds limits.max_delay, {most}", show_duration_ms(*wait))));
    }
    Ok(())
}

/// A header that a consumer copies from the message that it received.
fn carried<T: std::str::FromStr>(message: &Message, name: &str) -> Result<Option<T>, Rejection> {
    let Some(text) = control::once(&message.headers, name)? else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| {
        Rejection::new(Code::BadHeader, format!("{name}: {} is not a value that Dwell sets: send the header unchanged", quote(&text)))
    })
}

pub(crate) fn missing_delay() -> Rejection {
    Rejection::new(Code::MissingDelay, "the request has no delay: send delay-for (90s, PT15M) or delay-until (2026-01-31T12:00:00Z)")
}
