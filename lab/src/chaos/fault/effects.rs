//! The possible effects of each kind of fault: a checker allows a deviation only for a fault that
//! can cause it.

/// The possible effects of a kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effects {
    /// Publications fail: attempts are used up, and dead letters and answers are not accepted.
    /// Faults of Dwell and Redis do not have this effect.
    pub(crate) fails_publish: bool,
    /// Publications to the affected target fail, and to no other.
    pub(crate) silences: bool,
    /// Requests are returned because the job's bucket is unreadable.
    pub(crate) refuses: bool,
    /// An earlier message may arrive after a later one: it was held back on the way, or in a frozen
    /// instance.
    pub(crate) holds_back: bool,
    /// Stored data is lost, such as the number of an attempt.
    pub(crate) rolls_back: bool,
    /// A request is redelivered while its first reader still works on it and may store it last. A
    /// killed instance stores nothing, and a stopping instance returns its requests first.
    pub(crate) requeues: bool,
    /// Connections to the broker end. A slow link keeps them.
    pub(crate) breaks_broker: bool,
    /// The broker itself is down.
    pub(crate) stops_broker: bool,
    /// The instance begins no publication during the fault.
    pub(crate) stops_instance: bool,
}

pub(super) const NONE: Effects = Effects {
    fails_publish: false,
    silences: false,
    refuses: false,
    holds_back: false,
    rolls_back: false,
    requeues: false,
    breaks_broker: false,
    stops_broker: false,
    stops_instance: false,
};

/// The link to the broker transfers nothing, or loses what it transfers.
pub(super) const LINK: Effects =
    Effects { fails_publish: true, holds_back: true, requeues: true, breaks_broker: true, ..NONE };
/// The link transfers slowly.
pub(super) const SLOW_LINK: Effects = Effects { requeues: false, breaks_broker: false, ..LINK };
pub(super) const BROKER_DOWN: Effects = Effects { stops_broker: true, ..LINK };
pub(super) const UNPUBLISHED: Effects = Effects { fails_publish: true, ..NONE };
pub(super) const WITHDRAWN: Effects = Effects { requeues: true, ..UNPUBLISHED };
pub(super) const BLOCKED: Effects = Effects { holds_back: true, ..UNPUBLISHED };
/// Requests of one id are read beside each other.
pub(super) const BESIDE: Effects = Effects { holds_back: true, requeues: true, ..NONE };
pub(super) const REQUEUES: Effects = Effects { requeues: true, ..NONE };
pub(super) const SILENCES: Effects = Effects { silences: true, ..NONE };
pub(super) const REFUSES: Effects = Effects { refuses: true, ..NONE };
pub(super) const ROLLS_BACK: Effects = Effects { rolls_back: true, ..NONE };
pub(super) const STOPS: Effects = Effects { stops_instance: true, ..NONE };
pub(super) const FREEZES: Effects = Effects { stops_instance: true, ..BESIDE };
