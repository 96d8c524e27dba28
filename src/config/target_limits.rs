//! `[brokers.NAME.limits."PATTERN"]`: the limits of targets, and which of them applies to one.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::queues::{overlap, weight};
use super::{Broker, rules};
use crate::policy::limit::Rate;

/// How many attempts the targets of a pattern get in a time, and how many may be out at once, over
/// all instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetLimit {
    /// The most attempts in a second, a minute or an hour: `100/s`, `3000/m`, `20/h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// How many attempts may come at once. By default 100 ms worth of `rate`, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub burst: Option<u32>,
    /// How many attempts may be out at a time, with the jobs that wait for their consumers'
    /// confirms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub in_flight: Option<u32>,
}

impl TargetLimit {
    /// The rate and its burst; `None`: any number in any time. The rate was checked when the settings
    /// were read.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        let (count, per_us) = rules::rate(self.rate.as_deref()?).unwrap_or((1, rules::HOUR_US));
        Some(Rate::new(count, per_us, self.burst.map(u64::from)))
    }
}

impl Broker {
    /// The limits with their patterns. The first one whose pattern matches a target applies: names
    /// of targets come first, then the pattern with the most characters besides `*`.
    #[must_use]
    pub fn ordered_limits(&self) -> Vec<(&str, &TargetLimit)> {
        let mut limits: Vec<_> =
            self.limits.iter().map(|(pattern, limit)| (pattern.as_str(), limit)).collect();
        limits.sort_by_key(|(pattern, _)| (is_wild(pattern), Reverse(weight(pattern))));
        limits
    }
}

fn is_wild(pattern: &str) -> bool {
    pattern.contains(['*', '>'])
}

/// Whether two patterns apply equally to some target, so that neither wins. A `>` is taken for any
/// characters too, so that a broker's own wildcards may seem to meet where they do not.
pub(super) fn tie(one: &str, other: &str) -> bool {
    let any = |pattern: &str| pattern.replace('>', "*");
    is_wild(one)
        && is_wild(other)
        && weight(one) == weight(other)
        && overlap(any(one).as_bytes(), any(other).as_bytes())
}
