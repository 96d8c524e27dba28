//! The table of faults, `faults.toml`: where each applies, what it may cause, and its description
//! for the documentation.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use dwell::config::RedisMode;
use serde::Deserialize;

use super::FaultKind;

/// The table.
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    toml::from_str(include_str!("faults.toml")).expect("a test reads every entry")
});

/// The kinds, in order.
pub(super) static ALL: LazyLock<Vec<FaultKind>> =
    LazyLock::new(|| TABLE.faults.keys().copied().collect());

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    groups: BTreeMap<String, Group>,
    pub(super) faults: BTreeMap<FaultKind, Entry>,
}

/// Words that several faults share.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    effect: String,
    visible: String,
}

/// What is to know of a kind of fault.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Entry {
    injected: String,
    effect: Option<String>,
    visible: Option<String>,
    like: Option<String>,
    /// The modes of Redis and the brokers that it applies to; empty: all.
    pub(super) redis: Vec<RedisMode>,
    pub(super) brokers: Vec<String>,
    /// It needs a replica, URLs as targets, so many instances.
    pub(super) has_replica: bool,
    pub(super) http: bool,
    pub(super) instances: usize,
    /// Jobs in flight may arrive twice.
    pub(super) copies: bool,
    /// It takes ten seconds and more, with its recovery.
    pub(super) is_slow: bool,
    /// Another server of a Cluster or of sentinels becomes the master.
    pub(super) replaces_master: bool,
    pub(super) effects: Effects,
    pub(super) queues: InQueues,
}

/// The possible effects of a kind of fault: a checker allows a deviation only for a fault that can
/// cause it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Effects {
    /// Publications fail: attempts are used up, and dead letters and answers are not accepted.
    /// Faults of Dwell and Redis do not have this effect.
    pub(crate) fails_publish: bool,
    /// Publications to the affected target fail, and to no other.
    pub(crate) silences: bool,
    /// Requests are returned because the job's bucket is unreadable.
    pub(crate) refuses: bool,
    /// An earlier message may arrive after a later one: it was held back on the way, or in a frozen
    /// instance, or requests of one id are read beside each other.
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

/// When the queue scenario injects a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum InQueues {
    /// Unless the command names others.
    Always,
    /// If the command names it.
    Named,
    #[default]
    Never,
}

/// The words for one fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The action of the fault.
    pub injected: String,
    /// The reaction of Dwell.
    pub effect: String,
    /// The signs for an operator: metrics, log lines, readiness.
    pub visible: String,
}

impl Table {
    pub(super) fn describe(&self, kind: FaultKind) -> Description {
        let Entry { injected, effect, visible, like, .. } = &self.faults[&kind];
        let group = like.as_ref().map(|name| &self.groups[name]);
        let (effect, visible) = (effect.as_ref(), visible.as_ref());
        Description {
            injected: injected.clone(),
            effect: effect.or(group.map(|group| &group.effect)).cloned().unwrap_or_default(),
            visible: visible.or(group.map(|group| &group.visible)).cloned().unwrap_or_default(),
        }
    }
}
