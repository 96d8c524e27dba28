//! Checks the hand-outs of a job for broken promises.

use std::fmt;

use super::ledger::{Breach, HandOut, Life};
use crate::chaos::history::Fault;

/// The most that two times of Redis's clock may be apart by rounding alone, ms.
const ROUNDING_TOLERANCE_MS: i64 = 1;
/// The longest travel of an answer that leaves no doubt about it, ms.
const MAX_ANSWER_TRAVEL_MS: i64 = 5;
/// The time before a failover, and after its end, in which the promoted master may not know a pop,
/// ms: by the lag of its replication, and until Dwell has left the former master.
const MAX_LOST_POP_AGE_MS: i64 = 2000;

impl Breach {
    /// Whether a failover may cause it: pops do not wait for the durability level, all other
    /// answers do.
    fn may_be_forgotten(self) -> bool {
        matches!(
            self,
            Breach::AttemptAgain | Breach::HeldByTwo | Breach::Refused | Breach::AfterFinish
        )
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Breach::Damaged => "another body",
            Breach::Unfinished => "nobody finished it",
            Breach::Unknown => "it is not known",
            Breach::FinishedTwice => "two consumers finished it",
            Breach::FinishedLate => "finished by a lease that was over",
            Breach::Early => "handed out early",
            Breach::AttemptAgain => "an attempt was handed out twice, or fell",
            Breach::HeldByTwo => "held by two consumers at a time",
            Breach::Refused => "a word was refused while its lease lasted",
            Breach::AfterFinish => "handed out after its finish",
        })
    }
}

impl Life {
    /// The broken promises, and whether a failover excuses each.
    pub(super) fn breaches(&self, id: &str, faults: &[Fault]) -> Vec<(Breach, bool)> {
        let mut breaches = Vec::new();
        // A hand-out may be forgotten: by a master that was promoted around that time.
        let mut found = |breach: Breach, hand_outs: &[&HandOut]| {
            let is_excused = breach.may_be_forgotten()
                && hand_outs.iter().any(|hand_out| is_forgotten(id, hand_out, faults));
            breaches.push((breach, is_excused));
        };
        if self.is_damaged {
            found(Breach::Damaged, &[]);
        }
        if self.accepted_ms.is_some() && self.over_ms.is_none() {
            found(Breach::Unfinished, &[]);
        }
        // Before the answer, a job may be handed out by a master that dies, and stored again by the
        // next.
        if self
            .accepted_ms
            .zip(self.unknown_ms)
            .is_some_and(|(accepted_ms, sent_ms)| sent_ms > accepted_ms)
        {
            found(Breach::Unknown, &[]);
        }
        if self.hand_outs.iter().filter(|hand_out| hand_out.finished_ms.is_some()).count() > 1 {
            found(Breach::FinishedTwice, &[]);
        }
        for hand_out in &self.hand_outs {
            if hand_out.begun_ms + ROUNDING_TOLERANCE_MS < self.due_ms {
                found(Breach::Early, &[hand_out]);
            }
            if hand_out
                .finished_ms
                .is_some_and(|sent_ms| sent_ms > hand_out.deadline_ms + ROUNDING_TOLERANCE_MS)
            {
                found(Breach::FinishedLate, &[hand_out]);
            }
            let lasted = |refused_ms: i64| refused_ms + MAX_ANSWER_TRAVEL_MS < hand_out.deadline_ms;
            if hand_out.refused_ms.is_some_and(lasted) && !hand_out.is_unsure {
                found(Breach::Refused, &[hand_out]);
            }
            if self
                .over_ms
                .is_some_and(|over_ms| hand_out.begun_ms > over_ms + ROUNDING_TOLERANCE_MS)
            {
                found(Breach::AfterFinish, &[hand_out]);
            }
        }
        let mut in_time: Vec<&HandOut> = self.hand_outs.iter().collect();
        in_time.sort_by_key(|hand_out| (hand_out.begun_ms, hand_out.attempt));
        for pair in in_time.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            if next.attempt <= one.attempt {
                found(Breach::AttemptAgain, pair);
            }
            let end_ms = one.given_up_ms.map_or(one.deadline_ms, |ms| ms.min(one.deadline_ms));
            // A `finish` whose answer was lost ended the lease for good, or not at all.
            if !one.is_unsure
                && one.finished_ms.is_none()
                && next.begun_ms + ROUNDING_TOLERANCE_MS < end_ms
            {
                found(Breach::HeldByTwo, pair);
            }
            if one.finished_ms.is_some() {
                found(Breach::AfterFinish, &[next]);
            }
        }
        breaches
    }
}

/// Whether a master that was promoted around that time may not know of this hand-out, or the former
/// one gave it.
fn is_forgotten(id: &str, hand_out: &HandOut, faults: &[Fault]) -> bool {
    faults.iter().any(|fault| {
        let (from_ms, to_ms) = (
            fault.began_us / 1000 - MAX_LOST_POP_AGE_MS,
            fault.healed_us / 1000 + MAX_LOST_POP_AGE_MS,
        );
        fault.rolls_back(id) && (from_ms..=to_ms).contains(&hand_out.begun_ms)
    })
}

#[cfg(test)]
mod tests;
