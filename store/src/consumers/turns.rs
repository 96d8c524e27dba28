//! The turns of limited queues: a call hands out as many jobs as have their turns.

use std::time::Duration;

use super::Consumers;
use super::asking::{Answer, Asking};
use super::watch::Call;
use crate::clock::{self, Instant};
use crate::store::limits::Limit;

/// The bounds of the wait before Redis is asked for turns again: other programs may give some back.
const MIN_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A limited queue has no turn for another job now.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnWait {
    /// Nobody asks before.
    pub(super) until: Instant,
    /// The time of the next turn, if nobody gives one back.
    at: Instant,
    /// The time from one turn to the next.
    pub(super) step: Duration,
}

impl TurnWait {
    fn new(limit: &Limit, wait: Duration) -> TurnWait {
        let (now, step) = (clock::now(), clock::micros(limit.rate().span_us(1)));
        TurnWait { until: now + wait.clamp(MIN_WAIT, MAX_WAIT), at: now + wait, step }
    }

    /// How many turns are expected to be there, at least one: more calls would find none.
    pub(super) fn turns(&self, now: Instant) -> usize {
        let passed = now.saturating_duration_since(self.at).as_micros();
        let turns = passed / self.step.as_micros().max(1);
        usize::try_from(turns).unwrap_or(usize::MAX).saturating_add(1)
    }
}

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
        let mut left = turns;
        for mut pop in std::mem::take(pops) {
            pop.limits.most = pop.limits.most.min(left);
            left -= pop.limits.most;
            if pop.limits.most == 0 {
                pop.answer(Ok(Answer::NoneDue));
            } else {
                pops.push(pop);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::limit::Rate;

    #[test]
    fn as_many_calls_as_turns_are_expected() {
        let limit = Limit::of_queue("q", "*", Rate::new(1000, 1_000_000, Some(1)));
        let (wait, ms) = (TurnWait::new(&limit, Duration::from_secs(5)), Duration::from_millis);
        assert_eq!((wait.turns(wait.until), wait.turns(wait.at)), (1, 1), "one asks in between");
        assert_eq!(wait.turns(wait.at + ms(4)), 5);
        assert_eq!(wait.until + ms(4_000), wait.at);
    }
}
