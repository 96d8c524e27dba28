//! The response of a destination, and the time after which none is expected any more.

use std::time::Duration;

/// A new destination is slow once no answer has come for this long. An error that took longer
/// counts as no answer. An unknown outcome that came sooner, because the job's time to run was
/// over, says nothing about the destination.
pub(in crate::dispatch) const SILENCE_LIMIT: Duration = Duration::from_secs(2);

/// The response of a destination, as far as its share is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) enum Response {
    /// Confirmed, after this time.
    Confirmed(Duration),
    /// Any other answer, after this time.
    Answered(Duration),
    /// No answer.
    Unknown,
    /// The outcome says nothing about the destination.
    Nothing,
}
