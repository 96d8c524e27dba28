//! `index.html` with its style and scripts inline: the page loads in one request and paints sooner.
//! The content security policy names each of them by its hash, so that nothing else runs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

use super::assets::text_of;
use super::bundle;

/// The element in `index.html`, and the tags around the inline text.
const EARLY: (&str, &str, &str) =
    ("<script src=\"assets/early.js\"></script>", "<script>", "</script>");
const STYLE: (&str, &str, &str) =
    ("<link rel=\"stylesheet\" href=\"assets/app.css\">", "<style>", "</style>");
const MODULE: (&str, &str, &str) = (
    "<script type=\"module\" src=\"assets/app.js\"></script>",
    "<script type=\"module\">",
    "</script>",
);

/// The page, and the hashes for its policy, each followed by a space.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) scripts: String,
    pub(super) styles: String,
}

/// Fails with the part that cannot be inlined.
pub(super) fn page() -> Result<Page, String> {
    let (early, style, module) = (text_of("early.js")?, bundle::style()?, bundle::script()?);
    let text = text_of("index.html")?;
    let (text, early) = put(&text, EARLY, &early)?;
    let (text, styles) = put(&text, STYLE, &style)?;
    let (text, module) = put(&text, MODULE, &module)?;
    Ok(Page { text, scripts: early + &module, styles })
}

/// Replaces the element by `text`. Returns the page, and the hash of the text.
fn put(
    page: &str,
    (named, open, close): (&str, &str, &str),
    text: &str,
) -> Result<(String, String), String> {
    let (before, behind) =
        page.split_once(named).ok_or_else(|| format!("index.html has no {named}"))?;
    // An HTML parser gives these a meaning even in a string or a comment. It also changes carriage
    // returns, and with them the hash.
    for markup in ["</script", "<script", "</style", "<!--", "\r"] {
        if text.to_ascii_lowercase().contains(markup) {
            return Err(format!(
                "the text for {named} contains {markup:?}, which an HTML parser would interpret"
            ));
        }
    }
    let hash = STANDARD.encode(digest(&SHA256, text.as_bytes()));
    Ok((format!("{before}{open}{text}{close}{behind}"), format!("'sha256-{hash}' ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_in_the_page() {
        let page = page().unwrap();
        for part in
            [text_of("early.js").unwrap(), bundle::style().unwrap(), bundle::script().unwrap()]
        {
            assert_eq!(page.text.matches(&part).count(), 1);
        }
        assert!(
            !page.text.contains(" src=") && !page.text.contains("stylesheet"),
            "the page still loads a file"
        );
        assert_eq!(
            (page.scripts.matches("'sha256-").count(), page.styles.matches("'sha256-").count()),
            (2, 1)
        );
    }

    #[test]
    fn what_the_policy_allows_is_what_stands_between_the_tags() {
        let (page, hash) = put("<a><b></b>", ("<b>", "<script>", "</script>"), "abc").unwrap();
        assert_eq!(page, "<a><script>abc</script></b>");
        // FIPS 180-2, appendix B.1.
        assert_eq!(hash, "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=' ");
    }

    #[test]
    fn what_would_end_its_element_is_not_put_there() {
        for text in ["'</Script>'", "/* </style> */", "// <!--", "`<script>`", "a\r\nb"] {
            assert!(put("<b>", ("<b>", "<script>", "</script>"), text).is_err(), "{text}");
        }
        assert!(put("<c>", ("<b>", "<script>", "</script>"), "").is_err());
    }
}
