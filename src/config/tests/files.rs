//! The files in `config/`, and the schema.

use super::*;
use crate::job::DEFAULT_TTR_MS;
use crate::policy::retry;
use crate::store::meta::SweepRules;

/// Without its examples the file of defaults equals the defaults in the code.
#[test]
fn the_file_of_defaults_equals_the_code() {
    let text = include_str!("../../../config/default.toml");
    let mut written: Settings = toml::from_str(text).unwrap();
    let ingest = written.ingest.remove("main").unwrap();
    let queue = written.queue("main").cloned().unwrap();
    written.queues = Arc::default();
    written.brokers.clear();
    let json = |value: &dyn Fn() -> serde_json::Result<serde_json::Value>| value().unwrap();
    assert_eq!(
        json(&|| serde_json::to_value(&written)),
        json(&|| serde_json::to_value(Settings::default()))
    );
    let default = Ingest { broker: "main".to_owned(), ..Ingest::default() };
    assert_eq!(json(&|| serde_json::to_value(&ingest)), json(&|| serde_json::to_value(&default)));
    assert_eq!(
        json(&|| serde_json::to_value(&queue)),
        json(&|| serde_json::to_value(QueueRules::default()))
    );
    // With its examples the file is valid.
    Given::file(text).settings();
}

/// What the store takes where it is asked for nothing is the default here too.
#[test]
fn the_store_has_the_same_defaults() {
    let (delivery, queue) = (Delivery::default(), QueueRules::default());
    assert_eq!(*delivery.retry, retry::DEFAULT_MS);
    assert_eq!([delivery.ttr, queue.ttr].map(|ttr| ttr.stored_ms()), [DEFAULT_TTR_MS; 2]);
    assert_eq!(SweepRules::from(&delivery), SweepRules::DEFAULT);
    let (own, redis) = (Redis::new("redis://127.0.0.1:6379"), Given::least("").settings().redis);
    assert_eq!(format!("{redis:?}"), format!("{own:?}"));
}

/// The file of defaults has every setting with a short comment; settings without a default are
/// commented out.
#[test]
fn the_file_of_defaults_names_every_setting() {
    let mut named = Vec::new();
    let mut section = String::new();
    for line in include_str!("../../../config/default.toml").lines() {
        let line = line.trim_start_matches("# ");
        if let Some(header) = line.strip_prefix('[') {
            section = header.split(']').next().unwrap_or_default().replace(".main", ".*");
        } else if let Some((key, rest)) = line.split_once(" = ").filter(|_| !section.is_empty()) {
            named.push(format!("{section}.{key}"));
            assert!(
                rest.split_once("# ").is_some_and(|(_, words)| words.len() > 10),
                "a word on {key}"
            );
        }
    }
    let mut known: Vec<_> =
        shape::Shape::of_settings().paths().into_iter().map(|path| path.join(".")).collect();
    // The file has one example for a table with free names.
    known.iter_mut().for_each(|path| path.truncate(path.trim_end_matches(".*").len()));
    known.sort_unstable();
    // Settings that several kinds of broker share appear once.
    known.dedup();
    named.sort_unstable();
    assert_eq!(named, known);
}

#[test]
fn every_file_in_config_is_right() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            load_from(Some(&path), &[], &Overrides::default())
                .unwrap_or_else(|problems| panic!("{}: {problems:#?}", path.display()));
        }
    }
}

/// Every key has a description in the schema, where editors look.
#[test]
fn the_schema_describes_every_key() {
    fn undescribed(shape: &shape::Shape, at: &str, found: &mut Vec<String>) {
        match shape {
            shape::Shape::Table(table) => {
                let tables = std::iter::once(table)
                    .chain(table.variants.iter().flat_map(|(_, tables)| tables.values()));
                for (name, key) in tables.flat_map(|table| &table.keys) {
                    if key.doc.is_empty() {
                        found.push(format!("{at}.{name}"));
                    }
                    undescribed(&key.shape, &format!("{at}.{name}"), found);
                }
            }
            shape::Shape::Named(inner) => undescribed(inner, &format!("{at}.*"), found),
            _ => {}
        }
    }
    let mut found = Vec::new();
    undescribed(shape::Shape::of_settings(), "", &mut found);
    assert!(found.is_empty(), "{found:?}");
}
