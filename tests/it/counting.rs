//! Jobs are counted in one file, by their events: a place that counts by itself is red.

use std::fs;
use std::path::Path;

use super::broker_names::code;
use super::tidy::files;

/// The subscriber that counts the events of jobs.
const SUBSCRIBER: &str = "src/telemetry/metrics/jobs.rs";
/// The words that count.
const COUNTING: [&str; 3] = [".inc()", ".inc_by(", ".observe("];
/// Other lines that count: the file, the line, and what it counts.
const ALLOWED: [(&str, &str, &str); 3] = [
    ("src/telemetry/metrics/handles.rs", "gauge.inc();", "the pauses of an ingest"),
    (
        "src/telemetry/metrics.rs",
        "self.redis_seconds.of(script).observe(took.as_secs_f64());",
        "calls to Redis",
    ),
    (
        "src/telemetry/metrics.rs",
        "self.redis_errors.of(RedisErrorClass::from(class)).inc();",
        "failed calls to Redis",
    ),
];

#[test]
fn only_the_subscriber_counts_jobs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut unused) = (Vec::new(), ALLOWED.to_vec());
    for path in files(
        &["src", "engine/src", "store/src", "connectors/src", "core/src", "schedule/src"],
        ".rs",
    ) {
        let shown = path.strip_prefix(root).unwrap().display().to_string();
        if shown == SUBSCRIBER || shown.ends_with("tests.rs") || shown.contains("/tests/") {
            continue;
        }
        let is_of_metrics = shown.starts_with("src/telemetry/metrics");
        for (number, line) in code(&fs::read_to_string(&path).unwrap()) {
            let line = line.trim();
            let counts = if is_of_metrics {
                COUNTING.iter().any(|word| line.contains(word))
            } else {
                line.contains("prometheus_client")
            };
            let allowed = (shown.as_str(), line);
            if let Some(at) = unused.iter().position(|(file, text, _)| (*file, *text) == allowed) {
                unused.remove(at);
            } else if counts {
                found.push(format!("{shown}:{number}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "tell a `JobEvent`, and count it in {SUBSCRIBER}: {found:#?}");
    assert!(unused.is_empty(), "nothing needs these exceptions any more: {unused:?}");
}
