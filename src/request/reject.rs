//! The reason of a rejected request: a code, and the mistake.

use crate::job::JobId;
use crate::store::error::StoreError;

/// The codes with their words. Only lists: they stay readable as a table.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal;)+) => {
        /// Why a request is rejected: the words of `delayed-error`. `docs/reference/error-codes.md`
        /// lists them for users.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name,)+];

            /// The word in `delayed-error`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $word,)+ }
            }
        }
    };
}

codes! {
    /// The request has neither `delay-for` nor `delay-until`.
    MissingDelay = "missing_delay";
    /// The delay cannot be read.
    BadDelay = "bad_delay";
    /// The request has both `delay-for` and `delay-until`.
    AmbiguousDelay = "ambiguous_delay";
    /// The delay exceeds `limits.max_delay`.
    DelayTooLong = "delay_too_long";
    /// Neither the request nor its ingest names a target.
    MissingTarget = "missing_target";
    /// `allow` does not list the target or the reply destination.
    TargetNotAllowed = "target_not_allowed";
    /// The settings have no broker of this name.
    UnknownBroker = "unknown_broker";
    /// The queue's name is not 1 to 255 of letters, digits, `.`, `_` and `-`.
    BadQueue = "bad_queue";
    /// The settings have neither this queue nor a pattern for it.
    UnknownQueue = "unknown_queue";
    /// The queue has `max_jobs` jobs.
    QueueFull = "queue_full";
    /// The id is not 1 to 256 bytes of UTF-8 without control characters.
    BadId = "bad_id";
    /// The retry array cannot be read, or exceeds `limits.max_retries`.
    BadRetry = "bad_retry";
    /// The TTR cannot be read, or exceeds `limits.max_ttr`.
    BadTtr = "bad_ttr";
    /// A control header is unknown, unreadable or repeated, or a header cannot pass to the target's
    /// broker.
    BadHeader = "bad_header";
    /// The recurring schedule cannot be read, or has no time from now on.
    BadSchedule = "bad_schedule";
    /// The action is unknown, or lacks an id.
    BadAction = "bad_action";
    /// The body is not a readable envelope.
    BadEnvelope = "bad_envelope";
    /// The body exceeds `limits.max_body`.
    BodyTooLarge = "body_too_large";
    /// The message is older than `max_age` of its ingest.
    TooOld = "too_old";
    /// The stored job that the request acts on cannot be read.
    UnreadableJob = "unreadable_job";
    /// The id exists, and `delay-on-conflict` is `reject`.
    Conflict = "conflict";
    /// The target leads back to an ingest, or the message returned without a delay or too often.
    Loop = "loop";
}

/// Why a request is rejected. The message goes to `rejected` with both fields as `delayed-error`
/// and `delayed-error-detail`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct Rejection {
    /// The code.
    pub code: Code,
    /// The mistake and its remedy, on one line. Never contains the body; shortens values of the
    /// message.
    pub detail: String,
}

impl Rejection {
    /// A rejection with this code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Rejection { code, detail: detail.into() }
    }

    /// The rejection of a request for a job that the store cannot read, or whose script fails again
    /// and again.
    #[must_use]
    pub fn unreadable(id: &JobId, error: &StoreError) -> Self {
        let (id, StoreError { message, hint, .. }) = (crate::units::quote(id.as_str()), error);
        Rejection::new(
            Code::UnreadableJob,
            format!(
                "the stored job {id} cannot be read or changed, and nothing changed: {message}; {hint}"
            ),
        )
    }

    /// The rejection of a `fire` of a schedule whose queue is full, as the store reports.
    #[must_use]
    pub fn full_queue_of(id: &JobId) -> Self {
        let id = crate::units::quote(id.as_str());
        Rejection::new(
            Code::QueueFull,
            format!("the queue of the schedule {id} has max_jobs: fire it again later"),
        )
    }

    /// The rejection of an id that a job or schedule has which the caller must not know.
    #[must_use]
    pub fn taken(id: &JobId) -> Self {
        let id = crate::units::quote(id.as_str());
        Rejection::new(
            Code::Conflict,
            format!(
                "a job or schedule with the id {id} exists, and this token has not its queue: send another id"
            ),
        )
    }

    /// The rejection of a `delay-on-conflict: reject` whose id exists, as the store reports.
    #[must_use]
    pub fn conflict(id: &JobId) -> Self {
        Rejection::new(
            Code::Conflict,
            format!(
                "a job or schedule with the id {} exists, and delay-on-conflict is reject: send another id, or replace",
                crate::units::quote(id.as_str())
            ),
        )
    }

    /// The rejection of a job whose id a schedule has, or of a schedule whose id a job has: one id
    /// is never both. `stands`: `schedule` or `job`, what the id stands for.
    #[must_use]
    pub fn clash(id: &JobId, stands: &str) -> Self {
        Rejection::new(
            Code::Conflict,
            format!(
                "a {stands} with the id {} exists: send another id, or cancel the {stands} first",
                crate::units::quote(id.as_str())
            ),
        )
    }
}
