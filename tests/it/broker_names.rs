//! Only `connectors/` knows brokers by name: a new broker is one folder and one line, and changes
//! nothing in `src/`.

use std::fs;
use std::path::Path;

use super::tidy::files;

/// Text in `src/` that may name a broker: the file, the text, and the reason.
const ALLOWED: [(&str, &str, &str); 10] = [
    (
        "src/request/dialect.rs",
        "nats-schedule",
        "headers of another scheduler, a format that any broker can carry",
    ),
    (
        "src/request/dialect.rs",
        "Expression::parse_nats",
        "expressions of another scheduler, a format that any broker can carry",
    ),
    ("src/http/api/openapi.rs", "for Kafka, RabbitMQ and NATS JetStream", "describes the product"),
    ("src/http/server/trace.rs", "info_span!(\"http\"", "a span of Dwell's own API"),
    ("src/config/resolve.rs", "\"http\",", "the section of Dwell's own API"),
    (
        "src/config/resolve/listeners.rs",
        "read::<Http>(&[\"http\"])",
        "the section of Dwell's own API",
    ),
    ("src/config/resolve/listeners.rs", "[\"http\", \"tokens\"", "the section of Dwell's own API"),
    ("src/config/listeners.rs", "section(\"http\")", "the section of Dwell's own API"),
    ("src/readiness.rs", "write_str(\"http\")", "the section of Dwell's own API"),
    (
        "src/request/queue.rs",
        "Capabilities::new(\"queue\", \"HTTP\"",
        "queues are fetched from Dwell's own API",
    ),
];

/// Folders whose names are also words of Dwell itself: HTTP is its own API too. Of these folders
/// only the names of the kind of broker are looked for.
const SHARED: [&str; 1] = ["http"];

/// The folders of `connectors/src` that implement `Connector`, without the memory broker.
fn folders() -> Vec<String> {
    let folders = files(&["connectors/src"], "/connector.rs");
    let folders =
        folders.iter().filter_map(|path| path.parent()?.file_name()?.to_str().map(str::to_owned));
    let folders: Vec<String> = folders.filter(|name| name != "src" && name != "memory").collect();
    assert!(
        folders.len() >= 4 && SHARED.iter().all(|shared| folders.iter().any(|name| name == shared)),
        "{folders:?}"
    );
    folders
}

/// The names of a broker: its folder, or its `type` and its part of the connectors where the name
/// is shared; and words that only these brokers have.
fn names() -> Vec<String> {
    let of_folder = |name: String| {
        if SHARED.contains(&name.as_str()) {
            vec![
                format!("\"{name}\""),
                format!("connectors::{name}"),
                format!("brokerconfig::{name}"),
                format!("{name}::config"),
            ]
        } else {
            vec![name]
        }
    };
    folders()
        .into_iter()
        .flat_map(of_folder)
        .chain(["rabbit", "lapin", "jetstream", "webhook"].map(str::to_owned))
        .collect()
}

/// The code of a file: no comments, no features, nothing from the tests on.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    let lines = lines.filter(|(_, line)| {
        !["//", "#[cfg("].iter().any(|start| line.trim_start().starts_with(start))
    });
    lines.map(|(number, line)| (number + 1, line.split_once(" // ").map_or(line, |(code, _)| code)))
}

#[test]
fn no_code_outside_the_connectors_names_a_broker() {
    let (names, root) = (names(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let mut unused: Vec<_> = ALLOWED.iter().collect();
    let mut found = Vec::new();
    for path in files(&["src"], ".rs") {
        let shown = path.strip_prefix(root).unwrap().display().to_string();
        if shown.ends_with("tests.rs") || shown.contains("/tests/") {
            continue;
        }
        for (number, line) in code(&fs::read_to_string(&path).unwrap()) {
            let mut rest = line.to_owned();
            for entry in
                ALLOWED.iter().filter(|(file, text, _)| *file == shown && line.contains(text))
            {
                rest = rest.replace(entry.1, "");
                unused.retain(|other| *other != entry);
            }
            let rest = rest.to_lowercase();
            if names.iter().any(|name| rest.contains(name)) {
                found.push(format!("{shown}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "ask `Capabilities` or `Connector` in connectors/ instead of naming a broker: {found:#?}"
    );
    assert!(unused.is_empty(), "nothing needs these exceptions any more: {unused:?}");
}
