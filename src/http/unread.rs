//! The large answers that clients have not taken yet. Where their memory is used up, the connections of
//! the slowest clients end: nobody keeps others from an answer by not reading.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::budget::{Budget, Share, UsedUp};
use crate::clock::{self, Instant};

/// A client that has not taken an answer after this time loses its connection where others need the room.
const SLOW: Duration = Duration::from_secs(1);

/// Ends one connection. Clones end the same one.
pub(super) type HangUp = Arc<Notify>;

/// The answers of all connections of some listeners. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct UnreadAnswers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    budget: Budget,
    answers: Mutex<Ordered>,
}

/// Answers in the order in which they began.
#[derive(Debug, Default)]
struct Ordered {
    next: u64,
    by_age: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    begun: Instant,
    bytes: usize,
    hang_up: HangUp,
}

/// The room of one answer. Dropped, the room is free.
#[derive(Debug)]
pub(super) struct AnswerShare {
    answers: UnreadAnswers,
    number: u64,
    share: Share,
}

impl UnreadAnswers {
    /// Room for so many bytes.
    pub(super) fn new(bytes: usize) -> UnreadAnswers {
        UnreadAnswers(Arc::new(Inner { budget: Budget::new(bytes), answers: Mutex::default() }))
    }

    /// Takes room for an answer of a connection. An answer that is larger than all of the room takes all.
    /// Waits up to two seconds for others, and ends connections whose clients are slow to read.
    ///
    /// # Errors
    /// The room is used up by answers that began less than a second ago.
    pub(super) async fn take(&self, bytes: usize, hang_up: &HangUp) -> Result<AnswerShare, UsedUp> {
        let (budget, bytes) = (&self.0.budget, bytes.min(self.0.budget.bytes()));
        let mut share = budget.share();
        if !share.grow(bytes) {
            self.hang_up_on_slow(bytes);
            share = match budget.take(bytes).await {
                Ok(share) => share,
                Err(UsedUp) => {
                    self.hang_up_on_slow(bytes);
                    budget.take(bytes).await?
                }
            };
        }
        let entry = Entry { begun: clock::now(), bytes, hang_up: hang_up.clone() };
        let mut answers = self.0.answers.lock();
        let number = answers.next;
        answers.next += 1;
        answers.by_age.insert(number, entry);
        Ok(AnswerShare { answers: self.clone(), number, share })
    }

    /// Ends the connections with the oldest answers of slow clients, until so many bytes come back.
    fn hang_up_on_slow(&self, bytes: usize) {
        let (now, mut back) = (clock::now(), 0);
        let mut answers = self.0.answers.lock();
        while back < bytes
            && let Some(oldest) = answers.by_age.first_entry()
            && now.saturating_duration_since(oldest.get().begun) >= SLOW
        {
            let slow = oldest.remove();
            back += slow.bytes;
            slow.hang_up.notify_one();
            tracing::debug!(bytes = slow.bytes, "a connection ends: its client does not read the answer, and others need the memory");
        }
    }
}

impl AnswerShare {
    /// The bytes of the room.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.share.bytes()
    }

    /// Keeps at most so many bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.share.shrink_to(bytes);
    }
}

impl Drop for AnswerShare {
    fn drop(&mut self) {
        self.answers.0.answers.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_slow_client_makes_room() {
        let answers = UnreadAnswers::new(10);
        let clients: Vec<HangUp> = (0..4).map(|_| HangUp::default()).collect();
        let mut held = Vec::new();
        for client in &clients[..2] {
            held.push(answers.take(5, client).await.unwrap());
        }
        // Its connection ends, and with it its answer: here by hand.
        let (first, second) = (held.remove(0), held.remove(0));
        let ends = clients[0].clone();
        let gone = tokio::spawn(async move {
            ends.notified().await;
            drop(first);
        });
        let third = answers.take(4, &clients[2]).await.unwrap();
        gone.await.unwrap();
        assert_eq!((third.bytes(), clients[1].notified().now_or_never()), (4, None), "one is enough");
        // Answers that have just begun make no room.
        drop(second);
        let fourth = answers.take(6, &clients[3]).await.unwrap();
        assert_eq!((fourth.bytes(), clients[2].notified().now_or_never()), (6, None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_gives_back_is_waited_for_two_seconds() {
        let answers = UnreadAnswers::new(10);
        let _held = answers.take(20, &HangUp::default()).await.unwrap();
        let begun = clock::now();
        assert_eq!(answers.take(1, &HangUp::default()).await.err(), Some(UsedUp));
        assert_eq!(clock::now() - begun, Duration::from_secs(2));
    }
}
