//! Turns the receipts of consumers into a verdict on each schedule.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::bench::percentiles::{Latencies, Percentiles};
use crate::occurrences::{Claim, Flaw, Made, split};

/// The most broken promises that are told.
const MAX_REPORTED: usize = 20;

/// A job, such as an occurrence, that a consumer received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Receipt {
    /// The id of the job.
    pub(crate) id: String,
    /// `delayed-occurrence`; 0 if there was none.
    pub(crate) number: u64,
    /// The number of the hand-out.
    pub(crate) attempt: u32,
    /// When it was received, wall clock, epoch µs.
    pub(crate) at_us: i64,
}

/// The jobs that were received, and what was wrong with them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts {
    /// Occurrences that were received, each counted once.
    pub occurrences: u64,
    /// Nominal times that the schedules count as missed.
    pub missed: u64,
    /// Hand-outs of an occurrence after the end of a lease.
    pub redelivered: u64,
    /// Repeats that a failover explains, which lost the first making, hand-out or finish.
    pub forgotten: u64,
    /// Repeats that nothing explains: handed out again as the same attempt, or counted as missed too.
    pub twice: u64,
    /// Nominal times that were neither made nor counted as missed.
    pub lost: u64,
    /// Occurrences that were received before their nominal time.
    pub early: u64,
    /// From the nominal time to the first receipt, outside of the seconds around faults.
    pub late: Percentiles,
    /// The same of all occurrences.
    pub late_overall: Percentiles,
    /// The number of broken promises.
    pub wrongs: u64,
    /// The first of them.
    pub wrong: Vec<String>,
}

impl Counts {
    /// Notes a broken promise.
    pub(super) fn broken(&mut self, what: String) {
        self.wrongs += 1;
        if self.wrong.len() < MAX_REPORTED {
            self.wrong.push(what);
        }
    }
}

/// The seconds around a fault, epoch ms.
pub(super) type FaultTime = RangeInclusive<i64>;

struct Checker<'a> {
    counts: Counts,
    faults: &'a [FaultTime],
    loses_writes: bool,
    late: Latencies,
    late_overall: Latencies,
}

/// Checks the receipts against what the schedules say. `loses_writes`: Redis failed over, so that a
/// write may have been lost.
pub(super) fn check(
    claims: &[Claim],
    receipts: &[Receipt],
    faults: &[FaultTime],
    loses_writes: bool,
) -> Counts {
    let (late, late_overall) = (Latencies::default(), Latencies::default());
    let mut checker =
        Checker { counts: Counts::default(), faults, loses_writes, late, late_overall };
    let mut made: HashMap<&str, BTreeMap<i64, Vec<&Receipt>>> = HashMap::new();
    for receipt in receipts {
        match split(&receipt.id) {
            Some((schedule, nominal_ms)) => {
                made.entry(schedule).or_default().entry(nominal_ms).or_default().push(receipt);
            }
            None => checker.counts.broken(format!("{}: no id of an occurrence", receipt.id)),
        }
    }
    for claim in claims {
        checker.schedule(claim, &made.remove(claim.id.as_str()).unwrap_or_default());
    }
    for schedule in made.keys() {
        checker.counts.broken(format!("{schedule}: received, and there is no such schedule"));
    }
    let Checker { counts, late, late_overall, .. } = checker;
    Counts { late: late.percentiles(), late_overall: late_overall.percentiles(), ..counts }
}

impl Checker<'_> {
    fn schedule(&mut self, claim: &Claim, made: &BTreeMap<i64, Vec<&Receipt>>) {
        for (nominal_ms, receipts) in made {
            self.occurrence(claim, *nominal_ms, receipts);
        }
        self.counts.occurrences += made.len() as u64;
        self.counts.missed += claim.missed;
        let numbers = |receipts: &[&Receipt]| -> Vec<u64> {
            receipts.iter().map(|receipt| receipt.number).collect()
        };
        let made: Made = made.iter().map(|(at, receipts)| (*at, numbers(receipts))).collect();
        match claim.flaw(&made, &(0..=0)) {
            Some((Flaw::Lost(count), what)) => {
                self.counts.lost += count;
                self.counts.broken(what);
            }
            Some((Flaw::Twice(count), what)) => self.again(count, what),
            Some((Flaw::Numbers(_), what)) => self.counts.broken(what),
            None => {}
        }
    }

    fn occurrence(&mut self, claim: &Claim, nominal_ms: i64, receipts: &[&Receipt]) {
        let id = format!("{}@{nominal_ms:013}", claim.id);
        // A master that does not know yet of its successor makes occurrences that are forgotten: also
        // some that are later than the pause of the schedule, which the successor knows.
        let is_forgotten = self.loses_writes && claim.is_on_grid(nominal_ms);
        if !claim.has(nominal_ms) && !is_forgotten {
            self.counts.broken(format!("{id}: no time of the schedule"));
        }
        let attempts: BTreeSet<u32> = receipts.iter().map(|receipt| receipt.attempt).collect();
        self.counts.redelivered += attempts.len().saturating_sub(1) as u64;
        let repeats = receipts.len() - attempts.len();
        if repeats > 0 {
            let what = format!("{id}: {} receipts of the attempts {attempts:?}", receipts.len());
            self.again(repeats as u64, what);
        }
        let first_us = receipts.iter().map(|receipt| receipt.at_us).min().unwrap_or_default();
        let late_us = first_us - nominal_ms * 1000;
        if late_us < 0 {
            self.counts.early += 1;
            self.counts.broken(format!("{id}: {} µs early", -late_us));
        }
        self.late_overall.add(late_us);
        if !self.faults.iter().any(|fault| fault.contains(&nominal_ms)) {
            self.late.add(late_us);
        }
    }

    /// Something came again, which a failover may explain.
    fn again(&mut self, count: u64, what: String) {
        if self.loses_writes {
            self.counts.forgotten += count;
        } else {
            self.counts.twice += count;
            self.counts.broken(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: i64 = 1_700_000_000_000;

    fn claim(occurrence: u64, missed: u64) -> Claim {
        let (start_ms, next_ms) = (START_MS, START_MS + 3000);
        Claim { id: "a".to_owned(), start_ms, every_ms: 1000, next_ms, occurrence, missed }
    }

    /// A receipt 5 ms after the nominal time of this second.
    fn receipt(second: i64, number: u64, attempt: u32) -> Receipt {
        let nominal_ms = START_MS + second * 1000;
        let at_us = (nominal_ms + 5) * 1000;
        Receipt { id: format!("a@{nominal_ms}"), number, attempt, at_us }
    }

    fn judged(claim: Claim, receipts: &[Receipt], loses_writes: bool) -> Counts {
        check(&[claim], receipts, &[], loses_writes)
    }

    #[test]
    fn made_once_in_order_or_missed_is_sound() {
        let all = [receipt(0, 1, 1), receipt(1, 2, 1), receipt(1, 2, 2), receipt(2, 3, 1)];
        let counts = judged(claim(3, 0), &all, false);
        assert_eq!((counts.occurrences, counts.redelivered, counts.wrongs), (3, 1, 0));
        assert_eq!((counts.late.count, counts.late.max_ms.round()), (3, 5.0));
        let counts = judged(claim(2, 1), &[receipt(0, 1, 1), receipt(2, 2, 1)], false);
        assert_eq!((counts.occurrences, counts.missed, counts.wrongs), (2, 1, 0));
    }

    #[test]
    fn a_time_without_an_occurrence_is_lost_whatever_redis_lost() {
        for loses_writes in [false, true] {
            let two = [receipt(0, 1, 1), receipt(2, 2, 1)];
            let counts = judged(claim(2, 0), &two, loses_writes);
            assert_eq!((counts.lost, counts.wrongs), (1, 1), "{:?}", counts.wrong);
        }
    }

    #[test]
    fn only_a_failover_explains_what_comes_again() {
        let again = [receipt(0, 1, 1), receipt(0, 1, 1), receipt(1, 2, 1), receipt(2, 3, 1)];
        let both = [receipt(0, 1, 1), receipt(1, 2, 1), receipt(2, 2, 1)];
        for (claim, receipts) in [(claim(3, 0), &again[..]), (claim(2, 1), &both[..])] {
            let counts = judged(claim.clone(), receipts, false);
            assert_eq!((counts.twice, counts.wrongs), (1, 1), "{:?}", counts.wrong);
            let counts = judged(claim, receipts, true);
            assert_eq!((counts.forgotten, counts.twice, counts.wrongs), (1, 0, 0));
        }
    }

    #[test]
    fn gaps_early_receipts_and_strange_times_are_broken_promises() {
        let numbered = |numbers: [u64; 3]| {
            let all: Vec<Receipt> = (0..).zip(numbers).map(|(at, n)| receipt(at, n, 1)).collect();
            judged(claim(3, 0), &all, true).wrongs
        };
        assert_eq!([[1, 2, 3], [1, 3, 4], [1, 3, 2]].map(numbered), [0, 1, 1]);
        let mut all = [receipt(0, 1, 1), receipt(1, 2, 1), receipt(2, 3, 1)];
        all[1].at_us -= 5001;
        let counts = judged(claim(3, 0), &all, true);
        assert_eq!((counts.early, counts.wrongs), (1, 1), "{:?}", counts.wrong);
        all[1] = Receipt { id: format!("a@{}", START_MS + 1500), ..receipt(1, 2, 1) };
        all[1].at_us += 500_000;
        assert_eq!(judged(claim(3, 0), &all, true).wrongs, 1);
        all[1].id = "b@1700000001000".to_owned();
        assert_eq!(judged(claim(2, 1), &all, true).wrongs, 2, "a schedule too much, and a number");
    }

    #[test]
    fn what_was_due_around_a_fault_is_not_in_the_calm_figures() {
        let all = [receipt(0, 1, 1), receipt(1, 2, 1), receipt(2, 3, 1)];
        let fault = START_MS + 900..=START_MS + 1100;
        let counts = check(&[claim(3, 0)], &all, &[fault], false);
        assert_eq!((counts.late.count, counts.late_overall.count), (2, 3));
    }
}
