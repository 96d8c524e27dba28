//! Turns the receipts of consumers into a verdict on each schedule.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use serde::Serialize;

use super::occurrences::{Claim, Flaw, Made, split};
use super::{Receipt, Received, Wrongs};
use crate::bench::percentiles::{Latencies, Percentiles};

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
    /// The broken promises.
    #[serde(flatten)]
    pub wrongs: Wrongs,
}

/// The seconds around a fault, epoch ms.
pub(crate) type FaultTime = RangeInclusive<i64>;

struct Checker<'a> {
    counts: Counts,
    faults: &'a [FaultTime],
    loses_writes: bool,
    late: Latencies,
    late_overall: Latencies,
}

/// Checks the receipts against what the schedules say. `loses_writes`: Redis failed over, so that a
/// write may have been lost.
pub(crate) fn check(
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
            None => checker.counts.wrongs.broken(format!("{}: no id of an occurrence", receipt.id)),
        }
    }
    for claim in claims {
        checker.schedule(claim, &made.remove(claim.id.as_str()).unwrap_or_default());
    }
    for schedule in made.keys() {
        let what = format!("{schedule}: received, and there is no such schedule");
        checker.counts.wrongs.broken(what);
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
                self.counts.wrongs.broken(what);
            }
            Some((Flaw::Twice(count), what)) => self.again(count, what),
            Some((Flaw::Numbers(_), what)) => self.counts.wrongs.broken(what),
            None => {}
        }
    }

    fn occurrence(&mut self, claim: &Claim, nominal_ms: i64, receipts: &[&Receipt]) {
        let id = format!("{}@{nominal_ms:013}", claim.id);
        // A master that does not know yet of its successor makes occurrences that are forgotten: also
        // some that are later than the pause of the schedule, which the successor knows.
        let is_forgotten = self.loses_writes && claim.is_on_grid(nominal_ms);
        if !claim.has(nominal_ms) && !is_forgotten {
            self.counts.wrongs.broken(format!("{id}: no time of the schedule"));
        }
        let received = Received::of(&id, nominal_ms, receipts, &mut self.counts.wrongs);
        let Received { late_us, ref attempts } = received;
        let (count, repeats) = (receipts.len() as u64, received.repeats());
        self.counts.redelivered += count - repeats - 1;
        if repeats > 0 {
            let attempts: BTreeSet<&u32> = attempts.iter().collect();
            self.again(repeats, format!("{id}: {count} receipts of the attempts {attempts:?}"));
        }
        self.counts.early += u64::from(late_us < 0);
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
            self.counts.wrongs.broken(what);
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
        assert_eq!((counts.occurrences, counts.redelivered, counts.wrongs.wrongs), (3, 1, 0));
        assert_eq!((counts.late.count, counts.late.max_ms.round()), (3, 5.0));
        let counts = judged(claim(2, 1), &[receipt(0, 1, 1), receipt(2, 2, 1)], false);
        assert_eq!((counts.occurrences, counts.missed, counts.wrongs.wrongs), (2, 1, 0));
    }

    #[test]
    fn a_time_without_an_occurrence_is_lost_whatever_redis_lost() {
        for loses_writes in [false, true] {
            let two = [receipt(0, 1, 1), receipt(2, 2, 1)];
            let counts = judged(claim(2, 0), &two, loses_writes);
            assert_eq!((counts.lost, counts.wrongs.wrongs), (1, 1), "{:?}", counts.wrongs.wrong);
        }
    }

    #[test]
    fn only_a_failover_explains_what_comes_again() {
        let again = [receipt(0, 1, 1), receipt(0, 1, 1), receipt(1, 2, 1), receipt(2, 3, 1)];
        let both = [receipt(0, 1, 1), receipt(1, 2, 1), receipt(2, 2, 1)];
        for (claim, receipts) in [(claim(3, 0), &again[..]), (claim(2, 1), &both[..])] {
            let counts = judged(claim.clone(), receipts, false);
            assert_eq!((counts.twice, counts.wrongs.wrongs), (1, 1), "{:?}", counts.wrongs.wrong);
            let counts = judged(claim, receipts, true);
            assert_eq!((counts.forgotten, counts.twice, counts.wrongs.wrongs), (1, 0, 0));
        }
    }

    #[test]
    fn gaps_early_receipts_and_strange_times_are_broken_promises() {
        let numbered = |numbers: [u64; 3]| {
            let all: Vec<Receipt> = (0..).zip(numbers).map(|(at, n)| receipt(at, n, 1)).collect();
            judged(claim(3, 0), &all, true).wrongs.wrongs
        };
        assert_eq!([[1, 2, 3], [1, 3, 4], [1, 3, 2]].map(numbered), [0, 1, 1]);
        let mut all = [receipt(0, 1, 1), receipt(1, 2, 1), receipt(2, 3, 1)];
        all[1].at_us -= 5001;
        let counts = judged(claim(3, 0), &all, true);
        assert_eq!((counts.early, counts.wrongs.wrongs), (1, 1), "{:?}", counts.wrongs.wrong);
        all[1] = Receipt { id: format!("a@{}", START_MS + 1500), ..receipt(1, 2, 1) };
        all[1].at_us += 500_000;
        assert_eq!(judged(claim(3, 0), &all, true).wrongs.wrongs, 1);
        all[1].id = "b@1700000001000".to_owned();
        assert_eq!(
            judged(claim(2, 1), &all, true).wrongs.wrongs,
            2,
            "a schedule too much, and a number"
        );
    }

    #[test]
    fn what_was_due_around_a_fault_is_not_in_the_calm_figures() {
        let all = [receipt(0, 1, 1), receipt(1, 2, 1), receipt(2, 3, 1)];
        let fault = START_MS + 900..=START_MS + 1100;
        let counts = check(&[claim(3, 0)], &all, &[fault], false);
        assert_eq!((counts.late.count, counts.late_overall.count), (2, 3));
    }
}
