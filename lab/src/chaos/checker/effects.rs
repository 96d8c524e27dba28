//! The possible effects of each kind of fault: a deviation is allowed only for a fault that can
//! cause it.

/// Whether publications fail: attempts are used up, and dead letters and answers are not accepted.
/// Faults of Dwell and Redis do not have this effect.
pub(super) fn fails_publish(kind: &str) -> bool {
    let at_target = ["target-deleted", "target-full", "permissions-withdrawn", "connection-blocked"];
    at_broker(kind) || at_target.contains(&kind)
}

/// Whether publications to the affected target fail, and to no other.
pub(super) fn silences(kind: &str) -> bool {
    kind == "target-silent"
}

/// Whether requests are returned because the job's bucket is unreadable.
pub(super) fn refuses(kind: &str) -> bool {
    kind == "wrong-type"
}

/// Whether an earlier message may arrive after a later one: held back on the way, or in a frozen
/// instance.
pub(super) fn holds_back(kind: &str) -> bool {
    at_broker(kind) || ["connection-blocked", "dwell-freeze"].contains(&kind)
}

/// Whether stored data is lost, such as the number of an attempt.
pub(super) fn rolls_back(kind: &str) -> bool {
    kind == "redis-failover"
}

/// Whether attempts may arrive out of order.
pub(super) fn reorders(kind: &str) -> bool {
    holds_back(kind) || rolls_back(kind)
}

/// Whether a request is redelivered while its first reader still works on it and may store it last.
/// A killed instance stores nothing, and a stopping instance returns its requests first.
pub(super) fn requeues(kind: &str) -> bool {
    breaks_broker(kind) || ["dwell-freeze", "permissions-withdrawn", "instance-cut-off"].contains(&kind)
}

/// Whether the broker or its link fails.
pub(super) fn at_broker(kind: &str) -> bool {
    kind.starts_with("broker-") || (kind.starts_with("link-") && kind.ends_with("-broker"))
}

/// Whether connections to the broker end. A slow link keeps them.
pub(super) fn breaks_broker(kind: &str) -> bool {
    at_broker(kind) && kind != "link-slow-broker"
}
