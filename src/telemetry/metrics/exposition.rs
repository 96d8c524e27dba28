//! The answer to a scrape: OpenMetrics if the `Accept` header asks for it, else Prometheus's text
//! format.

use prometheus_client::encoding::text;

use super::Metrics;

/// A format of `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4: every scraper and `promtool check metrics` read it.
    Text,
}

impl Exposition {
    /// Selects the format by an `Accept` header.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let wants = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let is_named = parts
                .next()
                .is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
            is_named
                && !parts
                    .any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        };
        if accept.is_some_and(|accept| accept.split(',').any(wants)) {
            Exposition::OpenMetrics
        } else {
            Exposition::Text
        }
    }

    /// The `Content-Type` of the format.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Metrics {
    /// The metrics in this format.
    #[must_use]
    pub fn encode_as(&self, form: Exposition) -> String {
        match form {
            Exposition::OpenMetrics => self.encode(),
            Exposition::Text => plain(&self.encode()),
        }
    }

    /// The metrics as OpenMetrics.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut encoded = String::with_capacity(16 * 1024);
        // Writing to a String cannot fail, and all metrics have the text format.
        let _ = text::encode(&mut encoded, &self.registry);
        encoded
    }
}

/// The samples are the same, without exemplars. The descriptions differ: a family has the name of
/// its samples, and units, `info` and the end marker are missing.
fn plain(encoded: &str) -> String {
    let mut kinds = std::collections::HashMap::new();
    for line in encoded.lines() {
        if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            kinds.insert(name, kind);
        }
    }
    let mut text = String::with_capacity(encoded.len());
    for line in encoded.lines() {
        let Some(described) = line.strip_prefix("# ") else {
            text.push_str(without_exemplar(line));
            text.push('\n');
            continue;
        };
        let Some((what @ ("HELP" | "TYPE"), rest)) = described.split_once(' ') else { continue };
        let Some((name, rest)) = rest.split_once(' ') else { continue };
        let (suffix, kind) = match kinds.get(name) {
            Some(&"counter") => ("_total", "counter"),
            Some(&"info") => ("_info", "gauge"),
            Some(kind) => ("", *kind),
            None => ("", "untyped"),
        };
        let rest = if what == "TYPE" { kind } else { rest };
        text.push_str(&format!("# {what} {name}{suffix} {rest}\n"));
    }
    text
}

/// A sample without its exemplar, which stands at the end. Quotes in labels are escaped, so no label
/// looks like one.
fn without_exemplar(line: &str) -> &str {
    line.rsplit_once(" # {trace_id=\"").map_or(line, |(sample, _)| sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_who_asks_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, form) in [
            (None, Exposition::Text),
            (Some("*/*"), Exposition::Text),
            (Some("text/plain"), Exposition::Text),
            (Some(prometheus), Exposition::OpenMetrics),
            (Some("text/plain, Application/OpenMetrics-Text"), Exposition::OpenMetrics),
            (Some("application/openmetrics-text; q=0, text/plain"), Exposition::Text),
        ] {
            assert_eq!(Exposition::accepted(accept), form, "{accept:?}");
        }
    }

    #[test]
    fn text_describes_the_samples_by_their_own_names() {
        let encoded = "# HELP d_in Messages.\n# TYPE d_in counter\nd_in_total{a=\"b\"} 1\n# HELP d_s Time.\n# TYPE d_s histogram\n# UNIT d_s \
                       seconds\nd_s_sum 0.0\n# HELP d_build The version.\n# TYPE d_build info\nd_build_info{v=\"1\"} 1\n# EOF\n";
        let wanted = "# HELP d_in_total Messages.\n# TYPE d_in_total counter\nd_in_total{a=\"b\"} 1\n# HELP d_s Time.\n# TYPE d_s histogram\nd_s_sum \
                      0.0\n# HELP d_build_info The version.\n# TYPE d_build_info gauge\nd_build_info{v=\"1\"} 1\n";
        assert_eq!(plain(encoded), wanted);
    }

    #[test]
    fn text_has_no_exemplars() {
        for (encoded, wanted) in [
            (
                "d_bucket{le=\"1.0\"} 2 # {trace_id=\"0af7\"} 0.7 1700000000.5\n",
                "d_bucket{le=\"1.0\"} 2\n",
            ),
            ("d_bucket{le=\"+Inf\"} 2\n", "d_bucket{le=\"+Inf\"} 2\n"),
            ("d{q=\" # {trace_id=\\\"a\"} 2\n", "d{q=\" # {trace_id=\\\"a\"} 2\n"),
        ] {
            assert_eq!(plain(encoded), wanted);
        }
    }
}
