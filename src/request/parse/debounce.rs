//! Requests that debounce: `delay-on-conflict: debounce` with `delay-max-wait`.

use crate::job::Conflict;
use crate::request::control::Control;
use crate::request::reject::{Code, Rejection};
use crate::units::show_duration_ms;

/// The rule for an id that exists, where the request states one. A request that debounces has a
/// longest wait and an id, and a delay within the wait.
pub(super) fn conflict(control: &Control) -> Result<Option<Conflict>, Rejection> {
    let bad = |detail: String| Rejection::new(Code::BadHeader, detail);
    let max_wait_ms = match (control.conflict, control.max_wait_ms) {
        (Some(Conflict::Debounce { .. }), Some(ms)) => ms,
        (Some(Conflict::Debounce { .. }), None) => {
            return Err(bad(
                "delay-on-conflict: debounce needs a delay-max-wait, from the first request to the due time"
                    .to_owned(),
            ));
        }
        (_, Some(_)) => {
            return Err(bad(
                "delay-max-wait is for delay-on-conflict: debounce: send both, or neither"
                    .to_owned(),
            ));
        }
        (stated, None) => return Ok(stated),
    };
    if control.id.is_none() {
        return Err(Rejection::new(
            Code::BadId,
            "delay-on-conflict: debounce needs a delay-id, which the requests have in common",
        ));
    }
    if let Some(delay) = control.delay_for.filter(|delay| *delay > max_wait_ms) {
        return Err(bad(format!(
            "a delay of {} is beyond delay-max-wait, {}: the job would come before its time",
            show_duration_ms(delay),
            show_duration_ms(max_wait_ms)
        )));
    }
    Ok(Some(Conflict::Debounce { max_wait_ms }))
}

/// Refuses to debounce a recurring schedule.
pub(super) fn refuse(control: &Control) -> Result<(), Rejection> {
    let stated = if control.max_wait_ms.is_some() {
        "delay-max-wait"
    } else if matches!(control.conflict, Some(Conflict::Debounce { .. })) {
        "delay-on-conflict: debounce"
    } else {
        return Ok(());
    };
    let detail = format!("{stated} is not for a recurring schedule: leave it out");
    Err(Rejection::new(Code::BadHeader, detail))
}
