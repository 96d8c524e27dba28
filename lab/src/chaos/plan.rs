//! The plan of a campaign: the order, duration and pauses of the faults. One
//! seed gives one plan.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::chaos::fault::FaultKind;

/// The duration of a fault, ms.
const HOLD_MS: std::ops::Range<u64> = 200..2500;
/// The pause after a fault is overcome, ms.
const PAUSE_MS: std::ops::Range<u64> = 500..1500;

/// One fault of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The kind.
    pub kind: FaultKind,
    /// The duration.
    pub hold: Duration,
    /// The pause after it.
    pub pause: Duration,
    /// The seed of its random choices.
    pub seed: u64,
}

/// An endless sequence: every kind once, in random order, before any is repeated.
#[derive(Debug)]
pub struct Plan {
    rng: StdRng,
    kinds: Vec<FaultKind>,
    deck: Vec<FaultKind>,
}

impl Plan {
    /// A plan of these kinds; without kinds it has no steps.
    #[must_use]
    pub fn new(seed: u64, kinds: &[FaultKind]) -> Plan {
        Plan { rng: StdRng::seed_from_u64(seed), kinds: kinds.to_vec(), deck: Vec::new() }
    }
}

impl Iterator for Plan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.kinds);
            self.deck.shuffle(&mut self.rng);
        }
        let kind = self.deck.pop()?;
        let mut ms = |range| Duration::from_millis(self.rng.random_range(range));
        let (hold, pause) = (ms(HOLD_MS), ms(PAUSE_MS));
        Some(Step { kind, hold, pause, seed: self.rng.random() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn one_seed_is_one_plan_and_every_kind_has_its_turn() {
        let steps = |seed| Plan::new(seed, FaultKind::all()).take(100).collect::<Vec<_>>();
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
        let all = FaultKind::all().len();
        let first: HashSet<_> = steps(7)[..all].iter().map(|step| step.kind).collect();
        assert_eq!(first.len(), all);
        assert_eq!(Plan::new(7, &[]).next(), None);
    }
}
