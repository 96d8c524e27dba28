//! Authentication. With a token, only its bearer may call. Without one, only callers that address
//! this host by a loopback name: DNS rebinding leads a page here under its own name. Pages of other
//! origins cannot read and may not write.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Problem;

/// The hash of the token: comparing hashes takes constant time for any input length.
#[derive(Clone)]
pub(super) struct Guard(Arc<Option<blake3::Hash>>);

impl Guard {
    pub(super) fn new(token: Option<&str>) -> Self {
        Guard(Arc::new(token.map(|token| blake3::hash(token.as_bytes()))))
    }

    /// Lets nobody in: the settings have tokens of applications, but none that may everything.
    pub(super) fn closed() -> Self {
        // A random hash: no token has it.
        Guard(Arc::new(Some(blake3::Hash::from_bytes(rand::random()))))
    }

    fn refuses(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
        let Some(token) = &*self.0 else { return refuses_open(method, uri, headers) };
        if bears(headers, token) {
            return None;
        }
        Some(Problem::new(StatusCode::UNAUTHORIZED, "send `Authorization: Bearer` with the token of http.token_file"))
    }
}

/// Lets the request through, or returns why not.
pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.refuses(request.method(), request.uri(), request.headers()) {
        None => next.run(request).await,
        Some(problem) => problem.into_response(),
    }
}

fn bears(headers: &HeaderMap, token: &blake3::Hash) -> bool {
    let sent = headers.get(header::AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
    let (scheme, sent) = sent.split_at(sent.len().min("Bearer ".len()));
    scheme.eq_ignore_ascii_case(b"Bearer ") && blake3::hash(sent) == *token
}

fn refuses_open(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    let text = |name| headers.get(name).map(|value: &header::HeaderValue| value.to_str().unwrap_or_default());
    let host = text(header::HOST).unwrap_or_default();
    let asked = [Some(host), uri.authority().map(|authority| authority.as_str())];
    if !asked.into_iter().flatten().all(is_loopback) {
        let detail =
            "without http.token_file only requests for localhost, 127.0.0.1 or [::1] are answered: use one of these names, or set a token";
        return Some(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return None;
    }
    let foreign_site = text(header::HeaderName::from_static("sec-fetch-site")).is_some_and(|site| site != "same-origin" && site != "none");
    let foreign_origin = text(header::ORIGIN).is_some_and(|origin| origin.strip_prefix("http://") != Some(host));
    let detail = "a page of another origin cannot change anything here";
    (foreign_site || foreign_origin).then(|| Problem::new(StatusCode::FORBIDDEN, detail))
}

/// Whether `host` or `host:port` names this host by a loopback name or address.
fn is_loopback(authority: &str) -> bool {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    // The rest must be a port: `localhost:80@evil.example` is another host.
    if !rest.is_empty() && !rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
        return false;
    }
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn status(guard: &Guard, method: Method, headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        guard.refuses(&method, &"/v1/stats".parse().unwrap(), &map).map_or(200, |problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn without_a_token_only_loopback_names_are_answered() {
        let open = Guard::new(None);
        for host in ["localhost", "LocalHost:7464", "127.0.0.1:7464", "127.1.2.3", "[::1]:7464", "[::1]"] {
            assert_eq!(status(&open, Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:7464",
            "127.0.0.1.nip.io",
            "10.0.0.1:7464",
            "",
            "[::2]",
            "dwell",
            "localhost:80@evil.example",
            "[::1].nip.io",
            "::1",
        ] {
            assert_eq!(status(&open, Method::GET, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(&open, Method::GET, &[]), 421, "no host at all");
        let uri: Uri = "http://evil.example/v1/stats".parse().unwrap();
        let headers = HeaderMap::from_iter([(header::HOST, "localhost".parse().unwrap())]);
        assert!(open.refuses(&Method::GET, &uri, &headers).is_some());
    }

    #[test]
    fn a_page_of_another_origin_changes_nothing() {
        let open = Guard::new(None);
        let host = ("host", "localhost:7464");
        for fine in [("origin", "http://localhost:7464"), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none")] {
            assert_eq!(status(&open, Method::POST, &[host, fine]), 200, "{fine:?}");
        }
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:3000"),
            ("origin", "https://localhost:7464"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            for method in [Method::POST, Method::DELETE, Method::PATCH] {
                assert_eq!(status(&open, method, &[host, foreign]), 403, "{foreign:?}");
            }
            assert_eq!(status(&open, Method::GET, &[host, foreign]), 200, "without CORS it cannot read the answer");
        }
    }

    #[test]
    fn with_a_token_only_its_bearer_is_answered_from_anywhere() {
        let guard = Guard::new(Some("hush"));
        let from = ("host", "dwell.example");
        for (sent, wanted) in [("Bearer hush", 200), ("bearer hush", 200), ("Bearer hush ", 401), ("Bearer", 401), ("Basic hush", 401)] {
            assert_eq!(status(&guard, Method::POST, &[from, ("authorization", sent)]), wanted, "{sent}");
        }
        assert_eq!(status(&guard, Method::GET, &[from]), 401);
        for sent in ["Bearer hush", "Bearer "] {
            assert_eq!(status(&Guard::closed(), Method::GET, &[("host", "localhost"), ("authorization", sent)]), 401, "{sent}");
        }
    }
}
