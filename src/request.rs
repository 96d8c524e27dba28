//! Turns a message into a request, or rejects the message with a code. Pure: no clock, no network,
//! no panics.
//!
//! In reading order:
//! - `parse`: from a message to a request; `control`: the fields of a request, and the `delay-*`
//!   headers that set them; `until`: times with an offset or in a time zone; `recurring`: when a
//!   schedule fires.
//! - `dialect`: the headers of other schedulers; `etf1`: one scheduler's use of message keys;
//!   `envelope`: a JSON body.
//! - `target`: the target and whether it is allowed; `queue`, `full_queues`: the queue instead of a
//!   target, and whether it is full; `headers`: which headers pass on.
//! - `origin`: the identity of a message; `rounds`: how often a message returned; `own_events`: the
//!   events of jobs, which are no requests; `moved`: jobs that move to another broker.
//! - `declared`: a schedule of the settings.
//! - `rules`: the settings that apply; `reject`: why a request is rejected.

mod control;
mod declared;
mod dialect;
mod envelope;
mod etf1;
mod expire;
mod full_queues;
mod headers;
#[cfg(any(test, feature = "fuzz"))]
#[path = "request/tests/known_headers.rs"]
pub mod known_headers;
mod moved;
mod origin;
mod own_events;
mod parse;
mod queue;
mod recurring;
mod reject;
mod rounds;
mod rules;
mod target;
#[cfg(all(test, feature = "amqp", feature = "kafka", feature = "nats"))]
mod tests;
mod until;

pub(crate) use envelope::compact;
pub(crate) use own_events::is_own_event;

/// Whether Dwell reads or sets headers of this name whatever the settings say.
pub(crate) fn is_read_already(name: &str) -> bool {
    ["delay-", "delayed-"]
        .iter()
        .any(|prefix| control::strip_prefix_ignore_case(name, prefix).is_some())
        || dialect::owns(name)
}

pub use declared::declared_schedule;
pub use full_queues::FullQueues;
pub use moved::Moving;
pub use parse::{
    act_on, dead_job, due_stated, due_within, from_fields, moment_ms, parse, schedule_from_fields,
    timing_from_fields,
};
pub use reject::{Code, Rejection};
pub use rules::{BrokerRules, RequestRules};

pub use dwell_store::request::{Act, KeptParts, NewJob, NewSchedule, Origin, OwnQueues, Request};
