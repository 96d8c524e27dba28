//! `GET /`: the dashboard. Its files are part of the binary; a debug build reads them from the sources instead, so that a reload shows an edit.
//! They hold no data and are served to whoever asks: it is the calls that they make which want the token.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::{Embed, EmbeddedFile};

use super::Problem;

/// Nothing but our own files, and no text ever taken for markup or script.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);

#[derive(Embed)]
#[folder = "src/http/dashboard/"]
struct Files;

/// `/`, and what its page loads.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(async |headers: HeaderMap| serve("index.html", &headers)))
        .route("/assets/{*path}", get(async |Path(path): Path<String>, headers: HeaderMap| serve(&path, &headers)))
}

fn serve(path: &str, asked: &HeaderMap) -> Response {
    let Some((file, kind)) = Files::get(path).zip(content_type(path)) else {
        return Problem::new(StatusCode::NOT_FOUND, "the dashboard has no such file").into_response();
    };
    let tag = entity_tag(&file);
    // Kept by the browser, and asked for at each load whether it changed: an upgrade is seen at once.
    let kept = [(header::ETAG, tag.clone()), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    if asked.get_all(header::IF_NONE_MATCH).iter().any(|known| known == tag) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    let guards = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    ];
    (kept, guards, [(header::CONTENT_TYPE, HeaderValue::from_static(kind))], file.data).into_response()
}

/// Of what is served at all. Notes for people beside the files are not.
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

fn entity_tag(file: &EmbeddedFile) -> HeaderValue {
    let hash = blake3::Hash::from_bytes(file.metadata.sha256_hash()).to_hex();
    HeaderValue::from_str(&format!("\"{}\"", &hash[..32])).expect("hexadecimal digits between quotes are a header's value")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn text_of(path: &str) -> String {
        String::from_utf8(Files::get(path).unwrap().data.into_owned()).unwrap()
    }

    #[test]
    fn what_is_known_already_is_not_sent_again() {
        let first = serve("index.html", &HeaderMap::new());
        assert_eq!(first.status(), 200);
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone())]);
        assert_eq!(serve("index.html", &known).status(), 304);
        assert_eq!(serve("main.js", &known).status(), 200, "another file has another tag");
    }

    #[test]
    fn only_its_own_files_are_served() {
        for path in ["", "../api.rs", "/etc/passwd", "vendor", "nothing.js", "vendor/README.md", "vendor/../index.html.js"] {
            assert_eq!(serve(path, &HeaderMap::new()).status(), 404, "{path}");
        }
    }

    #[test]
    fn no_page_brings_script_or_style_of_its_own() {
        let page = text_of("index.html");
        for inline in ["<style", "style=", "javascript:", "onclick", "onload", "http://", "https://"] {
            assert!(!page.contains(inline), "{inline} in index.html");
        }
        assert!(page.split("<script").skip(1).all(|tag| tag.starts_with(" src=") || tag.contains(" src=\"assets/")), "an inline script");
    }

    #[test]
    fn every_module_is_named_by_the_page() {
        let page = text_of("index.html");
        let modules =
            Files::iter().filter(|path| path.ends_with(".js") && !path.contains('/') && !["main.js", "theme_early.js"].contains(&&**path));
        for path in modules {
            assert!(page.contains(&format!("<link rel=\"modulepreload\" href=\"assets/{path}\">")), "{path} is loaded late");
        }
        for named in page.split("href=\"assets/").skip(1) {
            let path = named.split('"').next().unwrap();
            assert!(Files::get(path).is_some(), "there is no {path}");
        }
    }

    #[test]
    fn data_is_never_taken_for_markup() {
        let ours = Files::iter().filter(|path| path.ends_with(".js") && !path.starts_with("vendor/"));
        for path in ours {
            let text = text_of(&path);
            for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "cssText"] {
                assert!(!text.contains(sink), "{sink} in {path}");
            }
            assert!(text.starts_with("// "), "{path} does not say first what it holds");
        }
    }
}
