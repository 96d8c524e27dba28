//! The sizes of queues, which anybody may ask for, also without a token: such calls cost Redis
//! little, however many come.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::answer::Error;
use crate::clock::{self, Instant};
use crate::compat::service::Service;
use crate::store::reader::lookup::JobState;

/// The greatest age of a size that a caller without a token gets.
const SIZE_TTL: Duration = Duration::from_secs(1);
/// The pause of callers without a token after a count, whatever queue it is of.
const COUNT_INTERVAL: Duration = Duration::from_millis(20);
/// The most sizes that are kept.
const MAX_CACHED_SIZES: usize = 256;
/// The most callers that wait for a count. Each keeps a connection, which others need.
const MAX_WAITING_CALLERS: usize = 8;

/// The sizes that callers without a token got last.
pub(super) struct Sizes {
    kept: Mutex<HashMap<(String, bool), (Instant, u64)>>,
    waiting: Semaphore,
    /// When the next count may begin.
    next: tokio::sync::Mutex<Instant>,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            kept: Mutex::default(),
            waiting: Semaphore::new(MAX_WAITING_CALLERS),
            next: tokio::sync::Mutex::new(clock::now()),
        }
    }
}

impl Sizes {
    /// Returns the number of ready or dead jobs of a queue. `is_known`: the caller bears a token
    /// and gets the size of now.
    ///
    /// # Errors
    /// Too many callers without a token wait for other sizes, or what Redis says.
    pub(super) async fn of(
        &self,
        service: &Service,
        queue: String,
        state: JobState,
        is_known: bool,
    ) -> Result<u64, Error> {
        if is_known {
            return Ok(service.count(&queue, state).await?);
        }
        let asked = (queue, state == JobState::Dead);
        if let Some(size) = self.kept(&asked) {
            return Ok(size);
        }
        let _waits = self.waiting.try_acquire().map_err(|_| {
            Error::many(
                "many callers without a token ask for sizes: send a token, or ask again later",
            )
        })?;
        // One after the other.
        let mut next = self.next.lock().await;
        if let Some(size) = self.kept(&asked) {
            return Ok(size);
        }
        clock::sleep_until(*next).await;
        let counted = service.count(&asked.0, state).await;
        *next = clock::now() + COUNT_INTERVAL;
        let size = counted?;
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_CACHED_SIZES {
            kept.retain(|_, (at, _)| at.elapsed() < SIZE_TTL);
        }
        if kept.len() < MAX_CACHED_SIZES {
            kept.insert(asked, (clock::now(), size));
        }
        Ok(size)
    }

    fn kept(&self, asked: &(String, bool)) -> Option<u64> {
        self.kept.lock().get(asked).filter(|(at, _)| at.elapsed() < SIZE_TTL).map(|(_, size)| *size)
    }
}
