//! The turns of limited queues: a call hands out as many jobs as have their turns.

use super::Consumers;
use super::asking::{Answer, Asking, cut};
use super::turn_wait::TurnWait;
use super::watch::Call;
use crate::store::limits::Limit;

/// The turns that a call took.
pub(super) struct TakenTurns {
    limit: Limit,
    turns: usize,
}

impl Consumers {
    /// Takes turns for these pops, where their queue has a limit. Those without a turn find no job,
    /// and leave; the others ask for as many jobs as have turns. `None` without a limit.
    pub(super) async fn take_turns(
        &self,
        call: &Call,
        pops: &mut Vec<Asking>,
    ) -> Option<TakenTurns> {
        let limit = self.inner.store.limit_of_queue(call.queue())?;
        let asked: usize = pops.iter().map(|pop| pop.limits.most).sum();
        let (turns, wait) = match self.inner.store.take_turns_now(&limit, asked).await {
            Ok(taken) => taken,
            Err(error) => {
                pops.drain(..).for_each(|pop| pop.answer(Err(error.clone())));
                return Some(TakenTurns { limit, turns: 0 });
            }
        };
        let is_limited = turns < asked || !wait.is_zero();
        call.limited(is_limited.then(|| TurnWait::new(&limit, wait)));
        for pop in cut(pops, turns) {
            pop.answer(Ok(Answer::NoneDue));
        }
        Some(TakenTurns { limit, turns })
    }

    /// Gives back the turns for which the call found no job. An error loses them.
    pub(super) async fn give_turns_back(&self, call: &Call, taken: &TakenTurns, used: usize) {
        let unused = taken.turns.saturating_sub(used);
        if unused == 0 {
            return;
        }
        match self.inner.store.give_turns_back(&taken.limit, unused).await {
            Ok(()) => call.limited(None),
            Err(error) => {
                tracing::debug!(%error, queue = call.queue(), "turns were not given back");
            }
        }
    }
}
