//! The share of a listener's connections that calls which wait may have. The rest is for calls that
//! are answered at once, however many peers have consumers that wait.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderValue, header};
use axum::response::Response;
use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::{self, Instant};

/// The longest wait of a call beyond the share: its client asks again at once.
const MAX_WAIT_BEYOND_SHARE: Duration = Duration::from_secs(1);

/// The calls that may wait for long at a listener. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct WaitShare {
    of_listener: Arc<Semaphore>,
    /// That of all listeners which share their room.
    of_all: Arc<Semaphore>,
}

impl WaitShare {
    /// The share of a listener of so many connections, within that of all listeners.
    pub(super) fn new(connections: usize, of_all: Arc<Semaphore>) -> WaitShare {
        WaitShare { of_listener: places(connections), of_all }
    }

    /// The share of the listener that this request came to.
    pub(crate) fn of(extensions: &Extensions) -> WaitShare {
        // Without a listener there are no other calls.
        let endless = || WaitShare::new(usize::MAX, places(usize::MAX));
        extensions.get().cloned().unwrap_or_else(endless)
    }

    /// A call that waits until then, or for [`MAX_WAIT_BEYOND_SHARE`] if the share is taken.
    pub(crate) fn wait(&self, until: Instant) -> Wait {
        let take = |share: &Arc<Semaphore>| share.clone().try_acquire_owned().ok();
        match take(&self.of_listener).zip(take(&self.of_all)) {
            Some(taken) => Wait { until, taken: Some(taken) },
            None => Wait { until: until.min(clock::now() + MAX_WAIT_BEYOND_SHARE), taken: None },
        }
    }
}

/// The places of calls that wait: three quarters of so many connections.
pub(super) fn places(connections: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new((connections / 4 * 3).clamp(1, Semaphore::MAX_PERMITS)))
}

impl<S: Send + Sync> FromRequestParts<S> for WaitShare {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(WaitShare::of(&parts.extensions))
    }
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Wait {
    until: Instant,
    /// In the share of the listener, and in that of all; `None` beyond the share.
    taken: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

impl Wait {
    /// The end of the wait.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// The answer, which keeps its place in the share until it is there. Beyond the share it ends
    /// its connection: others have waited for one longer than its client has for its next call.
    pub(crate) fn kept(
        self,
        answer: impl Future<Output = Response>,
    ) -> impl Future<Output = Response> {
        let taken = self.taken;
        // Combined: a future that is awaited here has its place twice.
        answer.map(move |mut response| {
            if taken.is_none() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the answer to this call ends its connection.
    async fn closes(wait: Wait) -> bool {
        let answer = wait.kept(std::future::ready(Response::default())).await;
        answer.headers().contains_key(header::CONNECTION)
    }

    #[tokio::test(start_paused = true)]
    async fn three_quarters_wait_for_long_and_the_rest_for_a_moment() {
        let share = WaitShare::new(16, places(1000));
        let until = clock::now() + MAX_WAIT_BEYOND_SHARE * 60;
        let within: Vec<Wait> = (0..12).map(|_| share.wait(until)).collect();
        assert!(within.iter().all(|wait| wait.until() == until));
        for asked in [until, clock::now()] {
            let beyond = share.clone().wait(asked);
            let moment = clock::now() + MAX_WAIT_BEYOND_SHARE;
            assert_eq!(beyond.until(), asked.min(moment));
            assert!(closes(beyond).await);
        }
        for wait in within {
            assert!(!closes(wait).await);
        }
        assert_eq!(share.wait(until).until(), until, "an answered call has no place");
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_that_share_their_room_share_its_places() {
        let all = places(16);
        let [one, other] = [(); 2].map(|()| WaitShare::new(16, all.clone()));
        let until = clock::now() + MAX_WAIT_BEYOND_SHARE * 60;
        let mut within: Vec<Wait> = (0..12).map(|_| one.wait(until)).collect();
        assert!(other.wait(until).until() < until);
        within.pop();
        assert_eq!(other.wait(until).until(), until, "a call that was refused there has no place");
    }
}
