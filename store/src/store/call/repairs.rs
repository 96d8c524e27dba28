//! Repairs of calls that Redis did not run: whether they are sent again, and what comes before.
//!
//! - `NOSCRIPT`: the scripts of the calls are loaded, once until a round makes progress. Where a
//!   master fails to, its error is the answer to its calls, and the others are sent again.
//! - `MOVED`: the calls go to the new master after a pause, up to the moves that a client follows.
//!   That master may lack the scripts.
//! - Calls that the server does not run in one command are sent again, once, each by itself.
//! - `DWELL_BROKER` and `DWELL_AGAIN`, and what was held back behind such a call: the calls are
//!   sent again if the round made progress.
//! - Any other error is the answer: no reply, `ASK`, too few replicas at WAIT, a record of a later
//!   version. The caller sends the request again after a pause, or refuses it.

use std::time::Duration;

use redis::Value;

use crate::store::client::Redirects;
use crate::store::error::{Class, StoreError};

/// The step before calls that Redis did not run are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Repair {
    /// Load their scripts on their masters.
    Load,
    /// Wait for so long. The client knows the new master of a slot.
    Wait(Duration),
    /// None: the round brought what the next calls need.
    Resend,
}

/// Whether Redis did not know the script of the call.
pub(in crate::store) fn lacks_script<T>(answer: &Result<T, StoreError>) -> bool {
    answer.as_ref().is_err_and(|error| error.class == Class::NoScript)
}

/// The repairs of one call, or of the rounds of one batch, so far.
#[derive(Debug, Default)]
pub(in crate::store) struct Repairs {
    /// Scripts were loaded since the last progress.
    loaded: bool,
    /// Calls that shared a command were sent again, each by itself.
    unshared: bool,
    moves: Redirects,
}

impl Repairs {
    /// For calls whose client follows moved slots by itself.
    pub(in crate::store) fn without_moves() -> Self {
        Repairs { moves: Redirects::exhausted(), ..Repairs::default() }
    }

    /// The repair after a round that left these errors; `None`: the errors are the answers.
    /// `has_progress`: the round answered a request, or brought facts for its repeat.
    pub(in crate::store) fn after<'a>(
        &mut self,
        errors: impl Iterator<Item = &'a StoreError> + Clone,
        has_progress: bool,
    ) -> Option<Repair> {
        let has = |class: Class| errors.clone().any(|error| error.class == class);
        // The next round may need scripts that this one did not load.
        self.loaded &= !has_progress;
        if has(Class::Moved) {
            self.loaded = false;
            return self.moves.pause().map(Repair::Wait);
        }
        if has(Class::NoScript) && !self.loaded {
            self.loaded = true;
            return Some(Repair::Load);
        }
        if has(Class::Unshared) && !self.unshared {
            self.unshared = true;
            return Some(Repair::Resend);
        }
        (has_progress && has(Class::Outdated)).then_some(Repair::Resend)
    }

    /// The repair after the answer to the one call.
    pub(in crate::store) fn after_call(
        &mut self,
        answer: &Result<Value, StoreError>,
    ) -> Option<Repair> {
        answer.as_ref().err().and_then(|error| self.after(std::iter::once(error), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The classes of the errors of a round, its progress, and the repair.
    type Round<'a> = (&'a [Class], bool, Option<Repair>);

    const LOAD: Option<Repair> = Some(Repair::Load);
    const FOLLOW: Option<Repair> = Some(Repair::Wait(Duration::ZERO));
    const RESEND: Option<Repair> = Some(Repair::Resend);

    fn after(repairs: &mut Repairs, classes: &[Class], has_progress: bool) -> Option<Repair> {
        let errors: Vec<StoreError> =
            classes.iter().map(|class| StoreError::new(*class, "")).collect();
        repairs.after(errors.iter(), has_progress)
    }

    #[test]
    fn what_was_not_run_is_repeated_as_long_as_that_helps() {
        use Class::{Moved, NoScript, Outdated, Timeout, Unshared};
        let cases: [(&str, &[Round<'_>]); 10] = [
            (
                "what shared a command goes again once",
                &[(&[Unshared], false, RESEND), (&[Unshared], false, None)],
            ),
            (
                "and with the scripts that it needs",
                &[(&[Unshared, NoScript], false, LOAD), (&[NoScript], false, None)],
            ),
            ("every call is answered", &[(&[], true, None)]),
            ("loaded once", &[(&[NoScript], false, LOAD), (&[NoScript], false, None)]),
            (
                "loaded again after progress",
                &[(&[NoScript], true, LOAD), (&[NoScript], true, LOAD), (&[NoScript], false, None)],
            ),
            (
                "loaded again on another master",
                &[
                    (&[NoScript], false, LOAD),
                    (&[Moved], false, FOLLOW),
                    (&[NoScript], false, LOAD),
                    (&[NoScript], false, None),
                ],
            ),
            (
                "the slot first, then its script",
                &[(&[NoScript, Moved], false, FOLLOW), (&[NoScript], false, LOAD)],
            ),
            (
                "sent again for as long as rounds bring facts",
                &[
                    (&[Outdated], true, RESEND),
                    (&[Outdated], true, RESEND),
                    (&[Outdated], false, None),
                ],
            ),
            ("a missing script holds back other calls", &[(&[Outdated, NoScript], true, LOAD)]),
            (
                "no answer is for the caller, and hides no call that was not run",
                &[(&[Timeout], true, None), (&[Timeout, NoScript], true, LOAD)],
            ),
        ];
        for (what, rounds) in cases {
            let mut repairs = Repairs::default();
            for (at, (classes, has_progress, repair)) in rounds.iter().enumerate() {
                assert_eq!(after(&mut repairs, classes, *has_progress), *repair, "{what}, {at}");
            }
        }
    }

    #[test]
    fn what_may_have_been_run_is_repeated_by_the_caller() {
        for class in [
            Class::Io,
            Class::Timeout,
            Class::Oom,
            Class::Readonly,
            Class::Script,
            Class::Unserved,
            Class::Refused,
            Class::Other,
            Class::Settings,
        ] {
            let error = StoreError::new(class, "");
            assert!(!error.was_not_run());
            assert_eq!(Repairs::default().after_call(&Err(error)), None, "{class:?}");
        }
        assert_eq!(Repairs::default().after_call(&Ok(Value::Nil)), None);
    }

    #[test]
    fn moves_are_followed_with_longer_pauses_and_not_for_ever() {
        let mut repairs = Repairs::default();
        // Progress does not renew them.
        let pauses = std::iter::from_fn(|| after(&mut repairs, &[Class::Moved], true));
        let growing = (0..8).map(|n| Repair::Wait(Duration::from_millis(10 * n)));
        assert!(pauses.eq(growing));
        assert_eq!(after(&mut Repairs::without_moves(), &[Class::Moved], true), None);
        assert_eq!(after(&mut Repairs::without_moves(), &[Class::NoScript], false), LOAD);
    }
}
