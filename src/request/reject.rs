//! Why a request is rejected: a code, and what was wrong.

use crate::job::JobId;
use crate::store::error::StoreError;

/// Why a request is rejected: the words of `delayed-error`, which docs/reference/error-codes.md
/// explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "docs/reference/error-codes.md explains each word")]
pub enum Code {
    MissingDelay,
    BadDelay,
    AmbiguousDelay,
    DelayTooLong,
    MissingTarget,
    TargetNotAllowed,
    UnknownBroker,
    BadId,
    BadRetry,
    BadTtr,
    BadHeader,
    BadAction,
    BadEnvelope,
    BodyTooLarge,
    TooOld,
    UnreadableJob,
    Conflict,
    Loop,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 18] = [
        Code::MissingDelay,
        Code::BadDelay,
        Code::AmbiguousDelay,
        Code::DelayTooLong,
        Code::MissingTarget,
        Code::TargetNotAllowed,
        Code::UnknownBroker,
        Code::BadId,
        Code::BadRetry,
        Code::BadTtr,
        Code::BadHeader,
        Code::BadAction,
        Code::BadEnvelope,
        Code::BodyTooLarge,
        Code::TooOld,
        Code::UnreadableJob,
        Code::Conflict,
        Code::Loop,
    ];

    /// The word in `delayed-error`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::MissingDelay => "missing_delay",
            Code::BadDelay => "bad_delay",
            Code::AmbiguousDelay => "ambiguous_delay",
            Code::DelayTooLong => "delay_too_long",
            Code::MissingTarget => "missing_target",
            Code::TargetNotAllowed => "target_not_allowed",
            Code::UnknownBroker => "unknown_broker",
            Code::BadId => "bad_id",
            Code::BadRetry => "bad_retry",
            Code::BadTtr => "bad_ttr",
            Code::BadHeader => "bad_header",
            Code::BadAction => "bad_action",
            Code::BadEnvelope => "bad_envelope",
            Code::BodyTooLarge => "body_too_large",
            Code::TooOld => "too_old",
            Code::UnreadableJob => "unreadable_job",
            Code::Conflict => "conflict",
            Code::Loop => "loop",
        }
    }
}

/// Why a request is rejected. The message goes to `rejected` with both fields as `delayed-error`
/// and `delayed-error-detail`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct Rejection {
    /// The code.
    pub code: Code,
    /// What was wrong and what to send instead, on one line. Never contains the body; shortens
    /// values of the message.
    pub detail: String,
}

impl Rejection {
    /// A rejection with this code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Rejection { code, detail: detail.into() }
    }

    /// The rejection of a request for a job that the store cannot read.
    #[must_use]
    pub fn unreadable(id: &JobId, error: &StoreError) -> Self {
        let (id, StoreError { message, hint, .. }) = (crate::units::quote(id.as_str()), error);
        Rejection::new(Code::UnreadableJob, format!("the stored job {id} cannot be read, and nothing changed: {message}; {hint}"))
    }

    /// The rejection of a `delay-on-conflict: reject` whose id exists, as the store reports.
    #[must_use]
    pub fn conflict(id: &JobId) -> Self {
        Rejection::new(
            Code::Conflict,
            format!(
                "a job with the id {} exists, and delay-on-conflict is reject: send another id, or replace",
                crate::units::quote(id.as_str())
            ),
        )
    }
}
