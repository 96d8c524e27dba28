//! What the events of jobs must look like: of what became of the jobs each is told once, but for
//! those that are counted as dropped. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Wrongs;

/// What became of jobs: the ids by the kind of the event.
pub(crate) type Ledger = BTreeMap<&'static str, BTreeSet<String>>;

/// An event: its kind and the id of its job.
pub(crate) type Told = (String, String);

/// The events of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// How often it happened.
    pub happened: u64,
    /// How many events were read.
    pub told: u64,
    /// What happened without an event.
    pub missing: u64,
    /// Events of what did not happen.
    pub invented: u64,
    /// Events beyond the first of what happened.
    pub doubled: u64,
}

/// Compares the ledger with the events, by kind. `dropped`: how many events the instances counted as
/// dropped.
pub(crate) fn compare(
    ledger: &Ledger,
    told: &[Told],
    dropped: u64,
    wrongs: &mut Wrongs,
) -> BTreeMap<String, Kind> {
    let mut seen: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (kind, id) in told {
        *seen.entry(kind).or_default().entry(id).or_default() += 1;
    }
    let names: BTreeSet<&str> = ledger.keys().chain(seen.keys()).copied().collect();
    let (mut kinds, none, nothing) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for name in names {
        let (happened, events) =
            (ledger.get(name).unwrap_or(&nothing), seen.get(name).unwrap_or(&none));
        let missing = happened.iter().filter(|id| !events.contains_key(id.as_str())).count();
        let mut kind = Kind {
            happened: happened.len() as u64,
            told: events.values().sum(),
            missing: missing as u64,
            ..Kind::default()
        };
        for (id, count) in events {
            if !happened.contains(*id) {
                kind.invented += count;
                wrongs.broken(format!("{name} of {id}: told, and it did not happen"));
            } else if *count > 1 {
                kind.doubled += count - 1;
                wrongs.broken(format!("{name} of {id}: told {count} times"));
            }
        }
        kinds.insert(name.to_owned(), kind);
    }
    let missing: u64 = kinds.values().map(|kind| kind.missing).sum();
    if missing > dropped {
        wrongs
            .broken(format!("{missing} events are missing, and {dropped} are counted as dropped"));
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        BTreeMap::from([("scheduled", ids(&["a", "b"])), ("delivered", ids(&["a"]))])
    }

    fn compared(told: &[(&str, &str)], dropped: u64) -> (BTreeMap<String, Kind>, u64) {
        let told: Vec<Told> =
            told.iter().map(|(kind, id)| ((*kind).to_owned(), (*id).to_owned())).collect();
        let mut wrongs = Wrongs::default();
        let kinds = compare(&ledger(), &told, dropped, &mut wrongs);
        (kinds, wrongs.wrongs)
    }

    #[test]
    fn what_is_told_once_is_sound_in_any_order() {
        let (kinds, wrongs) =
            compared(&[("delivered", "a"), ("scheduled", "b"), ("scheduled", "a")], 0);
        assert_eq!(wrongs, 0);
        assert_eq!(kinds["scheduled"], Kind { happened: 2, told: 2, ..Kind::default() });
        assert_eq!(kinds["delivered"], Kind { happened: 1, told: 1, ..Kind::default() });
    }

    #[test]
    fn what_is_missing_is_refused_unless_it_is_counted_as_dropped() {
        for (dropped, expected) in [(0, 1), (1, 1), (2, 0)] {
            let (kinds, wrongs) = compared(&[("scheduled", "b")], dropped);
            assert_eq!((kinds["scheduled"].missing, kinds["delivered"].missing), (1, 1));
            assert_eq!(wrongs, expected, "{dropped} were dropped");
        }
    }

    #[test]
    fn what_is_told_twice_and_what_did_not_happen_are_refused() {
        let all = [("delivered", "a"), ("scheduled", "b"), ("scheduled", "a")];
        let (kinds, wrongs) = compared(&[&all[..], &[("scheduled", "b")]].concat(), 0);
        assert_eq!((kinds["scheduled"].doubled, wrongs), (1, 1));
        for invented in [("delivered", "b"), ("dead", "a")] {
            let (kinds, wrongs) = compared(&[&all[..], &[invented]].concat(), 0);
            assert_eq!((kinds[invented.0].invented, wrongs), (1, 1), "{invented:?}");
        }
    }
}
