//! The outcomes of publications, for metrics and spans.

/// The outcome of a publication: the words of `dwell_publish_total{outcome}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The broker confirmed it.
    Confirmed,
    /// The destination does not exist.
    Unroutable,
    /// The broker does not take it now.
    Refused,
    /// The destination answered with an error, or cannot be reached.
    Failed,
    /// The broker will never take it.
    Invalid,
    /// No answer, or an inconclusive one.
    Unknown,
}

impl PublishOutcome {
    /// Every outcome, in the order of the contract.
    pub const ALL: [PublishOutcome; 6] = [
        PublishOutcome::Confirmed,
        PublishOutcome::Unroutable,
        PublishOutcome::Refused,
        PublishOutcome::Failed,
        PublishOutcome::Invalid,
        PublishOutcome::Unknown,
    ];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PublishOutcome::Confirmed => "confirmed",
            PublishOutcome::Unroutable => "unroutable",
            PublishOutcome::Refused => "refused",
            PublishOutcome::Failed => "failed",
            PublishOutcome::Invalid => "invalid",
            PublishOutcome::Unknown => "unknown",
        }
    }
}
