//! The queue of a request, and the parts of its job that consumers of a queue get.

use bytes::Bytes;
use dwell_connectors::stand_ins::stand_ins;
use dwell_connectors::{Capabilities, Headers, Message};

use super::control::Control;
use super::headers;
use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use crate::config::QueueRules;
use crate::units::quote;

/// The parts of a message that a queue holds: headers of any name, number and type; neither key nor
/// properties.
const QUEUE_CAPABILITIES: Capabilities = Capabilities {
    typed_headers: true,
    byte_headers: true,
    ..Capabilities::new("queue", "HTTP", "queue")
};

/// The queue of a job.
#[derive(Debug)]
pub(super) struct Queue<'a> {
    pub(super) name: String,
    pub(super) rules: &'a QueueRules,
}

/// The queue that the request names instead of a target, if any.
pub(super) fn resolve<'a>(
    control: &Control,
    rules: &'a RequestRules,
) -> Result<Option<Queue<'a>>, Rejection> {
    let Some(name) = control.queue.as_deref() else { return Ok(None) };
    let beside =
        [("target", &control.target), ("exchange", &control.exchange), ("broker", &control.broker)];
    if let Some((other, _)) = beside.into_iter().find(|(_, value)| value.is_some()) {
        let prefix = if rules.source.is_some() { "delay-" } else { "" };
        let detail = format!(
            "the request names the queue {} and has {prefix}{other} too: send one",
            quote(name)
        );
        return Err(Rejection::new(Code::BadHeader, detail));
    }
    let known = rules.queues.get(name).ok_or_else(|| {
        Rejection::new(
            Code::UnknownQueue,
            format!(
                "no name or pattern of [queues] in the settings is for the queue {}",
                quote(name)
            ),
        )
    })?;
    Ok(Some(Queue { name: name.to_owned(), rules: known }))
}

impl RequestRules {
    /// The rejection of a new job of a full queue, as the store reports.
    #[must_use]
    pub fn queue_full(&self, queue: &str) -> Rejection {
        let by = self.queues.get(queue).map_or_else(String::new, |rules| {
            let most = rules.max_jobs().map_or_else(String::new, |most| format!(", {most}"));
            format!(" of queues.\"{}\"{most}", rules.name)
        });
        Rejection::new(
            Code::QueueFull,
            format!("the queue {} has max_jobs{by}: send it again later", quote(queue)),
        )
    }
}

/// Returns the headers that consumers get: those of the message, and stand-ins for its key, missing
/// body and properties.
pub(super) fn headers(message: &Message, key: Option<&Bytes>, has_body: bool) -> Headers {
    let stand_ins = stand_ins(
        key.map(AsRef::as_ref),
        has_body,
        message.properties.as_deref(),
        &QUEUE_CAPABILITIES,
    );
    headers::kept(&message.headers, &stand_ins)
}
