//! A schedule of the settings as a request.

use bytes::Bytes;
use dwell_connectors::Message;

use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::schedule_from_fields;
use crate::config::{Schedule, TextOrBytes, decode_base64};
use crate::job::Conflict;
use crate::request::NewSchedule;

impl Rejection {
    /// The setting of a schedule that is wrong: by the code, or what the detail begins with, which
    /// may be none.
    pub(crate) fn setting(&self) -> String {
        match self.code {
            Code::BadTtr => "ttr".to_owned(),
            Code::BadRetry => "retry".to_owned(),
            Code::BodyTooLarge => "body".to_owned(),
            Code::TargetNotAllowed => "target".to_owned(),
            Code::UnknownBroker => "broker".to_owned(),
            Code::BadQueue | Code::UnknownQueue => "queue".to_owned(),
            _ => {
                let field = self.detail.split([':', ' ']).next().unwrap_or_default();
                field.strip_prefix("delay-").unwrap_or(field).replace('-', "_")
            }
        }
    }

    /// Whether the rejection follows from the schedule alone, whatever else the settings say.
    pub(crate) fn is_of_schedule(&self) -> bool {
        matches!(self.code, Code::BadSchedule | Code::BadId | Code::BadDelay)
    }
}

/// The request that a `[schedules.NAME]` of the settings stands for. `now_ms`: a schedule without a
/// time from then on is rejected.
pub fn declared_schedule(
    name: &str,
    schedule: &Schedule,
    rules: &RequestRules,
    now_ms: i64,
) -> Result<NewSchedule, Rejection> {
    let body = match (&schedule.body, &schedule.body_base64) {
        (Some(_), Some(_)) => {
            let detail = "body_base64: there is a `body` too: remove one of them";
            return Err(Rejection::new(Code::BadHeader, detail));
        }
        (Some(text), None) => Bytes::from(text.clone()),
        (None, Some(base64)) => decode_base64(base64)
            .map_err(|why| Rejection::new(Code::BadHeader, format!("body_base64: {why}")))?,
        (None, None) => Bytes::new(),
    };
    let broker = schedule.broker.as_deref().unwrap_or(&rules.ingest.broker);
    let has_lists = schedule.queue.is_none()
        && rules.brokers.get(broker).is_some_and(|broker| broker.capabilities().typed_headers);
    let mut message = Message::new(body);
    message.key = schedule.key.as_ref().map(TextOrBytes::bytes);
    for (header, values) in schedule.headers.values(has_lists) {
        values.into_iter().for_each(|value| message.headers.push(header, value));
    }
    let mut fields = vec![("id", name.to_owned())];
    fields.extend(schedule.fields());
    let new = schedule_from_fields(&fields, &message, rules, now_ms)?;
    Ok(NewSchedule {
        conflict: Conflict::Replace,
        is_paused: schedule.paused,
        from_settings: true,
        ..new
    })
}
