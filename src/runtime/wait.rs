//! Waits at start for servers that cannot be reached, and for sources and destinations that they
//! lack.

use std::time::Duration;

use super::{Cause, StartError};
use crate::clock::{self, Instant};
use crate::readiness::{Outage, Readiness, Waiting};
use crate::reconnect::Backoff;

/// The longest wait of a start, and the place where it is reported.
#[derive(Clone)]
pub(super) struct StartWait {
    pub(super) readiness: Readiness,
    /// `None`: it waits for ever.
    until: Option<Instant>,
}

impl StartWait {
    /// Starts the wait now.
    pub(super) fn new(readiness: &Readiness, max_wait: Option<Duration>) -> Self {
        StartWait {
            readiness: readiness.clone(),
            until: max_wait.map(|max_wait| clock::now() + max_wait),
        }
    }

    /// Tries until it works. Waits for unreachable servers, missing sources and destinations until
    /// the limit, after at least one try. Any other error ends the wait.
    pub(super) async fn until_reached<T, F>(
        &self,
        what: &Waiting,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, StartError>
    where
        F: Future<Output = Result<T, StartError>>,
    {
        let mut backoff = Backoff::link();
        let mut outage = Outage::new(&self.readiness, what.clone());
        let mut tried = attempt().await;
        loop {
            let error = match tried {
                Err(error) if matches!(error.cause, Cause::Unreachable | Cause::Missing) => error,
                done => return done,
            };
            let now = clock::now();
            let left = self.until.map(|until| until.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(error);
            }
            outage.tell(error.cause.kind(), &error, &error.hint);
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
            move || async move {
                if tries.fetch_add(1, Ordering::Relaxed) < count {
                    Err(error(cause))
                } else {
                    Ok(())
                }
            }
        };
        let store = Waiting::Store;
        let for_ever = StartWait::new(&readiness, None);
        for_ever.until_reached(&store, fails_until(200, Cause::Unreachable)).await.unwrap();
        assert_eq!(
            readiness.waiting(),
            [(Waiting::Store, "far away".to_owned())],
            "the caller reports when it is reached"
        );
        for_ever.until_reached(&store, fails_until(1, Cause::Refused)).await.unwrap_err();

        let at_once = StartWait::new(&readiness, Some(Duration::ZERO));
        at_once.until_reached(&store, fails_until(1, Cause::Unreachable)).await.unwrap_err();
        assert_eq!(tries.load(Ordering::Relaxed), 1);

        let begun = clock::now();
        let patient = StartWait::new(&readiness, Some(Duration::from_secs(30)));
        let failed = patient
            .until_reached(&store, fails_until(u32::MAX, Cause::Unreachable))
            .await
            .unwrap_err();
        assert_eq!((failed.cause, begun.elapsed()), (Cause::Unreachable, Duration::from_secs(30)));
        // The same where a try hangs.
        let begun = clock::now();
        tries.store(0, Ordering::Relaxed);
        let hangs = || async {
            if tries.fetch_add(1, Ordering::Relaxed) > 0 {
                std::future::pending::<()>().await;
            }
            Err::<(), _>(error(Cause::Unreachable))
        };
        StartWait::new(&readiness, Some(Duration::from_secs(30)))
            .until_reached(&store, hangs)
            .await
            .unwrap_err();
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
    }
}
