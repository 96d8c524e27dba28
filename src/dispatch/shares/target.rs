//! A destination as its share knows it: its pace, its pattern, and what is in flight to it.

use super::amount::Amount;
use crate::clock::Instant;

/// The time for which a destination holds its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Nothing is known: it has not answered of late.
    New,
    Quick,
    Slow,
}

/// The destinations of one pattern of `allow`. Each may be of a single job (a subject for each
/// customer): then only all of them together show whether they confirm.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    /// In flight to destinations that are not quick.
    pub(super) in_flight: Amount,
    /// Destinations in a row that did not confirm.
    pub(super) silent: usize,
    /// Since when no other message fits.
    pub(super) full: Option<Instant>,
    /// The log says that the destinations of this pattern do not confirm.
    pub(super) logged: bool,
}

#[derive(Debug)]
pub(super) struct Target {
    pub(super) in_flight: Amount,
    pub(super) pattern: usize,
    pub(super) pace: Pace,
    /// The last answer.
    pub(super) answered: Option<Instant>,
    /// The last outcome, or since when messages are in flight.
    pub(super) since: Instant,
}

/// Counts what is in flight to a destination by its new pace.
pub(super) fn set_pace(
    target: &mut Target,
    pace: Pace,
    (new, slow): (&mut Amount, &mut Amount),
    patterns: &mut [Pattern],
) {
    if target.pace == pace {
        return;
    }
    match target.pace {
        Pace::Quick => {}
        Pace::New => new.sub(target.in_flight),
        Pace::Slow => slow.sub(target.in_flight),
    }
    match pace {
        Pace::Quick => {}
        Pace::New => new.add(target.in_flight),
        Pace::Slow => slow.add(target.in_flight),
    }
    if let Some(pattern) = patterns.get_mut(target.pattern) {
        match (target.pace, pace) {
            (Pace::Quick, _) => pattern.in_flight.add(target.in_flight),
            (_, Pace::Quick) => pattern.in_flight.sub(target.in_flight),
            _ => {}
        }
    }
    target.pace = pace;
}
