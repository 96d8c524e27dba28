//! A call that pops from one bucket, from its choice to its answer.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::Watch;
use crate::clock::{self, Instant};
use crate::consumers::Consumers;
use crate::consumers::asking::Asking;
use crate::consumers::heads::SILENT_MASTER_TIMEOUT;
use crate::consumers::turn_wait::TurnWait;
use crate::store::error::StoreError;

/// A call that pops from one bucket, from its choice to its answer.
pub(in crate::consumers) struct Call {
    pub(in crate::consumers) bucket: u16,
    pub(super) watch: Arc<Watch>,
    pub(super) consumers: Consumers,
    pub(super) number: u64,
    pub(super) jobs: usize,
    pub(super) began: Instant,
    /// The call is for pops of the line. The next ones wait for its answer.
    pub(super) is_of_line: bool,
    /// The call may pop a job that is due within [`MAX_CLAIM_AHEAD`](crate::store::jobs::claim::MAX_CLAIM_AHEAD).
    pub(in crate::consumers) is_ahead: bool,
}

impl Call {
    pub(in crate::consumers) fn queue(&self) -> &str {
        &self.watch.queue
    }

    pub(in crate::consumers) fn watch(&self) -> Arc<Watch> {
        self.watch.clone()
    }

    /// The pop took so many jobs, and left a first one that is due in so many µs.
    pub(in crate::consumers) fn took(&self, jobs: usize, ahead_us: Option<i64>) {
        self.watch.state.lock().heads.pop_took(
            self.bucket,
            self.number,
            (jobs, self.jobs),
            ahead_us,
            clock::now(),
        );
    }

    /// The pop got nothing, and the first job is due in so many µs.
    pub(in crate::consumers) fn got_nothing(&self, ahead_us: i64) {
        self.watch.state.lock().heads.got_nothing(self.bucket, ahead_us, clock::now());
    }

    /// Whether the queue has no turn for another job now.
    pub(in crate::consumers) fn limited(&self, wait: Option<TurnWait>) {
        self.watch.state.lock().limited = wait;
    }

    /// How many places of the queue this process has given back.
    pub(in crate::consumers) fn places_freed(&self) -> u64 {
        self.watch.state.lock().fullness.freed
    }

    /// The queue has no free place, or had none before this process gave some back since `before`.
    /// Returns whether it is time to judge what has the places.
    pub(in crate::consumers) fn is_full(&self, mut wait: TurnWait, before: u64) -> bool {
        let mut state = self.watch.state.lock();
        let freed = state.fullness.freed.wrapping_sub(before);
        if freed > 0 {
            wait.freed(usize::try_from(freed).unwrap_or(usize::MAX));
        }
        state.limited = Some(wait);
        state.fullness.is_full(clock::now())
    }

    /// The queue has a free place.
    pub(in crate::consumers) fn has_place(&self) {
        let mut state = self.watch.state.lock();
        state.limited = state.limited.filter(|wait| !wait.is_for_place());
        state.fullness.has_place();
    }

    /// The queue hands nothing out.
    pub(in crate::consumers) fn is_paused(&self) {
        self.watch.state.lock().heads.is_paused(self.number);
    }

    /// The master did not answer.
    pub(in crate::consumers) fn is_unanswered(&self) {
        self.watch.state.lock().heads.master_is_away(self.bucket);
    }

    /// Has pops that got no job ask again, before those that came later.
    pub(in crate::consumers) fn ask_again(&self, pops: Vec<Asking>) {
        self.watch.state.lock().rounds.line.rejoin(pops);
    }

    /// Has the other pops go on with the masters that answer.
    pub(in crate::consumers) fn is_silent(&self) {
        self.watch.begin_calls(&self.consumers);
    }

    /// Gives the pops that waited for this call nearly as long as it lasted its error: else they
    /// would wait for another one as long. Those that came later have a call of their own.
    pub(in crate::consumers) fn fail_others(&self, error: &StoreError) {
        if !self.is_of_line {
            return;
        }
        let time = self.began + SILENT_MASTER_TIMEOUT;
        let pops = self.watch.state.lock().rounds.line.take_since(time);
        pops.into_iter().for_each(|pop| pop.answer(Err(error.clone())));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut state = self.watch.state.lock();
        state.heads.pop_ends(self.bucket, self.jobs, clock::now());
        if self.is_of_line {
            state.rounds.end(self.bucket);
        }
        let has_any = state.rounds.line.has_any();
        self.watch.changed(state);
        // Without a runtime the process ends. A call that ends with it must not begin the next one
        // here.
        if has_any && let Ok(runtime) = Handle::try_current() {
            let (watch, consumers) = (self.watch.clone(), self.consumers.clone());
            runtime.spawn(async move { watch.begin_calls(&consumers) });
        }
    }
}
