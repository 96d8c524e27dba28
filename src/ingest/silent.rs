//! Destinations of verdicts that gave no word in time: nobody waits for them until one is confirmed there.

use std::collections::HashMap;

use dwell_connectors::{Destination, Outcome};
use parking_lot::Mutex;

/// The most of them. Producers name them, so there may be any number.
const DESTINATIONS: usize = 1024;
/// The most verdicts that are on their way to one of them.
const UNDER_WAY: usize = 4096;

/// Those that are silent, and how many verdicts are on their way to each.
#[derive(Debug, Default)]
pub(super) struct Silent(Mutex<HashMap<Destination, usize>>);

impl Silent {
    /// Whether the last word from there did not come in time.
    pub(super) fn is(&self, to: &Destination) -> bool {
        self.0.lock().contains_key(to)
    }

    /// A verdict sets out for one of them; false where too many are on their way.
    pub(super) fn begin(&self, to: &Destination) -> bool {
        let mut silent = self.0.lock();
        let Some(under_way) = silent.get_mut(to) else { return true };
        let has_room = *under_way < UNDER_WAY;
        *under_way += usize::from(has_room);
        has_room
    }

    /// What became of a verdict. Any word breaks the silence.
    pub(super) fn heard(&self, to: &Destination, outcome: &Outcome) {
        let mut silent = self.0.lock();
        if !matches!(outcome, Outcome::Unknown(_)) {
            silent.remove(to);
        } else if let Some(under_way) = silent.get_mut(to) {
            *under_way = under_way.saturating_sub(1);
        } else if silent.len() < DESTINATIONS {
            silent.insert(to.clone(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_ends_with_a_word_and_bounds_what_is_under_way() {
        let (silent, to) = (Silent::default(), Destination::new("replies"));
        let unknown = Outcome::Unknown("no confirm in time".to_owned());
        assert!(!silent.is(&to) && silent.begin(&to));
        silent.heard(&to, &unknown);
        assert!(silent.is(&to));
        assert_eq!((0..=UNDER_WAY).filter(|_| silent.begin(&to)).count(), UNDER_WAY);
        silent.heard(&to, &unknown);
        assert!(silent.begin(&to) && !silent.begin(&to));
        silent.heard(&to, &Outcome::Refused("it is full".to_owned()));
        assert!(!silent.is(&to));
    }

    #[test]
    fn there_are_not_more_than_so_many() {
        let silent = Silent::default();
        for n in 0..=DESTINATIONS {
            silent.heard(&Destination::new(format!("replies-{n}")), &Outcome::Unknown(String::new()));
        }
        assert_eq!(silent.0.lock().len(), DESTINATIONS);
    }
}
