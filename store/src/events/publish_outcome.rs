//! The outcomes of publications, for metrics and spans.

use crate::words::words;

words! {
    /// The outcome of a publication: the words of `dwell_publish_total{outcome}`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum PublishOutcome {
        /// The broker confirmed it.
        Confirmed = "confirmed",
        /// The destination does not exist.
        Unroutable = "unroutable",
        /// The broker does not take it now.
        Refused = "refused",
        /// The destination answered with an error, or cannot be reached.
        Failed = "failed",
        /// The broker will never take it.
        Invalid = "invalid",
        /// No answer, or an inconclusive one.
        Unknown = "unknown",
    }
}
