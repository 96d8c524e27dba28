//! The job of a request, a single one or that of each occurrence of a schedule: its receiver, what
//! the message passes on, and the checks of its fields.

use bytes::Bytes;
use dwell_connectors::stand_ins::stand_ins;
use dwell_connectors::{Message, Value};

use crate::job::Job;
use crate::request::control::{Control, Key};
use crate::request::reject::{Code, Rejection};
use crate::request::rules::RequestRules;
use crate::request::{etf1, headers, queue, target};
use crate::units::{show_duration_ms, show_size};

/// Where a job goes.
pub(super) enum Receiver<'a> {
    Target(target::Target<'a>),
    Queue(queue::Queue<'a>),
}

impl<'a> Receiver<'a> {
    /// The target or queue of a request.
    pub(super) fn of(
        control: &Control,
        message: &Message,
        rules: &'a RequestRules,
    ) -> Result<Self, Rejection> {
        Ok(match queue::resolve(control, rules)? {
            Some(queue) => Receiver::Queue(queue),
            None => Receiver::Target(target::resolve(control, message, rules)?),
        })
    }

    /// The TTR of a job whose request names none.
    fn ttr_ms(&self, rules: &RequestRules) -> u32 {
        match self {
            Receiver::Target(_) => rules.ttr_ms,
            Receiver::Queue(queue) => queue.rules.ttr.stored_ms(),
        }
    }
}

/// The job of a request, or of each occurrence of a recurring schedule. `body`: the body in the
/// envelope. Takes the key and the retry array from
/// the request.
pub(super) fn job(
    control: &mut Control,
    message: &Message,
    body: Option<Bytes>,
    receiver: Receiver<'_>,
    (round, is_recurring): (u32, bool),
    rules: &RequestRules,
    now_ms: i64,
) -> Result<Job, Rejection> {
    let expire = match &control.expire {
        None => None,
        Some(stated) if is_recurring => Some(stated.of_occurrence()?),
        Some(stated) => Some(stated.of_job(control.zone.as_deref())?),
    };
    let ttr_ms = ttr(control, receiver.ttr_ms(rules), rules)?;
    check_retry(control, rules)?;
    let (body, has_body) = match body {
        Some(body) => (body, true),
        None => (message.body.clone(), message.has_body),
    };
    if body.len() as u64 > rules.limits.max_body.bytes() {
        return Err(Rejection::new(
            Code::BodyTooLarge,
            format!(
                "the body has {} bytes, and limits.max_body is {}: store it elsewhere and send a reference",
                body.len(),
                show_size(rules.limits.max_body.bytes())
            ),
        ));
    }
    let key = match std::mem::take(&mut control.key) {
        Key::Own => message.key.clone(),
        Key::Named(key) => key,
    };
    let mut passed = match &receiver {
        Receiver::Queue(_) => queue::headers(message, key.as_ref(), has_body),
        Receiver::Target(target) => {
            let capabilities = target.rules.capabilities();
            let stand_ins =
                stand_ins(key.as_deref(), has_body, message.properties.as_deref(), capabilities);
            let mut passed = headers::passed(
                &message.headers,
                &stand_ins,
                rules.origin(),
                target.rules,
                &target.to,
            )?;
            if let (Some(name), Some(ttl)) = (capabilities.ttl_header, control.ttl.take()) {
                passed.push(name, Value::Text(ttl));
            }
            passed
        }
    };
    if let Some(id) = &control.id {
        etf1::stamp(&mut passed, id, message, rules);
    }
    let retry = control.retry_ms.take();
    let job = match receiver {
        Receiver::Queue(queue) => Job {
            // Kept in the job, so that any instance can take over an ended lease.
            retry: Some(retry.unwrap_or_else(|| queue.rules.retry_ms().to_vec())),
            on_timeout: queue.rules.on_timeout,
            ..Job::for_queue(queue.name, body)
        },
        Receiver::Target(target) => {
            let capabilities = target.rules.capabilities();
            Job {
                key: key.filter(|_| capabilities.keys),
                properties: message.properties.clone().filter(|_| capabilities.properties),
                confirm: control.confirm.unwrap_or(rules.confirm),
                retry,
                ..Job::new(target.broker, target.to, body)
            }
        }
    };
    Ok(Job {
        headers: passed,
        ttr_ms,
        late: control.late,
        max_late_ms: control.max_late_ms,
        expire,
        created_ms: now_ms,
        origin: rules.origin().to_owned(),
        round,
        has_body,
        ..job
    })
}

fn ttr(control: &Control, default_ms: u32, rules: &RequestRules) -> Result<u32, Rejection> {
    let Some(ms) = control.ttr_ms else { return Ok(default_ms) };
    let most = rules.limits.max_ttr.ms();
    u32::try_from(ms).ok().filter(|_| (1..=most).contains(&ms)).ok_or_else(|| {
        Rejection::new(
            Code::BadTtr,
            format!(
                "a time to run of {} is not from 1ms to limits.max_ttr, {}",
                show_duration_ms(ms),
                show_duration_ms(most)
            ),
        )
    })
}

fn check_retry(control: &Control, rules: &RequestRules) -> Result<(), Rejection> {
    let Some(waits) = &control.retry_ms else { return Ok(()) };
    if waits.len() > rules.limits.max_retries {
        return Err(Rejection::new(
            Code::BadRetry,
            format!(
                "delay-retry has {} waits, and limits.max_retries is {}",
                waits.len(),
                rules.limits.max_retries
            ),
        ));
    }
    let most = rules.limits.max_delay.ms();
    if let Some(wait) = waits.iter().find(|wait| **wait > most) {
        let most = show_duration_ms(most);
        return Err(Rejection::new(
            Code::BadRetry,
            format!("a wait of {} exceeds limits.max_delay, {most}", show_duration_ms(*wait)),
        ));
    }
    Ok(())
}
