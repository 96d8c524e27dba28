//! The possible effects of each kind of fault: a deviation is allowed only for a fault that can
//! cause it.

/// Whether a publish fails of it, so that attempts are burned and letters and answers are not
/// taken. What is done to Dwell or to Redis fails none.
pub(super) fn fails_publish(kind: &str) -> bool {
    let at_target = ["target-deleted", "target-full", "permissions-withdrawn", "connection-blocked"];
    at_broker(kind) || at_target.contains(&kind)
}

/// Whether a publish to the target that it concerns fails of it, and to no other.
pub(super) fn silences(kind: &str) -> bool {
    kind == "target-silent"
}

/// Whether requests come back because of it, for jobs that nobody can look up.
pub(super) fn refuses(kind: &str) -> bool {
    kind == "wrong-type"
}

/// Whether something that was sent before may land after what is sent later: it is on its way, or
/// in an instance that sleeps.
pub(super) fn holds_back(kind: &str) -> bool {
    at_broker(kind) || ["connection-blocked", "dwell-freeze"].contains(&kind)
}

/// Whether what was stored is forgotten: with it the number of an attempt.
pub(super) fn rolls_back(kind: &str) -> bool {
    kind == "redis-failover"
}

/// Whether attempts may arrive in another order than they were begun in.
pub(super) fn reorders(kind: &str) -> bool {
    holds_back(kind) || rolls_back(kind)
}

/// Whether a request that was handed out is handed out again, while who had it first is still at it
/// and may read it last. Who was killed reads nothing, and who was told to stop gives back first.
pub(super) fn requeues(kind: &str) -> bool {
    breaks_broker(kind) || ["dwell-freeze", "permissions-withdrawn", "instance-cut-off"].contains(&kind)
}

/// Whether the broker or its link breaks.
pub(super) fn at_broker(kind: &str) -> bool {
    kind.starts_with("broker-") || (kind.starts_with("link-") && kind.ends_with("-broker"))
}

/// Whether connections to the broker end by it. A slow link breaks nothing.
pub(super) fn breaks_broker(kind: &str) -> bool {
    at_broker(kind) && kind != "link-slow-broker"
}
