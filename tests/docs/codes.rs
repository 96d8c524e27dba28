//! docs/reference/error-codes.md has every code, reason and outcome that the code gives out.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::pages::{root, text_of};

/// The words that a closed set is written as: of lines `TYPE::Variant => "word"`.
fn words_of(type_name: &str) -> BTreeSet<String> {
    let start = format!("{type_name}::");
    let mut folders: Vec<PathBuf> = ["src", "core", "engine", "connectors"].iter().map(|folder| root().join(folder)).collect();
    let mut words = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let arms = text.lines().filter_map(|line| line.trim().strip_prefix(&start)?.split_once(" => "));
                words.extend(arms.filter_map(|(_, word)| Some(word.strip_prefix('"')?.strip_suffix("\",")?.to_owned())));
            }
        }
    }
    words
}

#[test]
fn every_code_is_on_the_page() {
    let page = text_of("docs/reference/error-codes.md");
    for (type_name, least) in [("Code", 18), ("DeadReason", 5)] {
        let words = words_of(type_name);
        assert!(words.len() >= least, "{type_name}: only {words:?} were found");
        let missing: Vec<_> = words.into_iter().filter(|word| !page.contains(&format!("| `{word}` |"))).collect();
        assert!(missing.is_empty(), "docs/reference/error-codes.md lacks {type_name} {missing:?}");
    }
}
