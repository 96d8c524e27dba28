//! Every relative link of every page leads to a file that exists, and to a heading of that file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::pages::{pages, root, text_of};

/// What a page links to, and the anchors of its headings.
#[derive(Debug, Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(text: &str) -> Page {
        let (mut page, mut heading) = (Page::default(), None::<String>);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string())
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&text))
                }
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let count = counts.entry(anchor.clone()).or_default();
                    page.anchors.insert(if *count == 0 {
                        anchor
                    } else {
                        format!("{anchor}-{count}")
                    });
                    *count += 1;
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// What is wrong with a link of the page at `from`.
fn fault(from: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, wanted) =
        link.split_once('#').map_or((link, None), |(path, wanted)| (path, Some(wanted)));
    let target = if path.is_empty() { from.to_owned() } else { from.parent().unwrap().join(path) };
    if !target.exists() {
        return Some(format!("{link}: no such file"));
    }
    let wanted = wanted?;
    let anchors = Page::read(&fs::read_to_string(target).unwrap()).anchors;
    (!anchors.contains(wanted)).then(|| format!("{link}: no such heading"))
}

#[test]
fn every_link_leads_somewhere() {
    let mut faults = Vec::new();
    let mut count = 0;
    for path in pages() {
        for link in Page::read(&fs::read_to_string(&path).unwrap()).links {
            count += 1;
            faults.extend(
                fault(&path, &link).map(|fault| {
                    format!("{}: {fault}", path.strip_prefix(root()).unwrap().display())
                }),
            );
        }
    }
    assert!(faults.is_empty(), "broken links: {faults:#?}");
    assert!(count > 100, "{count} links were found");
}

#[test]
fn the_summary_names_every_page_of_the_docs() {
    let docs = root().join("docs");
    let named: BTreeSet<PathBuf> =
        Page::read(&text_of("docs/SUMMARY.md")).links.iter().map(|link| docs.join(link)).collect();
    let missing: Vec<PathBuf> = pages()
        .into_iter()
        .filter(|page| {
            page.starts_with(&docs) && !page.ends_with("SUMMARY.md") && !named.contains(page)
        })
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:#?}");
}

#[test]
fn anchors_are_those_of_the_sites() {
    for (heading, wanted) in [
        ("What passes, and as what", "what-passes-and-as-what"),
        ("`dwell fsck`", "dwell-fsck"),
        ("A_b – c", "a_b--c"),
    ] {
        assert_eq!(anchor(heading), wanted);
    }
    let page =
        Page::read("# Twice\n\n[a](b.md#c) `[no](link)`\n\n## Twice\n\n```text\n# none\n```\n");
    assert_eq!(page.links, ["b.md#c"]);
    assert_eq!(page.anchors, BTreeSet::from(["twice".to_owned(), "twice-1".to_owned()]));
}
