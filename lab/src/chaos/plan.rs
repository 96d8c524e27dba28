//! The plan of a campaign: the order, duration and pauses of the faults. One
//! seed gives one plan.

use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::chaos::fault::FaultKind;

/// The pace of the faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// Every kind as often as every other, held for up to two and a half seconds.
    #[default]
    Even,
    /// Short faults with short pauses, and the kinds that take ten seconds and more in one round of
    /// several. The checker allows the same.
    Dense,
}

/// The figures of a pace.
struct Figures {
    /// The duration of a fault, ms.
    hold_ms: Range<u64>,
    /// The pause after a fault is overcome, ms.
    pause_ms: Range<u64>,
    /// The number of rounds in which a slow kind has its turn once.
    rounds: u32,
}

impl Pace {
    fn figures(self) -> Figures {
        match self {
            Pace::Even => Figures { hold_ms: 200..2500, pause_ms: 500..1500, rounds: 1 },
            Pace::Dense => Figures { hold_ms: 50..700, pause_ms: 50..300, rounds: 6 },
        }
    }
}

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

/// An endless sequence of rounds: every kind once, in random order, before any is repeated. At the
/// dense pace a slow kind is only in every sixth round.
#[derive(Debug)]
pub struct Plan {
    rng: StdRng,
    kinds: Vec<FaultKind>,
    pace: Pace,
    round: u32,
    deck: Vec<FaultKind>,
}

impl Plan {
    /// A plan of these kinds; without kinds it has no steps.
    #[must_use]
    pub fn new(seed: u64, kinds: &[FaultKind], pace: Pace) -> Plan {
        // At least one kind has its turn in every round.
        let pace = if kinds.iter().all(|kind| kind.is_slow()) { Pace::Even } else { pace };
        let mut rng = StdRng::seed_from_u64(seed);
        let round = rng.random_range(0..pace.figures().rounds);
        Plan { rng, kinds: kinds.to_vec(), pace, round, deck: Vec::new() }
    }
}

impl Iterator for Plan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let Figures { hold_ms, pause_ms, rounds } = self.pace.figures();
        if self.deck.is_empty() {
            self.round += 1;
            // The slow kinds are spread over the rounds.
            let mut slow = 0;
            self.deck = self.kinds.clone();
            self.deck.retain(|kind| {
                slow += u32::from(kind.is_slow());
                !kind.is_slow() || (self.round + slow).is_multiple_of(rounds)
            });
            self.deck.shuffle(&mut self.rng);
        }
        let kind = self.deck.pop()?;
        let mut ms = |range| Duration::from_millis(self.rng.random_range(range));
        let (hold, pause) = (ms(hold_ms), ms(pause_ms));
        Some(Step { kind, hold, pause, seed: self.rng.random() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn one_seed_is_one_plan_and_every_kind_has_its_turn() {
        let steps =
            |seed| Plan::new(seed, FaultKind::all(), Pace::Even).take(100).collect::<Vec<_>>();
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
        let all = FaultKind::all().len();
        let first: HashSet<_> = steps(7)[..all].iter().map(|step| step.kind).collect();
        assert_eq!(first.len(), all);
        assert_eq!(Plan::new(7, &[], Pace::Even).next(), None);
    }

    #[test]
    fn a_dense_plan_is_short_and_has_every_kind_within_six_rounds() {
        let steps: Vec<Step> =
            Plan::new(7, FaultKind::all(), Pace::Dense).take(6 * FaultKind::all().len()).collect();
        assert!(steps.iter().all(|step| step.hold < Duration::from_millis(700)
            && step.pause < Duration::from_millis(300)));
        let of = |kind: FaultKind| steps.iter().filter(|step| step.kind == kind).count();
        for kind in FaultKind::all() {
            assert_eq!(of(*kind) >= 6, !kind.is_slow(), "{kind}: {}", of(*kind));
            assert!(of(*kind) > 0, "{kind}");
        }
        assert_eq!(Plan::new(7, &[FaultKind::TargetSilent], Pace::Dense).take(3).count(), 3);
    }
}
