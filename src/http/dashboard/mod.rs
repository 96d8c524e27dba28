//! `GET /`: the dashboard. Its files hold no data and need no token; the calls that they make need
//! one.

mod assets;
mod bundle;
mod page;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::http::server::Problem;
use assets::Assets;
use page::page;

/// `/`, and the files that its page loads.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(async |headers: HeaderMap| serve("index.html", &headers))).route(
        "/assets/{*path}",
        get(async |Path(path): Path<String>, headers: HeaderMap| serve(&path, &headers)),
    )
}

fn serve(path: &str, asked: &HeaderMap) -> Response {
    let (data, policy) = if path == "index.html" {
        match page() {
            Ok(page) => (Some(page.text.into_bytes().into()), policy(&page.scripts, &page.styles)),
            // Only an edit of a debug build gets here: a test reads the embedded files.
            Err(error) => {
                return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error).into_response();
            }
        }
    } else {
        (Assets::get(path).map(|file| file.data), policy("", ""))
    };
    let Some((data, kind)) = data.zip(content_type(path)) else {
        return Problem::new(StatusCode::NOT_FOUND, "the dashboard has no such file")
            .into_response();
    };
    let tag = entity_tag(&data);
    // The browser keeps the file and asks at each load whether it changed, so that an upgrade shows
    // at once.
    let kept = [
        (header::ETAG, tag.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if asked.get_all(header::IF_NONE_MATCH).iter().any(|known| known == tag) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    let guards = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ),
    ];
    (kept, guards, [(header::CONTENT_TYPE, HeaderValue::from_static(kind))], data).into_response()
}

/// Allows only our own files and the files that these hashes name; no text is ever parsed as markup
/// or script.
fn policy(scripts: &str, styles: &str) -> HeaderValue {
    let policy = format!(
        "default-src 'none'; script-src {scripts}'self'; style-src {styles}'self'; img-src 'self' data:; connect-src 'self'; base-uri \
         'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    HeaderValue::from_str(&policy).expect("words and hashes in base64 are a header's value")
}

/// `None` for files that are not served, such as the notes beside them.
fn content_type(path: &str) -> Option<&'static str> {
    let (_, ending) = path.rsplit_once('.')?;
    Some(match ending {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

fn entity_tag(data: &[u8]) -> HeaderValue {
    let hash = blake3::hash(data).to_hex();
    HeaderValue::from_str(&format!("\"{}\"", &hash[..32]))
        .expect("hexadecimal digits between quotes are a header's value")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::assets::text_of;
    use super::*;

    #[test]
    fn what_is_known_already_is_not_sent_again() {
        let first = serve("index.html", &HeaderMap::new());
        assert_eq!(first.status(), 200);
        let known =
            HeaderMap::from_iter([(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone())]);
        assert_eq!(serve("index.html", &known).status(), 304);
        assert_eq!(serve("main.js", &known).status(), 200, "another file has another tag");
    }

    #[test]
    fn only_its_own_files_are_served() {
        for path in [
            "",
            "../api.rs",
            "/etc/passwd",
            "vendor",
            "nothing.js",
            "vendor/README.md",
            "vendor/../index.html.js",
        ] {
            assert_eq!(serve(path, &HeaderMap::new()).status(), 404, "{path}");
        }
    }

    #[test]
    fn no_page_brings_script_or_style_of_its_own() {
        let page = text_of("index.html").unwrap();
        for inline in
            ["<style", "style=", "javascript:", "onclick", "onload", "http://", "https://"]
        {
            assert!(!page.contains(inline), "{inline} in index.html");
        }
        assert!(
            page.split("<script")
                .skip(1)
                .all(|tag| tag.starts_with(" src=") || tag.contains(" src=\"assets/")),
            "an inline script"
        );
    }

    #[test]
    fn the_page_names_only_what_is_served() {
        let page = page().unwrap().text;
        for named in page.split("\"assets/").skip(1) {
            let path = named.split('"').next().unwrap();
            assert_eq!(serve(path, &HeaderMap::new()).status(), 200, "{path}");
        }
    }

    #[test]
    fn what_is_asked_for_early_is_what_the_pages_ask_for_first() {
        let early = text_of("early.js").unwrap();
        for (page, name, path) in [
            ("jobs.js", "LIMIT", "jobs?state=scheduled&limit="),
            ("overview.js", "NEXT", "jobs?limit="),
        ] {
            let page = text_of(page).unwrap();
            let number =
                page.split_once(&format!("const {name} = ")).unwrap().1.split(';').next().unwrap();
            assert!(
                early.contains(&format!("'{path}{number}'")),
                "{path}{number} is not in early.js"
            );
        }
    }

    #[test]
    fn data_is_never_taken_for_markup() {
        let ours =
            Assets::iter().filter(|path| path.ends_with(".js") && !path.starts_with("vendor/"));
        for path in ours {
            let text = text_of(&path).unwrap();
            for sink in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "cssText",
            ] {
                assert!(!text.contains(sink), "{sink} in {path}");
            }
            assert!(text.starts_with("// "), "{path} does not start with a comment");
        }
    }

    #[test]
    fn the_dashboard_has_a_word_for_every_reason_verdict_and_kind_of_broker() {
        use crate::job::{DeadReason, Verdict as V};
        let (words, health) = (text_of("words.js").unwrap(), text_of("health.js").unwrap());
        for reason in DeadReason::ALL {
            assert!(words.contains(&format!("\n  {}: [", reason.as_str())), "{reason:?}");
        }
        // The dashboard schedules no job, and the answer to a stored schedule is the schedule.
        let of_schedule = [V::Added, V::Replaced, V::Duplicate, V::Kept, V::Conflict];
        for verdict in V::ALL.into_iter().filter(|verdict| !of_schedule.contains(verdict)) {
            assert!(words.contains(&format!("\n    {}: ", verdict.as_str())), "{verdict:?}");
        }
        let kinds = health.lines().find(|line| line.starts_with("const KINDS")).unwrap();
        for kind in dwell_connectors::BrokerConfig::KINDS {
            assert!(kinds.contains(&format!(" {}: '", kind.kind)), "{}", kind.kind);
        }
    }
}
