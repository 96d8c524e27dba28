//! Why a request is refused: the code of the contract, and what was wrong.

use crate::job::JobId;
use crate::store::error::StoreError;

/// Why a request is refused. The words of `delayed-error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the words of the contract, §1, where each is explained")]
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
    /// Every code, in the order of the contract.
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

    /// The word of the contract.
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

/// A refused request: the message goes to the ingest's `rejected` destination with both as `delayed-error` and `delayed-error-detail`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct Rejection {
    /// The code.
    pub code: Code,
    /// What was wrong and what to write instead, on one line. Never the body; values from the message are shortened.
    pub detail: String,
}

impl Rejection {
    /// A refusal with this code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Rejection { code, detail: detail.into() }
    }

    /// The refusal of a request for a job that the store cannot read.
    #[must_use]
    pub fn unreadable(id: &JobId, error: &StoreError) -> Self {
        let (id, StoreError { message, hint, .. }) = (crate::units::quote(id.as_str()), error);
        Rejection::new(Code::UnreadableJob, format!("what is stored of {id} cannot be read, and nothing changed: {message}; {hint}"))
    }

    /// The refusal of a `delay-on-conflict: reject` whose id exists: only the store knows.
    #[must_use]
    pub fn conflict(id: &JobId) -> Self {
        Rejection::new(
            Code::Conflict,
            format!(
                "a job with the id {} exists, and delay-on-conflict is reject: take another id, or replace",
                crate::units::quote(id.as_str())
            ),
        )
    }
}
