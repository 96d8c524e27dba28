//! Authentication. With tokens, only their bearers may call, each what its token allows. Without
//! one, only callers that address this host by a loopback name: DNS rebinding leads a page here
//! under its own name. Pages of other origins get nothing; they may link here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dwell_connectors::{ConnectorError, ErrorKind, follow_secret};
use parking_lot::RwLock;

use super::caller::Caller;
use crate::config::{Http, Scope, Token};
use crate::http::server::Problem;

/// Each token by its hash, with its bearer. Comparing hashes takes constant time for any input
/// length. Clones share them.
#[derive(Clone)]
pub struct Guard(Arc<RwLock<Vec<(blake3::Hash, Caller)>>>);

impl Guard {
    /// `master`: the token that may everything. Without any token, every caller on this host may.
    pub(crate) fn new(master: Option<&str>, tokens: &BTreeMap<String, Token>) -> Self {
        let hash = |secret: &str| blake3::hash(secret.as_bytes());
        let master = master.map(|secret| (hash(secret), Caller::anyone()));
        let bearers = tokens
            .iter()
            .map(|(name, token)| (hash(token.secret()), Caller::bearer(name, token.clone())));
        Guard(Arc::new(RwLock::new(master.into_iter().chain(bearers).collect())))
    }

    /// The tokens of the settings, which follow their files. `master`: the token in
    /// `http.token_file`.
    pub(crate) fn following(http: &Http, master: Option<&str>) -> Self {
        let guard = Guard::new(master, &http.tokens);
        let follow = |file: &Path, secret: &str, name: Option<&str>| {
            let setting = name.map_or("http.token_file".to_owned(), |name| {
                format!("http.tokens.{name}.token_file")
            });
            let bearer = name.map(str::to_owned);
            let take = move |table: &RwLock<_>, text: &str| renew(table, bearer.as_deref(), text);
            tokio::spawn(follow_secret(
                setting,
                file.to_owned(),
                secret.to_owned(),
                Arc::downgrade(&guard.0),
                take,
            ));
        };
        if let (Some(file), Some(secret)) = (http.token_file.as_deref(), master) {
            follow(file, secret, None);
        }
        for (name, token) in &http.tokens {
            if let Some(file) = &token.token_file {
                follow(file, token.secret(), Some(name));
            }
        }
        guard
    }

    /// Returns the caller, or the problem of a call that is refused.
    fn admit(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Caller, Problem> {
        if self.is_open() {
            return refuses_open(method, uri, headers).map_or(Ok(Caller::anyone()), Err);
        }
        sent_token(headers).and_then(|sent| self.bearer(sent)).ok_or_else(|| {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "send `Authorization: Bearer` with a token of [http]",
            )
        })
    }

    /// Whether there is no token.
    pub(crate) fn is_open(&self) -> bool {
        self.0.read().is_empty()
    }

    /// The bearer of this token; an empty one is nobody's.
    pub(crate) fn bearer(&self, sent: &[u8]) -> Option<Caller> {
        if sent.is_empty() {
            return None;
        }
        let sent = blake3::hash(sent);
        // To the end, so that the time does not tell which token it is.
        self.0
            .read()
            .iter()
            .fold(None, |found, (hash, caller)| if *hash == sent { Some(caller) } else { found })
            .cloned()
    }
}

/// Gives this bearer another token; `None` is the bearer of `http.token_file`.
fn renew(
    table: &RwLock<Vec<(blake3::Hash, Caller)>>,
    bearer: Option<&str>,
    secret: &str,
) -> Result<(), ConnectorError> {
    let new = blake3::hash(secret.as_bytes());
    let mut table = table.write();
    if table.iter().any(|(hash, caller)| *hash == new && caller.name() != bearer) {
        return Err(ConnectorError::new(ErrorKind::Config, "another token of [http] is the same")
            .hint("give each its own"));
    }
    table
        .iter_mut()
        .filter(|(_, caller)| caller.name() == bearer)
        .for_each(|(hash, _)| *hash = new);
    Ok(())
}

/// Lets the request through with its caller, or returns why not.
pub(in crate::http) async fn check(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match guard.admit(request.method(), request.uri(), request.headers()) {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    if let Some(name) = caller.name() {
        tracing::Span::current().record("token", name);
    }
    // Nothing is at other paths.
    if let Some(path) = request.extensions().get::<MatchedPath>()
        && let Err(problem) = caller.check_scope(scope_of(request.method(), path.as_str()))
    {
        return problem.into_response();
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Lets a request for the dashboard through, or returns why not. The pages need no token: they get
/// their data through the calls.
pub(in crate::http) async fn check_page(
    State(guard): State<Guard>,
    request: Request,
    next: Next,
) -> Response {
    match refuses_open(request.method(), request.uri(), request.headers())
        .filter(|_| guard.is_open())
    {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// Returns the scope that a call needs, by the path of its route.
fn scope_of(method: &Method, path: &str) -> Scope {
    match (method.as_str(), path) {
        ("GET" | "HEAD" | "OPTIONS", _) => Scope::Read,
        ("POST", "/v1/schedules/preview") => Scope::Read,
        ("POST", "/v1/jobs") | ("PUT", "/v1/schedules/{id}") => Scope::Schedule,
        (
            "POST",
            "/v1/queues/{queue}/pop" | "/v1/leases" | "/v1/jobs/{id}/finish" | "/v1/jobs/{id}/fail",
        ) => Scope::Consume,
        _ => Scope::Act,
    }
}

fn sent_token(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) =
        headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Why a call without a token is refused, if it is.
pub(crate) fn refuses_open(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    let text = |name| {
        headers.get(name).map(|value: &header::HeaderValue| value.to_str().unwrap_or_default())
    };
    let host = text(header::HOST).unwrap_or_default();
    let asked = [Some(host), uri.authority().map(|authority| authority.as_str())];
    if !asked.into_iter().flatten().all(is_loopback) {
        let detail = "without a token only requests for localhost, 127.0.0.1 or [::1] are answered: use one of these names, or set http.token_file";
        return Some(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    // A link on another page may lead here: the browser says that it navigates.
    let navigates = *method == Method::GET
        && text(header::HeaderName::from_static("sec-fetch-mode")) == Some("navigate");
    let foreign_site = text(header::HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| site != "same-origin" && site != "none");
    let foreign_origin =
        text(header::ORIGIN).is_some_and(|origin| origin.strip_prefix("http://") != Some(host));
    let detail = "a page of another origin cannot read or change anything here";
    (foreign_origin || foreign_site && !navigates)
        .then(|| Problem::new(StatusCode::FORBIDDEN, detail))
}

/// Whether `host` or `host:port` names this host by a loopback name or address.
fn is_loopback(authority: &str) -> bool {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    // The rest must be a port: `localhost:80@evil.example` is another host.
    if !rest.is_empty()
        && !rest
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return false;
    }
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn status(guard: &Guard, method: Method, headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let admitted = guard.admit(&method, &"/v1/stats".parse().unwrap(), &map);
        admitted.map_or_else(|problem| problem.into_response().status().as_u16(), |_| 200)
    }

    fn token(secret: &str) -> Token {
        Token {
            token: Some(Secret::new(secret.to_owned())),
            token_file: None,
            may: vec![Scope::Read],
            queues: vec!["*".to_owned()],
        }
    }

    fn open() -> Guard {
        Guard::new(None, &BTreeMap::new())
    }

    #[test]
    fn without_a_token_only_loopback_names_are_answered() {
        let open = open();
        for host in
            ["localhost", "LocalHost:7464", "127.0.0.1:7464", "127.1.2.3", "[::1]:7464", "[::1]"]
        {
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
        assert!(open.admit(&Method::GET, &uri, &headers).is_err());
    }

    #[test]
    fn a_page_of_another_origin_gets_nothing() {
        let open = open();
        let host = ("host", "localhost:7464");
        for fine in [
            ("origin", "http://localhost:7464"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
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
            for method in
                [Method::POST, Method::DELETE, Method::PATCH, Method::GET, Method::OPTIONS]
            {
                assert_eq!(status(&open, method, &[host, foreign]), 403, "{foreign:?}");
            }
        }
        let link = [host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(
            (status(&open, Method::GET, &link), status(&open, Method::POST, &link)),
            (200, 403)
        );
    }

    #[test]
    fn with_a_token_only_its_bearer_is_answered_from_anywhere() {
        let guard = Guard::new(Some("hush"), &BTreeMap::new());
        let from = ("host", "dwell.example");
        for (sent, wanted) in [
            ("Bearer hush", 200),
            ("bearer hush", 200),
            ("Bearer hush ", 401),
            ("Bearer", 401),
            ("Basic hush", 401),
        ] {
            assert_eq!(
                status(&guard, Method::POST, &[from, ("authorization", sent)]),
                wanted,
                "{sent}"
            );
        }
        assert_eq!(status(&guard, Method::GET, &[from]), 401);
    }

    #[test]
    fn a_bearer_is_known_by_its_token() {
        let tokens = BTreeMap::from([
            ("shop".to_owned(), token("open")),
            ("till".to_owned(), token("sesame")),
        ]);
        let name = |guard: &Guard, sent: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, sent.parse().unwrap())]);
            let caller = guard.admit(&Method::GET, &"/v1/stats".parse().unwrap(), &headers).ok()?;
            Some(caller.name().map(str::to_owned))
        };
        let (alone, with_master) = (Guard::new(None, &tokens), Guard::new(Some("hush"), &tokens));
        for guard in [&alone, &with_master] {
            assert_eq!(name(guard, "Bearer open"), Some(Some("shop".to_owned())));
            assert_eq!(name(guard, "bearer sesame"), Some(Some("till".to_owned())));
            assert_eq!(
                (name(guard, "Bearer "), name(guard, "Bearer shop"), name(guard, "")),
                (None, None, None)
            );
        }
        assert_eq!(
            (name(&alone, "Bearer hush"), name(&with_master, "Bearer hush")),
            (None, Some(None))
        );
        assert_eq!(
            status(&alone, Method::GET, &[("host", "localhost")]),
            401,
            "a token of an application closes the rest"
        );
    }

    #[test]
    fn a_bearer_gets_another_token_unless_somebody_has_it() {
        let guard = Guard::new(Some("hush"), &BTreeMap::from([("shop".to_owned(), token("open"))]));
        renew(&guard.0, Some("shop"), "sesame").unwrap();
        renew(&guard.0, Some("shop"), "sesame").unwrap();
        assert!(
            renew(&guard.0, Some("shop"), "hush").is_err()
                && renew(&guard.0, None, "sesame").is_err()
        );
        renew(&guard.0, None, "quiet").unwrap();
        let known = |sent: &str| {
            guard.bearer(sent.as_bytes()).map(|caller| caller.name().map(str::to_owned))
        };
        assert_eq!((known("sesame"), known("quiet")), (Some(Some("shop".to_owned())), Some(None)));
        assert_eq!((known("open"), known("hush")), (None, None));
    }

    #[test]
    fn each_call_has_its_scope() {
        let api = crate::http::api::routes::calls().to_openapi();
        let mut scopes: BTreeMap<Scope, Vec<String>> = BTreeMap::new();
        for (path, item) in &api.paths.paths {
            for (method, operation) in [
                ("GET", &item.get),
                ("POST", &item.post),
                ("PATCH", &item.patch),
                ("DELETE", &item.delete),
                ("PUT", &item.put),
            ] {
                if operation.is_some() {
                    scopes
                        .entry(scope_of(&method.parse().unwrap(), path))
                        .or_default()
                        .push(format!("{method} {path}"));
                }
            }
        }
        let mut read = scopes.remove(&Scope::Read).unwrap();
        read.retain(|call| !call.starts_with("GET "));
        assert_eq!(read, ["POST /v1/schedules/preview"]);
        assert_eq!(
            scopes.remove(&Scope::Schedule).unwrap(),
            ["POST /v1/jobs", "PUT /v1/schedules/{id}"]
        );
        let consume = [
            "POST /v1/jobs/{id}/fail",
            "POST /v1/jobs/{id}/finish",
            "POST /v1/leases",
            "POST /v1/queues/{queue}/pop",
        ];
        assert_eq!(scopes.remove(&Scope::Consume).unwrap(), consume);
        let act = [
            "PATCH /v1/jobs/{id}",
            "DELETE /v1/jobs/{id}",
            "POST /v1/jobs/{id}/fire",
            "POST /v1/jobs/{id}/requeue",
        ];
        let of_queues =
            ["pause", "purge", "resume"].map(|call| format!("POST /v1/queues/{{queue}}/{call}"));
        let of_schedules = [
            "POST /v1/schedules/pause",
            "POST /v1/schedules/resume",
            "DELETE /v1/schedules/{id}",
            "POST /v1/schedules/{id}/fire",
            "POST /v1/schedules/{id}/pause",
            "POST /v1/schedules/{id}/resume",
        ];
        assert_eq!(
            scopes.remove(&Scope::Act).unwrap(),
            [&act.map(str::to_owned)[..], &of_queues, &of_schedules.map(str::to_owned)].concat()
        );
    }
}
