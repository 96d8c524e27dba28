//! When the jobs of one queue fall due, and the pops that wait for them, in their order.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Consumers;
use crate::clock;
use crate::store::error::StoreError;

/// The longest time between two looks at a queue, because a wake-up may be lost.
const FLOOR_POLL: Duration = Duration::from_millis(250);
/// The most sets that one process looks at per second; with more queues each is looked at more rarely.
const LOOKS_A_SECOND: usize = 2000;
/// How long a watch without a waiting pop goes on, so that pops that follow each other share it.
const LINGER: Duration = Duration::from_secs(2);

/// A bucket that has a due job, for one waiting pop.
#[derive(Debug, Clone)]
pub(super) struct Granted {
    pub(super) queue: String,
    pub(super) bucket: u16,
}

/// A pop that waits, in the watches of its queues. Dropped with a grant that it did not take, it
/// gives the grant to the next one.
pub(super) struct Waiter {
    shared: Arc<Shared>,
    consumers: Consumers,
}

struct Shared {
    place: Mutex<Place>,
    changed: Notify,
}

/// The answer to a waiting pop.
enum Place {
    /// None yet.
    Open,
    /// Not taken yet.
    Granted(Result<Granted, StoreError>),
    /// Taken: the pop waits no more.
    Taken,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(Ok(granted)) = self.take() {
            self.consumers.report(&granted.queue, granted.bucket, Some(self.consumers.inner.store.now_us()));
        }
    }
}

impl Waiter {
    pub(super) fn new(consumers: &Consumers) -> Waiter {
        let shared = Arc::new(Shared { place: Mutex::new(Place::Open), changed: Notify::new() });
        Waiter { shared, consumers: consumers.clone() }
    }

    /// What was granted already: a grant that came at the end of the wait counts.
    pub(super) fn take(&self) -> Option<Result<Granted, StoreError>> {
        let mut place = self.shared.place.lock();
        if matches!(*place, Place::Open) {
            return None;
        }
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Granted(granted) => Some(granted),
            Place::Open | Place::Taken => None,
        }
    }

    /// Waits for a bucket, or for the error of the look-up.
    pub(super) async fn granted(&self) -> Result<Granted, StoreError> {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(granted) = self.take() {
                return granted;
            }
            changed.await;
        }
    }
}

/// The watch of one queue. Runs while pops wait for the queue.
pub(super) struct Watch {
    queue: String,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// By bucket: when its first job is due, epoch µs by Redis's clock; `None` if it has no job, or a
    /// pop looks at it now.
    heads: Vec<Option<i64>>,
    /// By bucket: a wake-up came since the last look began, which Redis may not have known of.
    woken: Vec<bool>,
    waiting: VecDeque<Weak<Shared>>,
    /// Look at all buckets before the next grant.
    is_stale: bool,
    is_over: bool,
}

impl Watch {
    pub(super) fn new(queue: &str, buckets: u16) -> Watch {
        let heads = vec![None; usize::from(buckets)];
        let woken = vec![false; usize::from(buckets)];
        let state = State { heads, woken, waiting: VecDeque::new(), is_stale: true, is_over: false };
        Watch { queue: queue.to_owned(), state: Mutex::new(state), changed: Notify::new() }
    }

    /// Adds a waiting pop at the end. False if the watch is over.
    pub(super) fn add(&self, waiter: &Waiter) -> bool {
        let mut state = self.state.lock();
        if state.is_over {
            return false;
        }
        state.waiting.push_back(Arc::downgrade(&waiter.shared));
        drop(state);
        self.changed.notify_one();
        true
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.iter().filter(|waiter| waiter.strong_count() > 0).count()
    }

    /// A job became the first of its bucket, due at this time, epoch µs.
    pub(super) fn wake(&self, bucket: u16, due_us: i64) {
        {
            let State { heads, woken, .. } = &mut *self.state.lock();
            if let (Some(head), Some(woken)) = (heads.get_mut(usize::from(bucket)), woken.get_mut(usize::from(bucket))) {
                *head = Some(head.map_or(due_us, |head| head.min(due_us)));
                *woken = true;
            }
        }
        self.changed.notify_one();
    }

    /// A pop has looked at this bucket: its first job is due then.
    pub(super) fn report(&self, bucket: u16, head_us: Option<i64>) {
        match head_us {
            // A wake-up may have come meanwhile.
            Some(us) => self.wake(bucket, us),
            None => self.changed.notify_one(),
        }
    }

    pub(super) fn look_again(&self) {
        self.state.lock().is_stale = true;
        self.changed.notify_one();
    }

    /// Grants due buckets to waiting pops until no pop waits any more.
    pub(super) async fn run(self: Arc<Self>, consumers: Consumers) {
        let mut look_at = clock::now();
        let mut idle_since = clock::now();
        loop {
            let is_waited_for = {
                let mut state = self.state.lock();
                state.waiting.retain(|waiter| waiter.strong_count() > 0);
                !state.waiting.is_empty()
            };
            let now = clock::now();
            if is_waited_for {
                idle_since = now;
            } else if now >= idle_since + LINGER || consumers.inner.stop.is_cancelled() {
                let mut watches = consumers.inner.watches.lock();
                let mut state = self.state.lock();
                if state.waiting.iter().all(|waiter| waiter.strong_count() == 0) {
                    state.is_over = true;
                    watches.remove(&self.queue);
                    return;
                }
                continue;
            }
            let is_stale = std::mem::take(&mut self.state.lock().is_stale);
            if is_waited_for && (is_stale || now >= look_at) {
                self.look(&consumers).await;
                look_at = clock::now() + consumers.floor_poll();
            }
            let next = self.grant(consumers.inner.store.now_us());
            let wake_at = match next {
                Some(us) if is_waited_for => look_at.min(clock::now() + clock::micros(us)),
                _ if is_waited_for => look_at,
                _ => idle_since + LINGER,
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = clock::sleep_until(wake_at) => {}
                () = consumers.inner.stop.cancelled() => clock::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    /// Reads the first due time of each bucket. An error goes to each waiting pop.
    async fn look(&self, consumers: &Consumers) {
        self.state.lock().woken.fill(false);
        match consumers.inner.store.queue.heads(&self.queue).await {
            Ok(ahead) => self.state.lock().looked(&ahead, consumers.inner.store.now_us()),
            Err(error) => {
                let waiting = std::mem::take(&mut self.state.lock().waiting);
                for waiter in waiting.iter().filter_map(Weak::upgrade) {
                    give(&waiter, Err(error.clone()));
                }
            }
        }
    }

    /// Grants each due bucket to the next waiting pop. Returns how far ahead the next one is due, µs.
    fn grant(&self, now_us: i64) -> Option<i64> {
        let mut state = self.state.lock();
        let count = state.heads.len();
        let first = rand::random_range(0..count.max(1));
        for at in (first..count).chain(0..first) {
            if state.heads[at].is_none_or(|us| us > now_us) {
                continue;
            }
            // One that another queue served, or whose consumer went away, does not wait any more.
            while let Some(waiter) = state.waiting.pop_front() {
                let Some(waiter) = waiter.upgrade() else { continue };
                let bucket = u16::try_from(at).unwrap_or(u16::MAX);
                if give(&waiter, Ok(Granted { queue: self.queue.clone(), bucket })) {
                    // Until that pop reports.
                    state.heads[at] = None;
                    break;
                }
            }
            if state.waiting.is_empty() {
                break;
            }
        }
        state.heads.iter().flatten().map(|us| us.saturating_sub(now_us).max(0)).min()
    }
}

impl State {
    /// Takes the heads of a look: per bucket, how far ahead its first job is due, µs. A wake-up that
    /// came meanwhile stands.
    fn looked(&mut self, ahead: &[Option<i64>], now_us: i64) {
        for ((head, woken), ahead) in self.heads.iter_mut().zip(&self.woken).zip(ahead) {
            let looked = ahead.map(|us| now_us.saturating_add(us));
            *head = if *woken { head.iter().copied().chain(looked).min() } else { looked };
        }
    }
}

/// Gives a waiting pop its answer. False if the pop has one already.
fn give(waiter: &Shared, granted: Result<Granted, StoreError>) -> bool {
    let mut place = waiter.place.lock();
    if !matches!(*place, Place::Open) {
        return false;
    }
    *place = Place::Granted(granted);
    waiter.changed.notify_one();
    true
}

impl Consumers {
    /// How often each queue is looked at.
    fn floor_poll(&self) -> Duration {
        let sets = self.inner.watches.lock().len() * usize::from(self.inner.store.keys().buckets());
        FLOOR_POLL.max(Duration::from_secs(1).mul_f64(sets as f64 / LOOKS_A_SECOND as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_during_a_look_stands() {
        let watch = Watch::new("q", 3);
        watch.wake(0, 5);
        watch.state.lock().woken.fill(false);
        watch.wake(1, 100);
        watch.wake(2, 100);
        watch.state.lock().looked(&[None, None, Some(-50)], 100);
        assert_eq!(watch.state.lock().heads, [None, Some(100), Some(50)]);
    }
}
