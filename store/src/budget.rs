//! A budget of bytes: the memory that many calls may hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock;

/// The longest wait of a call for bytes that others give back.
const BUDGET_WAIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A budget of bytes. Clones share the budget.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: usize,
    used: AtomicUsize,
    given_back: Notify,
}

/// A share of a budget. Dropped, its bytes are given back.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    bytes: usize,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory for calls is used up")]
pub struct UsedUp;

impl Budget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Budget {
        Budget(Arc::new(Inner { bytes, used: AtomicUsize::new(0), given_back: Notify::new() }))
    }

    /// All bytes of the budget, used or free.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The bytes that are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.bytes.saturating_sub(self.0.used.load(Ordering::Acquire))
    }

    /// A share without bytes, to grow.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }

    /// A share of so many bytes. Waits a moment for others to give bytes back.
    ///
    /// # Errors
    /// The budget is used up.
    pub async fn take(&self, bytes: usize) -> Result<Share, UsedUp> {
        if bytes > self.0.bytes {
            return Err(UsedUp);
        }
        let taken = async {
            loop {
                let given_back = self.0.given_back.notified();
                tokio::pin!(given_back);
                // From here on, the task notices every return of bytes.
                given_back.as_mut().enable();
                if self.reserve(bytes) {
                    return Share { budget: self.clone(), bytes };
                }
                given_back.await;
            }
        };
        clock::timeout(BUDGET_WAIT_TIMEOUT, taken).await.ok_or(UsedUp)
    }

    fn reserve(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.0.bytes);
        self.0.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.0.used.fetch_sub(bytes, Ordering::AcqRel);
            self.0.given_back.notify_waiters();
        }
    }
}

impl Share {
    /// The bytes of the share.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes so many bytes more, if the budget has them.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let is_there = self.budget.reserve(bytes);
        self.bytes += if is_there { bytes } else { 0 };
        is_there
    }

    /// Keeps at most so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.budget.give_back(back);
    }

    /// Adds the bytes of another share of the same budget.
    pub fn add(&mut self, mut other: Share) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shares_are_never_more_than_the_budget() {
        let budget = Budget::new(10);
        let mut share = budget.take(6).await.unwrap();
        assert_eq!(budget.free(), 4);
        assert!(!share.grow(5) && share.grow(4));
        assert_eq!((share.bytes(), budget.take(1).await.err()), (10, Some(UsedUp)));
        share.shrink_to(7);
        let mut other = budget.take(3).await.unwrap();
        other.add(share);
        assert_eq!((other.bytes(), budget.share().grow(1)), (10, false));
        drop(other);
        assert_eq!((budget.take(11).await.err(), budget.share().grow(10)), (Some(UsedUp), true));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_what_is_given_back() {
        let budget = Budget::new(10);
        let share = budget.take(10).await.unwrap();
        let waits: Vec<_> = (0..3)
            .map(|_| {
                tokio::spawn({
                    let budget = budget.clone();
                    async move { budget.take(3).await }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(share);
        for waits in waits {
            assert_eq!(waits.await.unwrap().unwrap().bytes(), 3);
        }
    }
}
