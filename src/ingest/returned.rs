//! Rejected requests that come back in and are still bad. A job among the dead keeps each of them, so that no loop goes on and no request is lost.
//!
//! `rejected` may lead back to the ingest in a way that the settings do not show: such a request is never rejected again.

use std::time::Duration;

use dwell_connectors::Message;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Ingest;
use super::reject::Rejections;
use crate::clock::{self, Instant};
use crate::outgoing::{ATTEMPT, DEAD_REASON, DUE, ID, LAST_ERROR, Rejected, was_rejected};
use crate::request::{Rejection, Request, kept};
use crate::telemetry::IngestResult;

/// The ERROR is said once in so long.
const INTERVAL: Duration = Duration::from_secs(60);

/// What came back, since the last word on it.
#[derive(Debug, Default)]
pub(super) struct Returned(Mutex<(Option<Instant>, usize)>);

impl Returned {
    /// So many more: how many are to be told now, if any.
    fn count(&self, more: usize, now: Instant) -> Option<usize> {
        let (told, count) = &mut *self.0.lock();
        *count += more;
        if told.is_some_and(|told| now.saturating_duration_since(told) < INTERVAL) {
            return None;
        }
        *told = Some(now);
        Some(std::mem::take(count))
    }
}

impl Ingest {
    /// Keeps those among the dead that were rejected before; the others. `None` when given up.
    pub(super) async fn keep_returned(&self, rejections: Rejections, give_up: &CancellationToken) -> Option<Rejections> {
        let (returned, mut others): (Rejections, Rejections) = rejections.into_iter().partition(|(request, _)| was_rejected(request));
        let Some(code) = returned.first().map(|(_, rejection)| rejection.code.as_str()) else { return Some(others) };
        let mut kept: Vec<Request> = returned.iter().map(|(request, rejection)| self.kept(request, rejection)).collect();
        let answers = self.answers(&mut kept, give_up).await?;
        let mut count = returned.len();
        // A damaged bucket keeps none: such are rejected once more.
        let refused: Rejections = returned.into_iter().zip(answers).filter_map(|(one, answer)| answer.is_err().then_some(one)).collect();
        count -= refused.len();
        others.extend(refused);
        self.count(IngestResult::Rejected, count as u64);
        if let Some(count) = self.returned.count(count, clock::now()) {
            tracing::error!(
                ingest = self.name,
                rejected = %self.rejected,
                code,
                count,
                "rejected requests come back into the ingest, they are kept among the dead and not rejected again: find what leads `rejected` back, then see `dwell ls --state dead`"
            );
        }
        Some(others)
    }

    /// The job that keeps it.
    fn kept(&self, request: &Message, rejection: &Rejection) -> Request {
        let mut rejected = Rejected::new(request.clone(), rejection, self.publisher.connector().capabilities());
        rejected.cut(usize::try_from(self.rules.limits.max_body).unwrap_or(usize::MAX));
        let mut message = rejected.message();
        // What an earlier job said of it, which the letter of this one says anew.
        message.headers.retain(|header| ![ID, ATTEMPT, DUE, DEAD_REASON, LAST_ERROR].contains(&header.name.as_str()));
        let schedule = kept(request, message, self.rejected.clone(), &self.rules, self.apply.store.now_ms());
        Request::Schedule(Box::new(schedule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_told_at_once_and_then_once_an_interval() {
        let returned = Returned::default();
        let told = || returned.count(1, clock::now());
        assert_eq!((told(), told(), told()), (Some(1), None, None));
        tokio::time::advance(INTERVAL).await;
        assert_eq!((told(), told()), (Some(3), None));
    }
}
