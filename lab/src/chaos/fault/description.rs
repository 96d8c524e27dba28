//! Each fault in words, for the documentation: `descriptions.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::FaultKind;

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: BTreeMap<String, Group>,
    faults: BTreeMap<FaultKind, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    effect: String,
    visible: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    injected: String,
    effect: Option<String>,
    visible: Option<String>,
    like: Option<String>,
}

static FILE: LazyLock<File> = LazyLock::new(|| {
    toml::from_str(include_str!("descriptions.toml")).expect("a test reads every entry")
});

pub(super) fn of(kind: FaultKind) -> Description {
    let entry = &FILE.faults[&kind];
    let group = entry.like.as_ref().map(|name| &FILE.groups[name]);
    let word = |own: &Option<String>, shared: fn(&Group) -> &String| {
        own.as_ref().or_else(|| group.map(shared)).cloned()
    };
    Description {
        injected: entry.injected.clone(),
        effect: word(&entry.effect, |group| &group.effect).unwrap_or_default(),
        visible: word(&entry.visible, |group| &group.visible).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_complete_description() {
        assert_eq!(FILE.faults.len(), FaultKind::all().len());
        for kind in FaultKind::all() {
            let Description { injected, effect, visible } = of(*kind);
            assert!(!injected.is_empty() && !effect.is_empty() && !visible.is_empty(), "{kind}");
        }
    }
}
