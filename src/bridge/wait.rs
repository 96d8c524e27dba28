//! What a start waits for: servers that cannot be reached, told in the log and in readiness until they are there or the patience is over.

use std::time::Duration;

use super::{Cause, StartError};
use crate::clock::{self, Instant};
use crate::http::{Readiness, Waiting};
use crate::reconnect::Backoff;

/// How often a start says what it waits for.
const TELL: Duration = Duration::from_secs(10);

/// How long a start waits, and who hears for what.
#[derive(Clone)]
pub(super) struct Wait {
    pub(super) readiness: Readiness,
    /// Without one it waits for ever.
    until: Option<Instant>,
}

impl Wait {
    /// Begins now.
    pub(super) fn new(readiness: &Readiness, patience: Option<Duration>) -> Self {
        Wait { readiness: readiness.clone(), until: patience.map(|patience| clock::now() + patience) }
    }

    /// Tries until it works. What is unreachable is waited for; any other error ends the wait, and so does the end of the patience, but never before
    /// a first try.
    pub(super) async fn until_there<T, F>(&self, what: &Waiting, mut attempt: impl FnMut() -> F) -> Result<T, StartError>
    where
        F: Future<Output = Result<T, StartError>>,
    {
        let mut backoff = Backoff::link();
        let mut told: Option<Instant> = None;
        let mut tried = attempt().await;
        loop {
            let error = match tried {
                Err(error) if error.cause == Cause::Unreachable => error,
                done => return done,
            };
            let now = clock::now();
            let left = self.until.map(|until| until.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(error);
            }
            self.readiness.missing(what, &error.message);
            if told.is_none_or(|told| now.duration_since(told) >= TELL) {
                tracing::warn!(waiting_for = %what, %error, hint = error.hint, "waiting for what cannot be reached");
                told = Some(now);
            }
            let again = async {
                clock::sleep(backoff.pause()).await;
                attempt().await
            };
            tried = match left {
                Some(left) => clock::timeout(left, again).await.unwrap_or(Err(error)),
                None => again.await,
            };
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn error(cause: Cause) -> StartError {
        StartError { cause, message: "far away".to_owned(), hint: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_unreachable_is_waited_for_and_only_so_long() {
        let readiness = Readiness::new([]);
        let tries = AtomicU32::new(0);
        let fails_until = |count: u32, cause: Cause| {
            let tries = &tries;
            tries.store(0, Ordering::Relaxed);
            move || async move { if tries.fetch_add(1, Ordering::Relaxed) < count { Err(error(cause)) } else { Ok(()) } }
        };
        let store = Waiting::Store;
        let for_ever = Wait::new(&readiness, None);
        for_ever.until_there(&store, fails_until(200, Cause::Unreachable)).await.unwrap();
        assert_eq!(readiness.waiting(), [(Waiting::Store, "far away".to_owned())], "whoever tried says when it is there");
        for_ever.until_there(&store, fails_until(1, Cause::Refused)).await.unwrap_err();

        let at_once = Wait::new(&readiness, Some(Duration::ZERO));
        at_once.until_there(&store, fails_until(1, Cause::Unreachable)).await.unwrap_err();
        assert_eq!(tries.load(Ordering::Relaxed), 1);

        let begun = clock::now();
        let patient = Wait::new(&readiness, Some(Duration::from_secs(30)));
        let failed = patient.until_there(&store, fails_until(u32::MAX, Cause::Unreachable)).await.unwrap_err();
        assert_eq!((failed.cause, begun.elapsed()), (Cause::Unreachable, Duration::from_secs(30)));
        // Also where a try hangs.
        let begun = clock::now();
        tries.store(0, Ordering::Relaxed);
        let hangs = || async {
            if tries.fetch_add(1, Ordering::Relaxed) > 0 {
                std::future::pending::<()>().await;
            }
            Err::<(), _>(error(Cause::Unreachable))
        };
        Wait::new(&readiness, Some(Duration::from_secs(30))).until_there(&store, hangs).await.unwrap_err();
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
    }
}
