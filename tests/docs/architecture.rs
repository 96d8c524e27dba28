//! ARCHITECTURE.md names functions and types as links to their files: each is there.

use std::fs;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::pages::{root, text_of};

/// Links whose text is code alone, to a Rust file: the name, and the path.
fn named(page: &str) -> Vec<(String, String)> {
    let mut named = Vec::new();
    let mut link: Option<(String, String)> = None;
    for event in Parser::new(page) {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) if dest_url.ends_with(".rs") => {
                link = Some((String::new(), dest_url.into_string()))
            }
            Event::Code(text) => link.iter_mut().for_each(|(name, _)| name.push_str(&text)),
            Event::End(TagEnd::Link) => named
                .extend(link.take().filter(|(name, _)| !name.is_empty() && !name.contains('/'))),
            _ => {}
        }
    }
    named
}

/// Does this code define the name, a function, type or constant? Of `Type::name` the file must have
/// both words.
fn defines(code: &str, name: &str) -> bool {
    let (owner, own) =
        name.rsplit_once("::").map_or((None, name), |(owner, own)| (Some(owner), own));
    let own = own.trim_end_matches("()");
    let is_word = |at: &str| !at.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_defined = ["fn", "struct", "enum", "trait", "const", "type", "mod"].iter().any(|kind| {
        let needle = format!("{kind} {own}");
        code.match_indices(&needle).any(|(at, _)| is_word(&code[at + needle.len()..]))
    });
    is_defined && owner.is_none_or(|owner| code.contains(owner))
}

#[test]
fn every_function_of_the_map_is_in_its_file() {
    let page = text_of("ARCHITECTURE.md");
    let named = named(&page);
    let lost: Vec<_> = named
        .iter()
        .filter(|(name, path)| {
            !fs::read_to_string(root().join(path)).is_ok_and(|code| defines(&code, name))
        })
        .collect();
    assert!(lost.is_empty(), "ARCHITECTURE.md names what is not in the file: {lost:#?}");
    let walk =
        page.split("\n## ").find(|section| section.starts_with("The walk of one message")).unwrap();
    assert!(
        self::named(walk).len() >= 10,
        "the walk of one message names {} functions",
        self::named(walk).len()
    );
}

#[test]
fn a_name_that_only_begins_so_is_not_it() {
    assert!(defines("impl Store { pub async fn claim(&self) }", "Store::claim"));
    for code in ["fn claimed()", "fn reclaim()", "// claim"] {
        assert!(!defines(code, "claim"), "{code}");
    }
}
