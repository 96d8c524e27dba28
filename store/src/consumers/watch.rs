//! The pops that ask for the jobs of one queue or wait for them, in their order, and the looks at
//! its buckets.

mod call;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::Consumers;
use super::asking::{Answer, Asking};
use super::heads::{Heads, SILENT_MASTER_TIMEOUT};
use super::rounds::{Begun, Rounds};
use super::turn_wait::{Fullness, TurnWait};
use super::waiter::{Shared, Waiter};
use crate::clock::{self, Instant};
use crate::store::error::{Class, StoreError};

pub(super) use self::call::Call;

/// The longest time between two looks at a queue, because a wake-up may be lost.
const FLOOR_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The most sets that one process looks at per second; with more queues each is looked at more
/// rarely.
const MAX_SETS_PER_SECOND: usize = 2000;
/// The longest time between two looks at a queue that pops wait for, however many there are.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The least time between two grants of a limited queue whose turns are asked for already.
const MIN_GRANT_INTERVAL: Duration = Duration::from_millis(1);
/// The life of a watch without a waiting pop, so that pops that follow each other share the watch.
const IDLE_WATCH_TTL: Duration = Duration::from_secs(2);

/// The first jobs of one queue as this process knows them, and the pops that wait for the queue.
/// Runs while the queue is popped from.
pub(super) struct Watch {
    pub(super) queue: String,
    state: Mutex<WatchState>,
    changed: Notify,
    /// The end of the last look, which one task at a time makes.
    looking: Arc<tokio::sync::Mutex<Option<Looked>>>,
}

struct WatchState {
    heads: Heads,
    /// The pops that ask for due jobs, and their calls.
    rounds: Rounds,
    waiting: VecDeque<Weak<Shared<Call>>>,
    /// The time of the last pop from the queue.
    used: Instant,
    /// The time of the next look at all buckets; `None`: now.
    look_at: Option<Instant>,
    /// A limited queue had no turn or no place for another job at the last call.
    limited: Option<TurnWait>,
    fullness: Fullness,
    is_over: bool,
}

impl WatchState {
    fn is_time_to_look(&self, now: Instant) -> bool {
        self.look_at.is_none_or(|at| now >= at)
    }
}

/// A completed look.
struct Looked {
    began: Instant,
    ended: Instant,
    result: Result<(), StoreError>,
}

impl Watch {
    pub(super) fn new(queue: &str, buckets: u16, is_cluster: bool) -> Watch {
        let heads = Heads::new(buckets, is_cluster);
        let state = WatchState {
            heads,
            rounds: Rounds::default(),
            waiting: VecDeque::new(),
            used: clock::now(),
            look_at: None,
            limited: None,
            fullness: Fullness::default(),
            is_over: false,
        };
        Watch {
            queue: queue.to_owned(),
            state: Mutex::new(state),
            changed: Notify::new(),
            looking: Arc::default(),
        }
    }

    /// Adds a waiting pop at the end. False if the watch is over.
    pub(super) fn add(&self, waiter: &Waiter<Call>) -> bool {
        let mut state = self.state.lock();
        if state.is_over {
            return false;
        }
        state.waiting.push_back(waiter.shared());
        drop(state);
        self.changed.notify_one();
        true
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.iter().filter(|waiter| waiter.strong_count() > 0).count()
    }

    /// A job that is due in so many µs became the first of its bucket.
    pub(super) fn wake(&self, bucket: u16, ahead_us: i64) {
        let mut state = self.state.lock();
        state.heads.wake(bucket, ahead_us, clock::now());
        self.changed(state);
    }

    pub(super) fn look_again(&self) {
        let mut state = self.state.lock();
        state.look_at = None;
        self.changed(state);
    }

    /// This process gave so many places of a limited queue back.
    pub(super) fn places_free(&self, count: usize) {
        let mut state = self.state.lock();
        state.fullness.freed = state.fullness.freed.wrapping_add(count as u64);
        if let Some(wait) = &mut state.limited {
            wait.freed(count);
        }
        self.changed(state);
    }

    /// Has the waiting pops served, if there are any.
    fn changed(&self, state: MutexGuard<'_, WatchState>) {
        let is_waited_for = !state.waiting.is_empty();
        drop(state);
        if is_waited_for {
            self.changed.notify_one();
        }
    }

    /// Has a pop ask for due jobs: at once if it is large or no call of the line is out, else
    /// together with the others that ask meanwhile.
    pub(super) fn join(self: &Arc<Self>, consumers: &Consumers, pop: Asking) {
        self.state.lock().rounds.line.join(pop);
        self.begin_calls(consumers);
    }

    /// Has pops that got no job ask again, before those that came later.
    pub(super) fn join_again(self: &Arc<Self>, consumers: &Consumers, pops: Vec<Asking>) {
        self.state.lock().rounds.line.rejoin(pops);
        self.begin_calls(consumers);
    }

    /// Begins the calls of the pops that ask. Looks at all buckets beside them if the last look is
    /// too old.
    fn begin_calls(self: &Arc<Self>, consumers: &Consumers) {
        let now = clock::now();
        let (calls, unserved, is_time) = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            state.used = now;
            let (calls, unserved) = match state.limited {
                Some(wait) if now < wait.until => (Vec::new(), state.rounds.line.take_every()),
                _ => state.rounds.begin(&mut state.heads, now),
            };
            let is_time = !calls.is_empty() && state.is_time_to_look(now);
            if is_time {
                state.look_at = Some(now + FLOOR_POLL_INTERVAL);
            }
            (calls, unserved, is_time)
        };
        if is_time {
            let (watch, consumers) = (self.clone(), consumers.clone());
            tokio::spawn(async move { watch.look_since(&consumers, now).await });
        }
        unserved.into_iter().for_each(|pop| pop.answer(Ok(Answer::NoneDue)));
        for Begun { bucket, number, jobs, is_of_line, pops } in calls {
            let (watch, consumers) = (self.clone(), consumers.clone());
            let maker = consumers.clone();
            let (began, is_ahead) = (now, false);
            let call = Call { bucket, watch, consumers, number, jobs, began, is_of_line, is_ahead };
            tokio::spawn(async move { maker.make(call, pops).await });
        }
    }

    /// Grants due buckets to waiting pops until the queue is not popped from any more.
    pub(super) async fn run(self: Arc<Self>, consumers: Consumers) {
        loop {
            let (is_waited_for, over_at) = {
                let mut state = self.state.lock();
                state.waiting.retain(|waiter| waiter.strong_count() > 0);
                (!state.waiting.is_empty(), state.used + IDLE_WATCH_TTL)
            };
            let now = clock::now();
            if !is_waited_for && (now >= over_at || consumers.inner.stop.is_cancelled()) {
                let mut watches = consumers.inner.watches.lock();
                let mut state = self.state.lock();
                if state.waiting.iter().all(|waiter| waiter.strong_count() == 0) {
                    state.is_over = true;
                    watches.remove(&self.queue);
                    return;
                }
                continue;
            }
            let wake_at = if is_waited_for { self.serve(&consumers, now).await } else { over_at };
            tokio::select! {
                () = self.changed.notified() => {}
                () = clock::sleep_until(wake_at) => {}
                () = consumers.inner.stop.cancelled() => clock::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    /// Looks if it is time, and grants. Returns when to do so again. An error goes to each waiting
    /// pop.
    async fn serve(self: &Arc<Self>, consumers: &Consumers, now: Instant) -> Instant {
        let is_time = {
            let mut state = self.state.lock();
            state.used = now;
            state.is_time_to_look(now)
        };
        if is_time && let Err(error) = self.look_since(consumers, now).await {
            let waiting = std::mem::take(&mut self.state.lock().waiting);
            for waiter in waiting.iter().filter_map(Weak::upgrade) {
                waiter.give(Err(error.clone()));
            }
        }
        self.grant(consumers)
    }

    /// A look that began at `since` or later, this task's or another's. An error only if no master
    /// answered.
    pub(super) async fn look_since(
        self: &Arc<Self>,
        consumers: &Consumers,
        since: Instant,
    ) -> Result<(), StoreError> {
        let mut last = self.looking.clone().lock_owned().await;
        // A look that failed meanwhile gives this one its error: else the last of many would wait
        // for as many looks.
        if let Some(looked) = last.as_ref().filter(|looked| {
            looked.began >= since || looked.result.is_err() && looked.ended >= since
        }) {
            return looked.result.clone();
        }
        let (watch, consumers) = (self.clone(), consumers.clone());
        // The look has a task of its own: a pop whose client goes away must not drop the look.
        let looking = tokio::spawn(async move {
            let began = clock::now();
            let result = watch.look(&consumers).await;
            *last = Some(Looked { began, ended: clock::now(), result: result.clone() });
            result
        });
        looking.await.unwrap_or_else(|_| {
            Err(StoreError::new(Class::Other, "the process ended during a look"))
        })
    }

    /// Reads the first due time of each bucket. Waits for the masters that answered before, at most
    /// for [`SILENT_MASTER_TIMEOUT`] once one has answered.
    async fn look(self: &Arc<Self>, consumers: &Consumers) -> Result<(), StoreError> {
        let (call, parts) = {
            let (homes, now, every) = (consumers.homes(), clock::now(), consumers.floor_poll());
            let mut state = self.state.lock();
            state.look_at = Some(now + every);
            state.heads.look_begins(homes, now)
        };
        // Tasks: a master may answer after this look is over.
        let [sound, silent] = parts.map(|buckets| {
            let (watch, consumers) = (self.clone(), consumers.clone());
            (!buckets.is_empty())
                .then(|| tokio::spawn(async move { watch.ask(&consumers, call, &buckets).await }))
        });
        let Some(mut asking) = sound.or(silent) else { return Ok(()) };
        let answer = match clock::timeout(SILENT_MASTER_TIMEOUT, &mut asking).await {
            None if self.state.lock().heads.has_answered(call) => return Ok(()),
            None => asking.await,
            Some(answer) => answer,
        };
        answer.unwrap_or_else(|_| {
            Err(StoreError::new(Class::Other, "the process ended during a look"))
        })
    }

    /// An error if none of these buckets answered.
    async fn ask(
        &self,
        consumers: &Consumers,
        call: u64,
        buckets: &[u16],
    ) -> Result<(), StoreError> {
        let (mut parts, mut result) =
            (consumers.inner.store.jobs.heads(&self.queue, buckets), None);
        while let Some((buckets, answer)) = parts.next().await {
            let (mut state, now) = (self.state.lock(), clock::now());
            match answer {
                Ok(ahead_us) => {
                    state.heads.looked(call, &buckets, Some(&ahead_us), now);
                    result = Some(Ok(()));
                }
                Err(error) => {
                    state.heads.looked(call, &buckets, None, now);
                    if error.is_away() {
                        buckets.iter().for_each(|bucket| state.heads.master_is_away(*bucket));
                    }
                    result.get_or_insert(Err(error));
                }
            }
            self.changed(state);
        }
        result.unwrap_or(Ok(()))
    }

    /// Grants the buckets with a job that is due, or about to be, to the next waiting pops, the
    /// oldest first. Returns when to look again.
    fn grant(self: &Arc<Self>, consumers: &Consumers) -> Instant {
        let now = clock::now();
        let mut state = self.state.lock();
        // The limit may have been removed since.
        let store = &consumers.inner.store;
        let limited = state.limited.filter(|wait| match wait.is_for_place() {
            true => store.places_of_queue(&self.queue).is_some(),
            false => store.limit_of_queue(&self.queue).is_some(),
        });
        if let Some(TurnWait { until, .. }) = limited.filter(|wait| now < wait.until) {
            return state.look_at.map_or(until, |look_at| look_at.min(until));
        }
        let out = state.heads.calls_out();
        let mut left = limited.map_or(usize::MAX, |wait| wait.turns(now).saturating_sub(out));
        while left > 0
            && let Some(bucket) = state.heads.to_grant(now)
        {
            left -= 1;
            // A pop that another queue served, or whose consumer went away, does not wait any more.
            let Some(waiter) = std::iter::from_fn(|| state.waiting.pop_front())
                .find_map(|waiter| waiter.upgrade())
            else {
                break;
            };
            let number = state.heads.pop_begins(bucket, 1, now);
            let (watch, consumers) = (self.clone(), consumers.clone());
            let (jobs, began, is_of_line, is_ahead) = (1, now, false, true);
            let call = Call { bucket, watch, consumers, number, jobs, began, is_of_line, is_ahead };
            // A refused call ends, which locks the state. So does that of a waiter whose consumer
            // went away meanwhile, with the last reference to the waiter.
            drop(state);
            waiter.give(Ok(call));
            drop(waiter);
            state = self.state.lock();
        }
        let look_at = state.look_at.unwrap_or(now);
        if let Some(TurnWait { step, .. }) = limited.filter(|_| left == 0) {
            // The end of a call comes before.
            return look_at.min(now + step.max(MIN_GRANT_INTERVAL));
        }
        state.heads.next(now).map_or(look_at, |due| due.min(look_at))
    }
}

impl Consumers {
    /// The interval between two looks at each queue.
    fn floor_poll(&self) -> Duration {
        let sets = self.inner.watches.lock().len() * usize::from(self.inner.store.keys().buckets());
        Duration::from_secs(1)
            .mul_f64(sets as f64 / MAX_SETS_PER_SECOND as f64)
            .clamp(FLOOR_POLL_INTERVAL, MAX_POLL_INTERVAL)
    }

    /// The number of each bucket's master; `None` if it is not known, or the only one.
    fn homes(&self) -> Option<Vec<usize>> {
        let store = &self.inner.store;
        let layout = store.layout()?;
        let mut masters: Vec<Option<String>> = Vec::new();
        let number = |bucket| {
            let master = store.master_of(&layout, bucket);
            masters.iter().position(|known| *known == master && master.is_some()).unwrap_or_else(
                || {
                    masters.push(master);
                    masters.len() - 1
                },
            )
        };
        Some((0..store.keys().buckets()).map(number).collect())
    }
}
