//! A job: its message, target and rules.

mod id;
mod rules;
mod target;
mod verdict;

use bytes::Bytes;
use dwell_core::{Destination, Headers, Properties};

pub use self::id::JobId;
pub use self::rules::{Confirm, Conflict, Due, Expire, Late, OnTimeout};
pub use self::target::Target;
pub use self::verdict::{Action, DeadReason, Verdict};

/// The default TTR of a job, ms: the default of `delivery.ttr`.
pub const DEFAULT_TTR_MS: u32 = 30_000;

/// A message with its target and rules. The record stores it; the body is separate and unchanged.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct Job {
    /// The place that gets the job.
    pub target: Target,
    /// Kafka key.
    pub key: Option<Bytes>,
    /// The headers to publish, without control headers.
    pub headers: Headers,
    /// AMQP properties as received.
    pub properties: Option<Box<Properties>>,
    /// The longest time of one attempt, ms.
    pub ttr_ms: u32,
    /// The side that confirms an attempt: broker or consumer.
    pub confirm: Confirm,
    /// Waits between attempts, ms; empty: a single attempt. `None`: the `delivery.retry` of the
    /// delivering instance.
    pub retry: Option<Vec<u64>>,
    /// The fate of a job that is too late; `None`: the `delivery.late` of the delivering instance.
    pub late: Option<Late>,
    /// The job is too late if overdue by more than this, ms; `None`: `delivery.max_late`.
    pub max_late_ms: Option<u64>,
    /// When the job expires; `None`: never.
    pub expire: Option<Expire>,
    /// Of a job of a queue: the next step after an expired lease.
    pub on_timeout: OnTimeout,
    /// Of a job of a queue: the most hand-outs, without a wait between them, instead of the retry
    /// array; 0: no limit. Only the drop-in listeners set this: lmstfy's, and delay-queue's 0.
    pub tries: Option<u16>,
    /// Of a job of a queue: the job is removed then without a trace, in any state; epoch ms. Only the
    /// drop-in listener for lmstfy sets this. An expiry, after which the job is dead, is `expire`.
    pub remove_at_ms: Option<i64>,
    /// The time at which the request was read, epoch ms by the reader's clock: for people.
    pub created_ms: i64,
    /// The kind of broker that the request came from (`nats`, `kafka`, `amqp`); empty for HTTP and
    /// the command line.
    pub origin: String,
    /// The `traceparent` of the request's span, to which attempts link.
    pub trace: Option<String>,
    /// The number of returns of the message to an ingest before this request.
    pub round: u32,
    /// Of a job that debounces ([`Conflict::Debounce`]): the time of the first request, epoch ms, as
    /// Redis stored it.
    pub debounced_ms: Option<i64>,
    /// False for a Kafka tombstone.
    pub has_body: bool,
    /// The body, byte for byte.
    pub body: Bytes,
}

impl Job {
    /// A job of this body for a destination on `[brokers.NAME]`, confirmed by the broker, with the
    /// retry array of the instance that delivers it. The other fields may be set before it is sent.
    #[must_use]
    pub fn new(broker: impl Into<String>, to: Destination, body: impl Into<Bytes>) -> Self {
        Job::of(Target::Broker { broker: broker.into(), to }, body.into())
    }

    /// A job of this body for the consumers of a queue. The other fields may be set before it is
    /// sent.
    #[must_use]
    pub fn for_queue(queue: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Job::of(Target::Queue { queue: queue.into() }, body.into())
    }

    fn of(target: Target, body: Bytes) -> Self {
        Job {
            target,
            key: None,
            headers: Headers::default(),
            properties: None,
            ttr_ms: DEFAULT_TTR_MS,
            confirm: Confirm::Broker,
            retry: None,
            late: None,
            max_late_ms: None,
            expire: None,
            on_timeout: OnTimeout::Ready,
            tries: None,
            remove_at_ms: None,
            created_ms: crate::clock::wall_ms(),
            origin: String::new(),
            trace: None,
            round: 0,
            debounced_ms: None,
            has_body: true,
            body,
        }
    }

    /// The queue of the job; `None` for a job of a broker.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        self.target.queue()
    }

    /// The `[brokers.NAME]` of the job; `None` for a job of a queue.
    #[must_use]
    pub fn broker(&self) -> Option<&str> {
        self.target.broker()
    }

    /// The destination on the broker of the job; `None` for a job of a queue.
    #[must_use]
    pub fn destination(&self) -> Option<&Destination> {
        self.target.destination()
    }
}

/// Whether this is the name of a queue: 1 to 255 of `A-Z a-z 0-9 . _ -`.
#[must_use]
pub fn is_queue_name(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}
