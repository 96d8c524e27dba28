//! `allow` of a broker, arranged so that a destination is compared with few of many patterns.

use std::collections::HashMap;

use crate::{Connector, Destination};

/// Up to so many patterns are compared one after the other: that is faster than to arrange them.
const MAX_SCANNED_PATTERNS: usize = 8;

/// The patterns of one broker.
#[derive(Debug, Clone, Default)]
pub struct Allow {
    patterns: Vec<String>,
    /// By [`Connector::pattern_key`]; empty for few patterns.
    by_key: HashMap<String, Vec<usize>>,
    without_key: Vec<usize>,
}

impl Allow {
    /// Arranges the patterns of this broker.
    #[must_use]
    pub fn new(connector: &dyn Connector, patterns: &[String]) -> Self {
        let mut allow = Allow { patterns: patterns.to_vec(), ..Allow::default() };
        if patterns.len() > MAX_SCANNED_PATTERNS {
            for (index, pattern) in patterns.iter().enumerate() {
                match connector.pattern_key(pattern) {
                    Some(key) => allow.by_key.entry(key).or_default().push(index),
                    None => allow.without_key.push(index),
                }
            }
        }
        allow
    }

    /// The patterns, as they are written.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// The index of the first pattern that matches.
    #[must_use]
    pub fn find(&self, connector: &dyn Connector, to: &Destination) -> Option<usize> {
        let matches = |index: &usize| connector.allows(&self.patterns[*index], to);
        let keys = if self.by_key.is_empty() { None } else { connector.keys_of(to) };
        let Some(keys) = keys else { return (0..self.patterns.len()).find(matches) };
        let lists = keys.iter().filter_map(|key| self.by_key.get(key)).chain([&self.without_key]);
        lists.filter_map(|list| list.iter().copied().find(matches)).min()
    }
}

#[cfg(test)]
#[cfg(feature = "http")]
mod tests {
    use super::*;
    use crate::http;

    #[test]
    fn many_patterns_allow_what_each_alone_allows() {
        let config = http::Config::default();
        let mut patterns: Vec<String> =
            (0..3000).map(|n| format!("https://host-{n}.example/hooks/*")).collect();
        patterns.extend((0..3000).map(|n| format!("https://app.internal/hooks/{n}")));
        patterns.extend((0..3000).map(|n| format!("https://app.internal/tenant-{n}/*")));
        patterns.extend(
            [
                "https://app.internal/*/close",
                "HTTPS://APP.internal:443/Other",
                "http://127.1/*",
                "no url",
            ]
            .map(str::to_owned),
        );
        let allow = Allow::new(&config, &patterns);
        for to in [
            "https://host-2999.example/hooks/a",
            "https://HOST-7.example:443/hooks/../hooks/a?b=%2F",
            "https://host-7.example/other",
            "https://host-3000.example/hooks/a",
            "https://app.internal/hooks/2999",
            "https://app.internal/hooks/3000",
            "https://app.internal/hooks/close",
            "https://app.internal/Other",
            "https://app.internal/Other?a",
            "https://app.internal/tenant-2999/a/b?c",
            "https://app.internal/x/../tenant-7/",
            "https://app.internal/tenant-7",
            "https://app.internal/tenant-3000/close",
            "https://app.internal/tenant?7/a",
            "http://127.0.0.1/a",
            "https://127.0.0.1/a",
            "no url",
            "",
        ] {
            let to = Destination::new(to);
            let expected = patterns.iter().position(|pattern| config.allows(pattern, &to));
            assert_eq!(allow.find(&config, &to), expected, "{to}");
        }
    }
}
