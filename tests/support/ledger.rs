//! The ledger: what was asked for, what arrived, and what that says: lost, early, damaged, unexpected, duplicates.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;

/// Everything that was asked for and everything that arrived.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    asked: HashMap<String, Asked>,
    arrived: HashMap<String, Vec<Arrival>>,
    /// Where the broker has what arrived: its own redelivery to the test is no arrival.
    seen: HashSet<u64>,
}

#[derive(Debug)]
struct Asked {
    /// Epoch ms.
    due_ms: i64,
    body: [u8; 32],
}

/// One message on a target.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// Its place in the target's log.
    pub(crate) position: u64,
    /// When the broker took it, epoch ms.
    pub(crate) at_ms: i64,
    /// `delayed-attempt`
    pub(crate) attempt: u32,
    /// As it came.
    pub(crate) body: Bytes,
}

/// What the ledger says. Ids, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Asked for, and never came.
    pub(crate) lost: Vec<String>,
    /// Came before its time.
    pub(crate) early: Vec<String>,
    /// Came with another body.
    pub(crate) damaged: Vec<String>,
    /// Came, and was never asked for.
    pub(crate) unexpected: Vec<String>,
    /// Came more than once, with the number of copies past the first.
    pub(crate) duplicates: BTreeMap<String, usize>,
}

impl Ledger {
    /// A request was accepted by the broker.
    pub(crate) fn asked(&mut self, id: &str, due_ms: i64, body: &[u8]) {
        let asked = Asked { due_ms, body: *blake3::hash(body).as_bytes() };
        assert!(self.asked.insert(id.to_owned(), asked).is_none(), "`{id}` was asked for twice");
    }

    /// A message was read from a target. The same place twice is the same message.
    pub(crate) fn arrived(&mut self, id: &str, arrival: Arrival) {
        if self.seen.insert(arrival.position) {
            self.arrived.entry(id.to_owned()).or_default().push(arrival);
        }
    }

    /// How many requests there were.
    pub(crate) fn count(&self) -> usize {
        self.asked.len()
    }

    /// How many different ids arrived.
    pub(crate) fn distinct(&self) -> usize {
        self.arrived.len()
    }

    /// How many messages arrived, copies included.
    pub(crate) fn total(&self) -> usize {
        self.seen.len()
    }

    /// Ids that came with a higher attempt than 1.
    pub(crate) fn attempted_again(&self) -> usize {
        self.arrived.values().filter(|arrivals| arrivals.iter().any(|arrival| arrival.attempt > 1)).count()
    }

    /// What there is to say.
    pub(crate) fn report(&self) -> Report {
        let mut report = Report::default();
        for (id, asked) in &self.asked {
            let arrivals = self.arrived.get(id).map_or(&[][..], Vec::as_slice);
            if arrivals.is_empty() {
                report.lost.push(id.clone());
            }
            if arrivals.iter().any(|arrival| arrival.at_ms < asked.due_ms) {
                report.early.push(id.clone());
            }
            if arrivals.iter().any(|arrival| blake3::hash(&arrival.body).as_bytes() != &asked.body) {
                report.damaged.push(id.clone());
            }
            if arrivals.len() > 1 {
                report.duplicates.insert(id.clone(), arrivals.len() - 1);
            }
        }
        report.unexpected.extend(self.arrived.keys().filter(|id| !self.asked.contains_key(*id)).cloned());
        for list in [&mut report.lost, &mut report.early, &mut report.damaged, &mut report.unexpected] {
            list.sort();
        }
        report
    }

    /// The report, where nothing but duplicates may be wrong; how many copies there were past the first of each.
    #[track_caller]
    pub(crate) fn sound(&self) -> usize {
        let mut report = self.report();
        let copies = std::mem::take(&mut report.duplicates).values().sum();
        assert!(
            report == Report::default(),
            "of {} asked for {} are lost, {} early, {} damaged, {} unexpected; for instance {:?} {:?} {:?} {:?}",
            self.count(),
            report.lost.len(),
            report.early.len(),
            report.damaged.len(),
            report.unexpected.len(),
            report.lost.first().map(|id| (id, self.asked.get(id))),
            report.early.first().map(|id| (id, self.asked.get(id), self.arrived.get(id))),
            report.damaged.first(),
            report.unexpected.first()
        );
        copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(position: u64, at_ms: i64, body: &str) -> Arrival {
        Arrival { position, at_ms, attempt: 1, body: Bytes::from(body.to_owned()) }
    }

    fn three() -> Ledger {
        let mut ledger = Ledger::default();
        for id in ["a", "b", "c"] {
            ledger.asked(id, 100, id.as_bytes());
            ledger.arrived(id, arrival(u64::from(id.as_bytes()[0]), 100, id));
        }
        ledger
    }

    #[test]
    fn a_true_run_has_nothing_to_say() {
        let mut ledger = three();
        assert_eq!(ledger.report(), Report::default());
        // The broker's own redelivery to the reader.
        ledger.arrived("a", arrival(u64::from(b'a'), 100, "a"));
        assert_eq!((ledger.sound(), ledger.total(), ledger.distinct(), ledger.attempted_again()), (0, 3, 3, 0));
    }

    #[test]
    fn each_planted_fault_is_found_alone() {
        let mut lost = three();
        lost.asked("d", 100, b"d");
        assert_eq!(lost.report(), Report { lost: vec!["d".to_owned()], ..Report::default() });

        let mut early = three();
        early.asked("d", 100, b"d");
        early.arrived("d", arrival(1, 99, "d"));
        assert_eq!(early.report(), Report { early: vec!["d".to_owned()], ..Report::default() });

        let mut damaged = three();
        damaged.asked("d", 100, b"d");
        damaged.arrived("d", arrival(1, 100, "D"));
        assert_eq!(damaged.report(), Report { damaged: vec!["d".to_owned()], ..Report::default() });

        let mut unexpected = three();
        unexpected.arrived("d", arrival(1, 100, "d"));
        assert_eq!(unexpected.report(), Report { unexpected: vec!["d".to_owned()], ..Report::default() });

        let mut twice = three();
        twice.arrived("a", arrival(1, 200, "a"));
        twice.arrived("a", arrival(2, 300, "a"));
        assert_eq!(twice.report(), Report { duplicates: BTreeMap::from([("a".to_owned(), 2)]), ..Report::default() });
        assert_eq!(twice.sound(), 2);
    }

    #[test]
    #[should_panic(expected = "1 are lost")]
    fn an_unsound_run_panics() {
        let mut ledger = three();
        ledger.asked("d", 100, b"d");
        ledger.sound();
    }
}
