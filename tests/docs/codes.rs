//! docs/reference/error-codes.md has every code and every reason of death.

use dwell::job::DeadReason;
use dwell::request::Code;

use crate::pages::text_of;

#[test]
fn every_code_is_on_the_page() {
    let page = text_of("docs/reference/error-codes.md");
    let words = Code::ALL
        .iter()
        .map(|code| code.as_str())
        .chain(DeadReason::ALL.iter().map(|reason| reason.as_str()));
    let missing: Vec<&str> =
        words.filter(|word| !page.contains(&format!("| `{word}` |"))).collect();
    assert!(missing.is_empty(), "docs/reference/error-codes.md lacks {missing:?}");
}
