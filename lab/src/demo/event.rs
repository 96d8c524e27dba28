//! What the demo sees: messages of a broker, and hand-outs over HTTP with their ends.

use dwell_connectors::Message;
use dwell_testkit::environment::Result;

use super::expectations::messages::Place;

/// An event, or the failure of what looks for events.
pub(super) type Seen = Result<Event>;

/// An event of the demo.
#[derive(Debug)]
pub(super) enum Event {
    /// Messages of a broker, with their time of receipt, epoch µs.
    Messages(Place, i64, Vec<Message>),
    /// A hand-out over HTTP.
    HandOut(HandOut),
}

/// A hand-out and its end.
#[derive(Debug)]
pub(super) struct HandOut {
    pub(super) job: Fetched,
    /// When its consumer received it, epoch µs.
    pub(super) at_us: i64,
    pub(super) end: End,
}

/// A job that a consumer has.
#[derive(Debug, Clone)]
pub(super) struct Fetched {
    pub(super) id: String,
    /// Its queue, or the path of its URL.
    pub(super) queue: String,
    pub(super) lease: String,
    /// The number of this hand-out, from 1.
    pub(super) attempt: u32,
    /// Its due time, epoch ms.
    pub(super) due_ms: i64,
    /// The end of the lease, epoch ms.
    pub(super) deadline_ms: i64,
    pub(super) body: Vec<u8>,
}

/// The end of a hand-out.
#[derive(Debug)]
pub(super) enum End {
    /// The consumer finished the job.
    Finished,
    /// The consumer failed the attempt; the next one is due then.
    Failed { error: &'static str, due_ms: i64 },
    /// The consumer failed the last attempt.
    Dead { error: &'static str },
    /// The consumer says nothing.
    Silent,
    /// The consumer finished a lease that was over.
    Late { verdict: String },
    /// Another answer than expected.
    Odd { word: &'static str, verdict: String },
}

impl HandOut {
    /// The event of a hand-out.
    pub(super) fn seen(job: Fetched, at_us: i64, end: End) -> Seen {
        Ok(Event::HandOut(HandOut { job, at_us, end }))
    }
}
