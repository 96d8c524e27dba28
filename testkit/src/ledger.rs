//! The ledger: the requests, the messages that arrived, and the differences: lost, early, misdated,
//! damaged, unexpected, duplicates.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use bytes::Bytes;

/// All requests and all arrivals.
#[derive(Debug, Default)]
pub struct Ledger {
    asked: HashMap<String, ExpectedJob>,
    arrived: HashMap<String, Vec<Arrival>>,
    /// The positions of the arrivals: a redelivery to the reader is not a second arrival.
    seen: HashSet<u64>,
}

#[derive(Debug)]
struct ExpectedJob {
    /// The allowed due times, epoch ms: one if the producer named it.
    due_ms: RangeInclusive<i64>,
    body: [u8; 32],
    /// The broker confirmed the request, so the message must arrive. Otherwise it may.
    certain: bool,
}

/// A message on a target.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The position in the target's log.
    pub position: u64,
    /// The broker's time of receipt, epoch ms.
    pub at_ms: i64,
    /// `delayed-attempt`
    pub attempt: u32,
    /// `delayed-due`
    pub due_ms: i64,
    /// The body.
    pub body: Bytes,
}

/// The differences: ids, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Confirmed requests without an arrival.
    pub lost: Vec<String>,
    /// Arrivals before their due time.
    pub early: Vec<String>,
    /// Arrivals with an unrequested due time.
    pub misdated: Vec<String>,
    /// Arrivals with another body.
    pub damaged: Vec<String>,
    /// Arrivals without a request.
    pub unexpected: Vec<String>,
    /// Copies whose attempt is not higher than that of the copy before.
    pub unnumbered: Vec<String>,
    /// Ids with more than one arrival, and the number of copies past the first.
    pub duplicates: BTreeMap<String, usize>,
}

impl Ledger {
    /// The broker accepted a request.
    pub fn asked(&mut self, id: &str, due_ms: RangeInclusive<i64>, body: &[u8]) {
        self.enter(id, due_ms, body, true);
    }

    /// A request was sent, and the broker did not confirm it: it may have stored it.
    pub fn perhaps(&mut self, id: &str, due_ms: RangeInclusive<i64>, body: &[u8]) {
        self.enter(id, due_ms, body, false);
    }

    fn enter(&mut self, id: &str, due_ms: RangeInclusive<i64>, body: &[u8], certain: bool) {
        let asked = ExpectedJob { due_ms, body: *blake3::hash(body).as_bytes(), certain };
        assert!(self.asked.insert(id.to_owned(), asked).is_none(), "`{id}` was asked for twice");
    }

    /// A message was read from a target. The same position again is the same message.
    pub fn arrived(&mut self, id: &str, arrival: Arrival) {
        if self.seen.insert(arrival.position) {
            self.arrived.entry(id.to_owned()).or_default().push(arrival);
        }
    }

    /// The number of requests that must arrive.
    pub fn count(&self) -> usize {
        self.asked.values().filter(|asked| asked.certain).count()
    }

    /// The number of requests that may arrive.
    pub fn uncertain(&self) -> usize {
        self.asked.len() - self.count()
    }

    /// The number of distinct ids that arrived.
    pub fn distinct(&self) -> usize {
        self.arrived.len()
    }

    /// The number of arrivals of this id.
    pub fn arrivals_of(&self, id: &str) -> usize {
        self.arrived.get(id).map_or(0, Vec::len)
    }

    /// All arrivals with their ids.
    pub fn arrivals(&self) -> impl Iterator<Item = (&str, &Arrival)> {
        self.arrived
            .iter()
            .flat_map(|(id, arrivals)| arrivals.iter().map(move |arrival| (id.as_str(), arrival)))
    }

    /// The number of arrivals, copies included.
    pub fn total(&self) -> usize {
        self.seen.len()
    }

    /// Ids with an attempt above 1.
    pub fn attempted_again(&self) -> Vec<&str> {
        let again = self
            .arrived
            .iter()
            .filter(|(_, arrivals)| arrivals.iter().any(|arrival| arrival.attempt > 1));
        again.map(|(id, _)| id.as_str()).collect()
    }

    /// Attempts past the first of each id, counted by the highest attempt that arrived.
    pub fn attempts_burned(&self) -> u64 {
        let highest = |arrivals: &Vec<Arrival>| {
            arrivals.iter().map(|arrival| arrival.attempt).max().unwrap_or(1)
        };
        self.arrived.values().map(|arrivals| u64::from(highest(arrivals)) - 1).sum()
    }

    /// Compares requests and arrivals.
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        for (id, asked) in &self.asked {
            let mut arrivals: Vec<&Arrival> = self.arrived.get(id).into_iter().flatten().collect();
            arrivals.sort_by_key(|arrival| arrival.position);
            let any =
                |is_so: &dyn Fn(&Arrival) -> bool| arrivals.iter().any(|arrival| is_so(arrival));
            // The broker's clock is Redis's: both run on this host. A message with a later due time
            // is measured by that due time.
            let due_ms = |arrival: &Arrival| arrival.due_ms.max(*asked.due_ms.start());
            let unnumbered = any(&|arrival| arrival.attempt < 1)
                || arrivals.windows(2).any(|pair| pair[1].attempt <= pair[0].attempt);
            for (is_so, list) in [
                (arrivals.is_empty() && asked.certain, &mut report.lost),
                (any(&|arrival| arrival.at_ms < due_ms(arrival)), &mut report.early),
                (any(&|arrival| !asked.due_ms.contains(&arrival.due_ms)), &mut report.misdated),
                (any(&|arrival| blake3::hash(&arrival.body) != asked.body), &mut report.damaged),
                (unnumbered, &mut report.unnumbered),
            ] {
                if is_so {
                    list.push(id.clone());
                }
            }
            if arrivals.len() > 1 {
                report.duplicates.insert(id.clone(), arrivals.len() - 1);
            }
        }
        report
            .unexpected
            .extend(self.arrived.keys().filter(|id| !self.asked.contains_key(*id)).cloned());
        for list in report.lists() {
            list.sort();
        }
        report
    }

    /// The report if nothing but duplicates is wrong: the copies past the first of each id.
    #[track_caller]
    pub fn sound(&self) -> BTreeMap<String, usize> {
        self.sound_where(&HashSet::new())
    }

    /// As [`Ledger::sound`], for ids that a frozen process held: after it resumes, the process
    /// sends the attempts that it had begun, behind the attempts of others. The order of their
    /// attempts is free, and no attempt occurs twice.
    #[track_caller]
    pub fn sound_where(&self, stopped: &HashSet<String>) -> BTreeMap<String, usize> {
        let mut report = self.report();
        report.unnumbered.retain(|id| {
            let attempts: Vec<u32> =
                self.arrived.get(id).into_iter().flatten().map(|arrival| arrival.attempt).collect();
            !stopped.contains(id)
                || attempts.contains(&0)
                || attempts.iter().collect::<HashSet<_>>().len() < attempts.len()
        });
        let copies = std::mem::take(&mut report.duplicates);
        let [lost, early, misdated, damaged, unexpected, unnumbered] =
            report.lists().map(|list| list.len());
        let examples: Vec<_> = report
            .lists()
            .into_iter()
            .filter_map(|list| {
                list.first().map(|id| (id, self.asked.get(id), self.arrived.get(id)))
            })
            .collect();
        assert!(
            examples.is_empty(),
            "of {} asked for {lost} are lost, {early} early, {misdated} misdated, {damaged} damaged, {unexpected} unexpected, {unnumbered} unnumbered; for instance {examples:?}",
            self.asked.len(),
        );
        copies
    }
}

impl Report {
    fn lists(&mut self) -> [&mut Vec<String>; 6] {
        [
            &mut self.lost,
            &mut self.early,
            &mut self.misdated,
            &mut self.damaged,
            &mut self.unexpected,
            &mut self.unnumbered,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(position: u64, at_ms: i64, body: &str) -> Arrival {
        Arrival { position, at_ms, attempt: 1, due_ms: 100, body: Bytes::from(body.to_owned()) }
    }

    fn three() -> Ledger {
        let mut ledger = Ledger::default();
        for id in ["a", "b", "c"] {
            ledger.asked(id, 100..=100, id.as_bytes());
            ledger.arrived(id, arrival(u64::from(id.as_bytes()[0]), 100, id));
        }
        ledger
    }

    /// The three arrivals and a fourth one like this.
    fn fourth(arrivals: &[Arrival]) -> Report {
        let mut ledger = three();
        ledger.asked("d", 100..=100, b"d");
        arrivals.iter().for_each(|arrival| ledger.arrived("d", arrival.clone()));
        ledger.report()
    }

    #[test]
    fn a_true_run_has_nothing_to_say() {
        let mut ledger = three();
        ledger.perhaps("d", 100..=100, b"d");
        assert_eq!(ledger.report(), Report::default());
        // The broker redelivers to the reader.
        ledger.arrived("a", arrival(u64::from(b'a'), 100, "a"));
        assert_eq!(
            (ledger.sound().len(), ledger.total(), ledger.distinct(), ledger.attempts_burned()),
            (0, 3, 3, 0)
        );
        assert_eq!((ledger.count(), ledger.uncertain()), (3, 1));
    }

    #[test]
    fn each_planted_fault_is_found_alone() {
        let d = || vec!["d".to_owned()];
        assert_eq!(fourth(&[]), Report { lost: d(), ..Report::default() });
        assert_eq!(fourth(&[arrival(1, 99, "d")]), Report { early: d(), ..Report::default() });
        assert_eq!(
            fourth(&[Arrival { due_ms: 99, ..arrival(1, 100, "d") }]),
            Report { misdated: d(), ..Report::default() }
        );
        assert_eq!(fourth(&[arrival(1, 100, "D")]), Report { damaged: d(), ..Report::default() });

        let mut unexpected = three();
        unexpected.arrived("d", arrival(1, 100, "d"));
        assert_eq!(unexpected.report(), Report { unexpected: d(), ..Report::default() });

        let copies =
            |second| [arrival(1, 200, "d"), Arrival { attempt: second, ..arrival(2, 300, "d") }];
        let duplicates = || BTreeMap::from([("d".to_owned(), 1)]);
        assert_eq!(fourth(&copies(2)), Report { duplicates: duplicates(), ..Report::default() });
        assert_eq!(
            fourth(&copies(1)),
            Report { duplicates: duplicates(), unnumbered: d(), ..Report::default() }
        );
    }

    #[test]
    fn attempts_are_counted_by_the_highest_of_each() {
        let mut ledger = three();
        ledger.arrived("a", Arrival { attempt: 3, ..arrival(200, 200, "a") });
        ledger.arrived("b", Arrival { attempt: 2, ..arrival(201, 200, "b") });
        assert_eq!(
            (ledger.attempts_burned(), ledger.attempted_again().len(), ledger.sound().len()),
            (3, 2, 2)
        );
    }

    #[test]
    fn what_a_stopped_process_held_may_come_after_a_later_attempt_and_not_twice() {
        let (stopped, none) = (HashSet::from(["a".to_owned()]), HashSet::new());
        let mut ledger = three();
        let sound = |ledger: &Ledger, stopped: &_| {
            std::panic::catch_unwind(|| ledger.sound_where(stopped)).is_ok()
        };
        ledger.arrived("a", Arrival { attempt: 3, ..arrival(200, 200, "a") });
        ledger.arrived("a", Arrival { attempt: 2, ..arrival(201, 300, "a") });
        assert!(sound(&ledger, &stopped) && !sound(&ledger, &none));
        ledger.arrived("a", Arrival { attempt: 2, ..arrival(202, 400, "a") });
        assert!(!sound(&ledger, &stopped));
    }

    #[test]
    #[should_panic(expected = "1 are lost")]
    fn an_unsound_run_panics() {
        let mut ledger = three();
        ledger.asked("d", 100..=100, b"d");
        ledger.sound();
    }
}
