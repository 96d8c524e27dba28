//! The ledger: what was asked for, what arrived, and what that says: lost, early, misdated, damaged, unexpected, duplicates.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use bytes::Bytes;

/// Everything that was asked for and everything that arrived.
#[derive(Debug, Default)]
pub struct Ledger {
    asked: HashMap<String, Asked>,
    arrived: HashMap<String, Vec<Arrival>>,
    /// Where the broker has what arrived: its own redelivery to the test is no arrival.
    seen: HashSet<u64>,
}

#[derive(Debug)]
struct Asked {
    /// Epoch ms: the times that the promise can mean. One, where the producer named it.
    due_ms: RangeInclusive<i64>,
    body: [u8; 32],
    /// The broker confirmed the request: it must arrive. Else it may.
    certain: bool,
}

/// One message on a target.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its place in the target's log.
    pub position: u64,
    /// When the broker took it, epoch ms.
    pub at_ms: i64,
    /// `delayed-attempt`
    pub attempt: u32,
    /// `delayed-due`
    pub due_ms: i64,
    /// As it came.
    pub body: Bytes,
}

/// What the ledger says. Ids, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Asked for, confirmed, and never came.
    pub lost: Vec<String>,
    /// Came before its time.
    pub early: Vec<String>,
    /// Came with a due time that was not asked for.
    pub misdated: Vec<String>,
    /// Came with another body.
    pub damaged: Vec<String>,
    /// Came, and was never asked for.
    pub unexpected: Vec<String>,
    /// A copy that does not carry a higher attempt than the one before it.
    pub unnumbered: Vec<String>,
    /// Came more than once, with the number of copies past the first.
    pub duplicates: BTreeMap<String, usize>,
}

impl Ledger {
    /// A request was accepted by the broker.
    pub fn asked(&mut self, id: &str, due_ms: RangeInclusive<i64>, body: &[u8]) {
        self.enter(id, due_ms, body, true);
    }

    /// A request was sent, and the broker did not say that it took it: it may have.
    pub fn perhaps(&mut self, id: &str, due_ms: RangeInclusive<i64>, body: &[u8]) {
        self.enter(id, due_ms, body, false);
    }

    fn enter(&mut self, id: &str, due_ms: RangeInclusive<i64>, body: &[u8], certain: bool) {
        let asked = Asked { due_ms, body: *blake3::hash(body).as_bytes(), certain };
        assert!(self.asked.insert(id.to_owned(), asked).is_none(), "`{id}` was asked for twice");
    }

    /// A message was read from a target. The same place twice is the same message.
    pub fn arrived(&mut self, id: &str, arrival: Arrival) {
        if self.seen.insert(arrival.position) {
            self.arrived.entry(id.to_owned()).or_default().push(arrival);
        }
    }

    /// How many requests must arrive.
    pub fn count(&self) -> usize {
        self.asked.values().filter(|asked| asked.certain).count()
    }

    /// How many requests may arrive.
    pub fn uncertain(&self) -> usize {
        self.asked.len() - self.count()
    }

    /// How many different ids arrived.
    pub fn distinct(&self) -> usize {
        self.arrived.len()
    }

    /// How many messages of this id arrived.
    pub fn arrivals_of(&self, id: &str) -> usize {
        self.arrived.get(id).map_or(0, Vec::len)
    }

    /// Every message that arrived, and whose.
    pub fn arrivals(&self) -> impl Iterator<Item = (&str, &Arrival)> {
        self.arrived.iter().flat_map(|(id, arrivals)| arrivals.iter().map(move |arrival| (id.as_str(), arrival)))
    }

    /// How many messages arrived, copies included.
    pub fn total(&self) -> usize {
        self.seen.len()
    }

    /// Ids that came with a higher attempt than 1.
    pub fn attempted_again(&self) -> Vec<&str> {
        let again = self.arrived.iter().filter(|(_, arrivals)| arrivals.iter().any(|arrival| arrival.attempt > 1));
        again.map(|(id, _)| id.as_str()).collect()
    }

    /// Attempts past the first of each id, by the highest number that came.
    pub fn attempts_burned(&self) -> u64 {
        let highest = |arrivals: &Vec<Arrival>| arrivals.iter().map(|arrival| arrival.attempt).max().unwrap_or(1);
        self.arrived.values().map(|arrivals| u64::from(highest(arrivals)) - 1).sum()
    }

    /// What there is to say.
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        for (id, asked) in &self.asked {
            let mut arrivals: Vec<&Arrival> = self.arrived.get(id).into_iter().flatten().collect();
            arrivals.sort_by_key(|arrival| arrival.position);
            if arrivals.is_empty() && asked.certain {
                report.lost.push(id.clone());
            }
            // The broker's clock is Redis's: one host. What came with a later due time than it was asked for is measured by that.
            if arrivals.iter().any(|arrival| arrival.at_ms < *asked.due_ms.start() || arrival.at_ms < arrival.due_ms) {
                report.early.push(id.clone());
            }
            if arrivals.iter().any(|arrival| !asked.due_ms.contains(&arrival.due_ms)) {
                report.misdated.push(id.clone());
            }
            if arrivals.iter().any(|arrival| blake3::hash(&arrival.body).as_bytes() != &asked.body) {
                report.damaged.push(id.clone());
            }
            if arrivals.iter().any(|arrival| arrival.attempt < 1) || arrivals.windows(2).any(|pair| pair[1].attempt <= pair[0].attempt) {
                report.unnumbered.push(id.clone());
            }
            if arrivals.len() > 1 {
                report.duplicates.insert(id.clone(), arrivals.len() - 1);
            }
        }
        report.unexpected.extend(self.arrived.keys().filter(|id| !self.asked.contains_key(*id)).cloned());
        for list in report.lists() {
            list.sort();
        }
        report
    }

    /// The report, where nothing but duplicates may be wrong: the copies past the first of each id.
    #[track_caller]
    pub fn sound(&self) -> BTreeMap<String, usize> {
        self.sound_where(&HashSet::new())
    }

    /// As [`Ledger::sound`], where these were in the hands of a process that was stopped and went on: what it had begun to send goes out when it
    /// wakes, after the attempts that others made meanwhile. Their order is free; no attempt comes twice.
    #[track_caller]
    pub fn sound_where(&self, stopped: &HashSet<String>) -> BTreeMap<String, usize> {
        let mut report = self.report();
        report.unnumbered.retain(|id| {
            let attempts: Vec<u32> = self.arrived.get(id).into_iter().flatten().map(|arrival| arrival.attempt).collect();
            !stopped.contains(id) || attempts.contains(&0) || attempts.iter().collect::<HashSet<_>>().len() < attempts.len()
        });
        let copies = std::mem::take(&mut report.duplicates);
        let [lost, early, misdated, damaged, unexpected, unnumbered] = report.lists().map(|list| list.len());
        let examples: Vec<_> =
            report.lists().into_iter().filter_map(|list| list.first().map(|id| (id, self.asked.get(id), self.arrived.get(id)))).collect();
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
        [&mut self.lost, &mut self.early, &mut self.misdated, &mut self.damaged, &mut self.unexpected, &mut self.unnumbered]
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

    /// The three, and a fourth that arrives so.
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
        // The broker's own redelivery to the reader.
        ledger.arrived("a", arrival(u64::from(b'a'), 100, "a"));
        assert_eq!((ledger.sound().len(), ledger.total(), ledger.distinct(), ledger.attempts_burned()), (0, 3, 3, 0));
        assert_eq!((ledger.count(), ledger.uncertain()), (3, 1));
    }

    #[test]
    fn each_planted_fault_is_found_alone() {
        let d = || vec!["d".to_owned()];
        assert_eq!(fourth(&[]), Report { lost: d(), ..Report::default() });
        assert_eq!(fourth(&[arrival(1, 99, "d")]), Report { early: d(), ..Report::default() });
        assert_eq!(fourth(&[Arrival { due_ms: 99, ..arrival(1, 100, "d") }]), Report { misdated: d(), ..Report::default() });
        assert_eq!(fourth(&[arrival(1, 100, "D")]), Report { damaged: d(), ..Report::default() });

        let mut unexpected = three();
        unexpected.arrived("d", arrival(1, 100, "d"));
        assert_eq!(unexpected.report(), Report { unexpected: d(), ..Report::default() });

        let copies = |second| [arrival(1, 200, "d"), Arrival { attempt: second, ..arrival(2, 300, "d") }];
        let duplicates = || BTreeMap::from([("d".to_owned(), 1)]);
        assert_eq!(fourth(&copies(2)), Report { duplicates: duplicates(), ..Report::default() });
        assert_eq!(fourth(&copies(1)), Report { duplicates: duplicates(), unnumbered: d(), ..Report::default() });
    }

    #[test]
    fn attempts_are_counted_by_the_highest_of_each() {
        let mut ledger = three();
        ledger.arrived("a", Arrival { attempt: 3, ..arrival(200, 200, "a") });
        ledger.arrived("b", Arrival { attempt: 2, ..arrival(201, 200, "b") });
        assert_eq!((ledger.attempts_burned(), ledger.attempted_again().len(), ledger.sound().len()), (3, 2, 2));
    }

    #[test]
    fn what_a_stopped_process_held_may_come_after_a_later_attempt_and_not_twice() {
        let (stopped, none) = (HashSet::from(["a".to_owned()]), HashSet::new());
        let mut ledger = three();
        let sound = |ledger: &Ledger, stopped: &_| std::panic::catch_unwind(|| ledger.sound_where(stopped)).is_ok();
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
