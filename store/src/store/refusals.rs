//! The refusals of a login by Redis, which all connections with the same settings share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::error::{Class, StoreError};
use crate::clock::{self, Instant};

/// A refusal after more than this time without one is a new one. A refused client tries again
/// within seconds.
const REFUSAL_TTL: Duration = Duration::from_secs(30);

/// The last refusal of a login with these settings, by any connection.
#[derive(Clone, Default)]
pub struct Refusals(Arc<Mutex<LastRefusal>>);

#[derive(Default)]
struct LastRefusal {
    last: Option<Instant>,
    why: Option<String>,
}

impl Refusals {
    /// The reason why Redis refuses this process; `None` if it does not refuse.
    #[must_use]
    pub fn now(&self) -> Option<String> {
        let state = self.0.lock();
        state.why.clone().filter(|_| {
            state.last.is_some_and(|last| clock::now().duration_since(last) < REFUSAL_TTL)
        })
    }

    /// Notes an error if Redis refused a login. Logs the first refusal of a row.
    pub(super) fn note(&self, error: &StoreError) {
        if error.class != Class::Refused {
            return;
        }
        let now = clock::now();
        let mut state = self.0.lock();
        if state.last.is_none_or(|last| now.duration_since(last) >= REFUSAL_TTL) {
            tracing::warn!(%error, hint = error.hint, "redis refuses the login, trying again");
        }
        state.last = Some(now);
        state.why = Some(error.message.clone());
    }

    /// Redis answered on a new connection.
    pub(super) fn accepted(&self) {
        if self.0.lock().why.take().is_some() {
            tracing::info!("redis accepts the login");
        }
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> StoreError {
        StoreError::new(Class::Refused, "WRONGPASS")
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_stands_until_redis_accepts_or_nobody_asks_any_more() {
        let (refusals, others) = (Refusals::default(), Refusals::default());
        assert_eq!(refusals.now(), None);
        refusals.clone().note(&refusal());
        assert_eq!((refusals.now().as_deref(), others.now()), (Some("WRONGPASS"), None));
        refusals.accepted();
        assert_eq!(refusals.now(), None);
        refusals.note(&StoreError::new(Class::Io, "away"));
        assert_eq!(refusals.now(), None);
        refusals.note(&refusal());
        clock::sleep(REFUSAL_TTL).await;
        assert_eq!(refusals.now(), None);
    }
}
