//! Rejected requests that return to an ingest and are still bad. Each becomes a dead job, so
//! that no loop goes on and no request is lost.
//!
//! `rejected` may lead back to the ingest in a way that the settings do not show. A request that
//! came back like this is never rejected again. An event of a job is no request, and is dropped.

use std::time::Duration;

use dwell_connectors::Message;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Ingest;
use super::reject::Rejections;
use crate::clock::{self, Instant};
use crate::delayed_headers::{ATTEMPT, DEAD_REASON, DUE, ID, LAST_ERROR};
use crate::events::{JobEvent, Observer};
use crate::outgoing::{Rejected, was_rejected};
use crate::request::{Rejection, Request, dead_job, is_own_event};

/// The error is logged at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The requests that came back since the last log line.
#[derive(Debug, Default)]
pub(super) struct ReturnedRejections(Mutex<(Option<Instant>, usize)>);

impl ReturnedRejections {
    /// Adds `more`. Returns how many to log now, if any.
    fn count(&self, more: usize, now: Instant) -> Option<usize> {
        let (told, count) = &mut *self.0.lock();
        *count += more;
        if told.is_some_and(|told| now.saturating_duration_since(told) < LOG_INTERVAL) {
            return None;
        }
        *told = Some(now);
        Some(std::mem::take(count))
    }
}

impl Ingest {
    /// Buries the messages that were rejected before, and returns the others. `None` if given up.
    pub(super) async fn keep_returned(
        &self,
        rejections: Rejections,
        give_up: &CancellationToken,
    ) -> Option<Rejections> {
        let (returned, mut others): (Rejections, Rejections) =
            rejections.into_iter().partition(|(request, _)| was_rejected(request));
        let Some(code) = returned.first().map(|(_, rejection)| rejection.code.as_str()) else {
            return Some(others);
        };
        // Its dead job would make another event, without an end. The job that it tells of has lost
        // nothing.
        let (events, returned): (Rejections, Rejections) =
            returned.into_iter().partition(|(message, _)| is_own_event(message));
        self.apply.events.metrics().events_dropped(events.len() as u64);
        let mut dead: Vec<Request> =
            returned.iter().map(|(request, rejection)| self.dead_job(request, rejection)).collect();
        let answers = self.answers(&mut dead, give_up).await?;
        let mut count = returned.len();
        // A damaged bucket stores no job: its requests are rejected once more.
        let refused: Rejections = returned
            .into_iter()
            .zip(answers)
            .filter_map(|(one, answer)| answer.is_err().then_some(one))
            .collect();
        count -= refused.len();
        others.extend(refused);
        let event = JobEvent::Returned { ingest: &self.name, count: count as u64 };
        self.apply.events.observe(&event);
        if let Some(count) = self.returned.count(count + events.len(), clock::now()) {
            tracing::error!(
                ingest = self.name,
                rejected = %self.rejected,
                code,
                count,
                "rejected requests return to the ingest and become dead jobs, and events of jobs are dropped; find the route from `rejected` to the ingest, then see `dwell ls --state dead`"
            );
        }
        Some(others)
    }

    /// The dead job of a message.
    fn dead_job(&self, request: &Message, rejection: &Rejection) -> Request {
        let mut rejected =
            Rejected::new(request.clone(), rejection, self.publisher.connector().capabilities());
        rejected.cut(usize::try_from(self.rules.limits.max_body.bytes()).unwrap_or(usize::MAX));
        let mut message = rejected.message();
        // Notes of an earlier dead letter, which the next dead letter writes again.
        message.headers.retain(|header| {
            ![ID, ATTEMPT, DUE, DEAD_REASON, LAST_ERROR].contains(&header.name.as_str())
        });
        let new_job = dead_job(
            request,
            message,
            self.rejected.clone(),
            &self.rules,
            self.apply.store.now_ms(),
        );
        Request::NewJob(Box::new(new_job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_told_at_once_and_then_once_an_interval() {
        let returned = ReturnedRejections::default();
        let told = || returned.count(1, clock::now());
        assert_eq!((told(), told(), told()), (Some(1), None, None));
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!((told(), told()), (Some(3), None));
    }
}
