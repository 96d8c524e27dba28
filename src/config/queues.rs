//! `[queues.NAME]`: the rules of queues, and which of them apply to a name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;
use super::limits::Ttr;
use super::rules::{self, MAX_DURATION_MS};
use super::values::{Millis, Waits};
use crate::job::OnTimeout;
use crate::policy::limit::Rate;
use crate::policy::retry;

/// A queue of Dwell: consumers fetch its jobs over HTTP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default, rename = "Queue")]
pub struct QueueRules {
    /// The name or pattern in the settings: the label of metrics.
    #[serde(skip)]
    pub name: String,
    /// How long a consumer may keep a job, where neither the fetch nor the job says. At most
    /// `limits.max_ttr`.
    pub ttr: Ttr,
    /// The waits after a failed attempt; after the last one the job is dead. Empty: a single
    /// attempt. By default `delivery.retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Waits>,
    /// What follows if a consumer keeps a job for too long.
    pub on_timeout: OnTimeout,
    /// How many jobs each queue may have, dead ones not counted; a new job beyond it is rejected as
    /// `queue_full`. 0: no maximum.
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub max_jobs: u64,
    /// The most jobs of each queue that consumers get in a second, a minute or an hour, over all
    /// instances: `100/s`, `3000/m`, `20/h`. The namespace keeps it, so that every program that pops
    /// obeys. A job without a turn waits, and burns nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// How many jobs of each queue may come at once. By default 100 ms worth of `rate`, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub burst: Option<u32>,
    /// How many jobs of each queue consumers may have at a time, over all instances. The namespace
    /// keeps it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub in_flight: Option<u32>,
    /// How long dead jobs stay in Redis.
    pub dead_retention: Millis<0, MAX_DURATION_MS>,
}

impl Default for QueueRules {
    fn default() -> Self {
        defaults::section("queues")
    }
}

impl QueueRules {
    /// The waits after failed attempts, ms; empty: a single attempt.
    #[must_use]
    pub fn retry_ms(&self) -> &[u64] {
        self.retry.as_deref().map_or(retry::DEFAULT_MS, Vec::as_slice)
    }

    /// The limit of each queue. The rate was checked when the settings were read.
    #[must_use]
    pub fn limit(&self) -> Option<Rate> {
        let (count, per_us) = rules::rate(self.rate.as_deref()?).ok()?;
        Some(Rate::new(count, per_us, self.burst.map(u64::from)))
    }

    /// Whether each queue has a limit of what consumers get.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.rate.is_some() || self.in_flight.is_some()
    }

    /// The most jobs of each queue, dead ones not counted; `None`: no maximum.
    #[must_use]
    pub fn max_jobs(&self) -> Option<u64> {
        Some(self.max_jobs).filter(|most| *most > 0)
    }
}

/// `[queues]`: the rules of all queues.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, QueueRules>", into = "BTreeMap<String, QueueRules>")]
pub struct Queues {
    exact: BTreeMap<String, QueueRules>,
    /// The one with the most characters besides `*` first.
    patterns: Vec<QueueRules>,
}

impl Queues {
    /// The rules of these names and patterns.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = QueueRules>) -> Self {
        let (mut patterns, exact): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|rules| is_pattern(&rules.name));
        patterns.sort_by_key(|rules| std::cmp::Reverse(weight(&rules.name)));
        Queues {
            exact: exact.into_iter().map(|rules| (rules.name.clone(), rules)).collect(),
            patterns,
        }
    }

    /// The rules of this queue; `None` if the settings have neither its name nor a pattern for it.
    #[must_use]
    pub fn get(&self, queue: &str) -> Option<&QueueRules> {
        self.exact
            .get(queue)
            .or_else(|| self.patterns.iter().find(|rules| matches(&rules.name, queue)))
    }

    /// Whether there are no queues.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.patterns.is_empty()
    }

    /// Whether the settings have the name of this queue itself, not only a pattern for it.
    #[must_use]
    pub fn is_named(&self, queue: &str) -> bool {
        self.exact.contains_key(queue)
    }

    /// The queues that the settings name, by name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.exact.keys().map(String::as_str)
    }

    /// The limits of all names and patterns; `None` for those without one.
    #[must_use]
    pub fn limits(&self) -> Vec<(String, Option<Rate>)> {
        self.iter().map(|rules| (rules.name.clone(), rules.limit())).collect()
    }

    /// How many jobs may be out, of all names and patterns; `None` for those without a bound.
    #[must_use]
    pub fn in_flight(&self) -> Vec<(String, Option<u32>)> {
        self.iter().map(|rules| (rules.name.clone(), rules.in_flight)).collect()
    }

    /// All rules: first those of names, then those of patterns, the most specific first.
    pub fn iter(&self) -> impl Iterator<Item = &QueueRules> {
        self.exact.values().chain(&self.patterns)
    }
}

impl From<BTreeMap<String, QueueRules>> for Queues {
    fn from(written: BTreeMap<String, QueueRules>) -> Self {
        Queues::new(written.into_iter().map(|(name, rules)| QueueRules { name, ..rules }))
    }
}

impl From<Queues> for BTreeMap<String, QueueRules> {
    fn from(queues: Queues) -> Self {
        let rules = queues.exact.into_values().chain(queues.patterns);
        rules.map(|rules| (rules.name.clone(), rules)).collect()
    }
}

/// Whether this is a pattern, not a name.
fn is_pattern(name: &str) -> bool {
    name.contains('*')
}

/// The number of characters besides `*`.
pub(super) fn weight(pattern: &str) -> usize {
    pattern.bytes().filter(|byte| *byte != b'*').count()
}

/// Whether the pattern matches this text; `*` is any characters, also none. Each job of a pop and
/// each acknowledgement asks: nothing is allocated.
#[must_use]
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut read) = (0, 0);
    // The rest of the pattern after its last `*`, and the text that is left for this rest.
    let mut last_star = None;
    while read < text.len() {
        match (pattern.get(at), last_star) {
            (Some(b'*'), _) => {
                at += 1;
                last_star = Some((at, read));
            }
            (Some(byte), _) if *byte == text[read] => {
                at += 1;
                read += 1;
            }
            // The `*` takes one character more.
            (_, Some((rest, left))) => {
                (at, read) = (rest, left + 1);
                last_star = Some((rest, read));
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Whether two patterns apply equally to some name, so that neither wins.
pub(super) fn tie(one: &str, other: &str) -> bool {
    is_pattern(one)
        && is_pattern(other)
        && weight(one) == weight(other)
        && overlap(one.as_bytes(), other.as_bytes())
}

/// Whether some text matches both patterns. A text without `*` is a pattern that matches itself.
pub(super) fn overlap(one: &[u8], other: &[u8]) -> bool {
    // meets[j]: whether the rest of `one` and the rest of `other` from j on match a common text.
    let mut meets = vec![false; other.len() + 1];
    for i in (0..=one.len()).rev() {
        // The value of meets[j + 1] for the rest of `one` that is a character shorter.
        let mut shorter = false;
        for j in (0..=other.len()).rev() {
            let before = meets[j];
            meets[j] = match (one.get(i), other.get(j)) {
                (None, None) => true,
                (Some(b'*'), theirs) => before || (theirs.is_some() && meets[j + 1]),
                (ours, Some(b'*')) => meets[j + 1] || (ours.is_some() && before),
                (Some(ours), Some(theirs)) => ours == theirs && shorter,
                _ => false,
            };
            shorter = before;
        }
    }
    meets[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(names: &[&str]) -> Queues {
        let rules = |name: &&str| QueueRules { name: (*name).to_owned(), ..QueueRules::default() };
        Queues::new(names.iter().map(rules))
    }

    #[test]
    fn a_star_is_any_characters() {
        for (pattern, text) in [
            ("*", "a"),
            ("a.*", "a.b.c"),
            ("a.*", "a."),
            ("*a*", "bab"),
            ("a*b*c", "abbc"),
            ("a**", "a"),
            ("a", "a"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a.*", "a"), ("*b", "ba"), ("a*b*c", "acb"), ("a", "A"), ("a", ""), ("*a*a*", "a")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn an_exact_name_wins_and_then_the_most_characters() {
        let queues = queues(&["*", "orders.*", "orders.eu", "*.urgent", "orders.*.urgent"]);
        let of = |queue: &str| queues.get(queue).map(|rules| rules.name.as_str());
        for (queue, rules) in [
            ("orders.eu", "orders.eu"),
            ("orders.us", "orders.*"),
            ("bills.urgent", "*.urgent"),
            ("orders.us.urgent", "orders.*.urgent"),
            ("else", "*"),
        ] {
            assert_eq!(of(queue), Some(rules), "{queue}");
        }
        assert_eq!(queues.names().collect::<Vec<_>>(), ["orders.eu"]);
        assert_eq!(
            (queues.iter().count(), queues.is_empty(), Queues::default().is_empty()),
            (5, false, true)
        );
        assert!(Queues::default().get("a").is_none());
    }

    #[test]
    fn patterns_of_one_length_that_share_a_name_tie() {
        for (one, other) in
            [("*", "**"), ("a*", "*a"), ("a.*", "*.b"), ("a*c", "*bc"), ("ab*", "a*b")]
        {
            assert!(tie(one, other) && tie(other, one), "{one} {other}");
        }
        for (one, other) in
            [("a.*", "b.*"), ("a*", "ab*"), ("*a", "*b"), ("a*", "aa"), ("a", "a"), ("a*c", "b*c")]
        {
            assert!(!tie(one, other) && !tie(other, one), "{one} {other}");
        }
    }

    /// The table says what the definition says.
    #[test]
    fn an_overlap_is_a_text_that_both_match() {
        fn both(one: &[u8], other: &[u8]) -> bool {
            match (one, other) {
                ([], []) => true,
                ([b'*', rest @ ..], _) if both(rest, other) => true,
                (_, [b'*', rest @ ..]) if both(one, rest) => true,
                ([b'*', ..], [_, theirs @ ..]) => both(one, theirs),
                ([_, ours @ ..], [b'*', ..]) => both(ours, other),
                ([ours, one @ ..], [theirs, other @ ..]) => ours == theirs && both(one, other),
                _ => false,
            }
        }
        let mut patterns = vec![String::new()];
        for _ in 0..4 {
            let longer: Vec<String> = patterns
                .iter()
                .flat_map(|start| ["a", "b", "*"].map(|end| format!("{start}{end}")))
                .collect();
            patterns.extend(longer);
            patterns.sort();
            patterns.dedup();
        }
        for one in &patterns {
            for other in &patterns {
                let expected = both(one.as_bytes(), other.as_bytes());
                assert_eq!(overlap(one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
                if !is_pattern(other) {
                    assert_eq!(matches(one, other), expected, "{one} {other}");
                }
            }
        }
    }
}
