//! What the consumers saw, and whether any of it breaks a promise. All times are epoch ms by Redis's
//! clock.

use std::collections::HashMap;

/// One hand-out of a job, as its consumer saw it.
#[derive(Debug, Clone)]
pub(super) struct HandOut {
    pub(super) attempt: u32,
    /// When the lease began.
    pub(super) begun_ms: i64,
    /// When the lease ended: at its deadline, or before, by a word that was answered.
    pub(super) end_ms: i64,
    /// The consumer finished the job, and was told so.
    pub(super) is_finished: bool,
    /// The answer to the last word was lost: the lease may have ended before its deadline.
    pub(super) is_unsure: bool,
}

/// The life of a job.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) due_ms: i64,
    /// Without the answer, the job may be stored or not.
    pub(super) is_accepted: bool,
    pub(super) hand_outs: Vec<HandOut>,
    /// A consumer was told that the job had been finished before.
    pub(super) was_fired: bool,
    /// A body was not the one that was sent.
    pub(super) is_damaged: bool,
}

/// Every job that was accepted.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    jobs: HashMap<String, Life>,
}

/// The sums of a campaign.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    /// Jobs that were accepted.
    pub(super) jobs: usize,
    /// Hand-outs of them.
    pub(super) hand_outs: usize,
}

impl Ledger {
    /// A job is sent to be stored.
    pub(super) fn sent(&mut self, id: &str, due_ms: i64) {
        self.jobs.entry(id.to_owned()).or_default().due_ms = due_ms;
    }

    /// The storing of a job was answered.
    pub(super) fn accepted(&mut self, id: &str) {
        self.jobs.entry(id.to_owned()).or_default().is_accepted = true;
    }

    pub(super) fn handed_out(&mut self, id: &str, hand_out: HandOut) {
        self.jobs.entry(id.to_owned()).or_default().hand_outs.push(hand_out);
    }

    /// The last hand-out with this attempt.
    pub(super) fn hand_out(&mut self, id: &str, attempt: u32) -> Option<&mut HandOut> {
        self.jobs.get_mut(id)?.hand_outs.iter_mut().rev().find(|known| known.attempt == attempt)
    }

    /// The answer to words on these hand-outs, by id and attempt, was lost.
    pub(super) fn unsure(&mut self, attempts: &HashMap<&str, u32>) {
        for (id, attempt) in attempts {
            if let Some(hand_out) = self.hand_out(id, *attempt) {
                hand_out.is_unsure = true;
            }
        }
    }

    pub(super) fn damaged(&mut self, id: &str) {
        self.jobs.entry(id.to_owned()).or_default().is_damaged = true;
    }

    pub(super) fn fired(&mut self, id: &str) {
        self.jobs.entry(id.to_owned()).or_default().was_fired = true;
    }

    /// How many jobs are finished, as far as a consumer knows.
    pub(super) fn finished(&self) -> usize {
        self.jobs.values().filter(|life| life.is_accepted && life.is_over()).count()
    }

    pub(super) fn sums(&self) -> Sums {
        let hand_outs = self.jobs.values().map(|life| life.hand_outs.len()).sum();
        Sums { jobs: self.jobs.values().filter(|life| life.is_accepted).count(), hand_outs }
    }

    /// What breaks a promise; a line each.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.jobs.iter().flat_map(|(id, life)| life.wrong().into_iter().map(move |what| format!("{id}: {what}: {life:?}"))).collect()
    }
}

impl Life {
    fn is_over(&self) -> bool {
        self.was_fired || self.hand_outs.iter().any(|hand_out| hand_out.is_finished)
    }

    fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut by_attempt = self.hand_outs.clone();
        by_attempt.sort_by_key(|hand_out| hand_out.attempt);
        if self.is_damaged {
            wrong.push("another body".to_owned());
        }
        if self.is_accepted && !self.is_over() {
            wrong.push("nobody finished it".to_owned());
        }
        if by_attempt.iter().filter(|hand_out| hand_out.is_finished).count() > 1 {
            wrong.push("two consumers finished it".to_owned());
        }
        // Redis's clock is read in whole ms, rounded up where a lease begins.
        if by_attempt.iter().any(|hand_out| hand_out.begun_ms + 1 < self.due_ms) {
            wrong.push("handed out early".to_owned());
        }
        for pair in by_attempt.windows(2) {
            let (one, next) = (&pair[0], &pair[1]);
            if one.attempt == next.attempt {
                wrong.push("one attempt was handed out twice".to_owned());
            }
            if !one.is_unsure && next.begun_ms + 1 < one.end_ms {
                wrong.push("held by two consumers at a time".to_owned());
            }
            if one.is_finished {
                wrong.push("handed out after its finish".to_owned());
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(hand_outs: &[(u32, i64, i64, bool)]) -> Life {
        let of = |(attempt, begun_ms, end_ms, is_finished): &(u32, i64, i64, bool)| HandOut {
            attempt: *attempt,
            begun_ms: *begun_ms,
            end_ms: *end_ms,
            is_finished: *is_finished,
            is_unsure: false,
        };
        Life { due_ms: 100, is_accepted: true, hand_outs: hand_outs.iter().map(of).collect(), was_fired: false, is_damaged: false }
    }

    #[test]
    fn what_breaks_a_promise_is_found() {
        assert_eq!(life(&[(1, 100, 200, false), (2, 200, 300, true)]).wrong(), Vec::<String>::new());
        for (hand_outs, what) in [
            (&[(1, 100, 200, false)][..], "nobody finished it"),
            (&[(1, 100, 200, true), (2, 200, 300, true)], "two consumers finished it"),
            (&[(1, 90, 200, true)], "handed out early"),
            (&[(1, 100, 200, false), (1, 200, 300, true)], "one attempt was handed out twice"),
            (&[(1, 100, 200, false), (2, 150, 250, true)], "held by two consumers at a time"),
            (&[(1, 100, 200, true), (2, 200, 300, false)], "handed out after its finish"),
        ] {
            assert!(life(hand_outs).wrong().iter().any(|wrong| wrong == what), "{what}");
        }
        let fired = Life { was_fired: true, ..life(&[(1, 100, 200, false)]) };
        assert!(fired.wrong().is_empty());
    }
}
