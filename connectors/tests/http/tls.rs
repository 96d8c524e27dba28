//! TLS: whom the connector trusts, and what is wrong where nobody is trusted.

use dwell_connectors::{Outcome, http};

use crate::app::{Answer, App};
use crate::certificates::Authority;
use crate::nginx::Nginx;
use crate::{assert_failed, attempt, collect, local, numbered, open, reach};

async fn app() -> App {
    let app = App::start().await;
    app.answer("/", Answer::status(200));
    app
}

#[tokio::test]
async fn an_unknown_authority_fails_the_attempt_unless_ca_file_names_it() {
    let app = app().await;
    let nginx = Nginx::start(app.address());
    let outcome = attempt(local(), &nginx.tls_url("/")).await;
    assert_failed(&outcome, "the target cannot be reached: ");
    assert_failed(&outcome, "UnknownIssuer");
    assert_eq!(attempt(nginx.trusted(), &nginx.tls_url("/")).await, Outcome::Finished);
    // Another authority than the one of `ca_file`.
    let other = Nginx::start(app.address());
    assert_failed(&attempt(nginx.trusted(), &other.tls_url("/")).await, "UnknownIssuer");
    assert_eq!(app.received("/").len(), 1);

    let reached = async |config: http::Config| reach(config, &nginx.tls_url("/*")).await;
    assert!(reached(local()).await.unwrap_err().message.contains("UnknownIssuer"));
    assert!(reached(nginx.trusted()).await.unwrap().contains("takes connections"));
}

#[tokio::test]
async fn a_certificate_of_another_host_or_time_fails_the_attempt() {
    let app = app().await;
    let authority = Authority::new();
    let named = Nginx::with(app.address(), &authority, &authority.certify("localhost"), "http2");
    assert_failed(
        &attempt(named.trusted(), &named.tls_url("/")).await,
        "not valid for name \"127.0.0.1\"",
    );
    let by_name = format!("https://localhost:{}/", named.tls_port());
    assert_eq!(attempt(named.trusted(), &by_name).await, Outcome::Finished);
    let expired = Nginx::with(
        app.address(),
        &authority,
        &authority.certify_until("127.0.0.1", 2001),
        "http2",
    );
    assert_failed(&attempt(expired.trusted(), &expired.tls_url("/")).await, "certificate expired");
    assert_eq!(app.received("/").len(), 1);
}

#[tokio::test]
async fn a_scheme_that_is_not_the_ports_fails_the_attempt() {
    let app = app().await;
    let nginx = Nginx::start(app.address());
    let plain_on_tls = nginx.tls_url("/").replace("https://", "http://");
    assert_failed(
        &attempt(nginx.trusted(), &plain_on_tls).await,
        "The plain HTTP request was sent to HTTPS port",
    );
    let tls_on_plain = nginx.url("/").replace("http://", "https://");
    assert_failed(&attempt(nginx.trusted(), &tls_on_plain).await, "the target cannot be reached: ");
    assert_eq!(app.received("/").len(), 0);
}

#[tokio::test]
async fn a_server_that_knows_http2_gets_http2() {
    let app = app().await;
    let nginx = Nginx::start(app.address());
    let authority = Authority::new();
    let only_http1 = Nginx::with(app.address(), &authority, &authority.certify("127.0.0.1"), "");
    for (config, url) in [
        (nginx.trusted(), nginx.tls_url("/")),
        (nginx.trusted(), nginx.url("/")),
        (only_http1.trusted(), only_http1.tls_url("/")),
    ] {
        assert_eq!(attempt(config, &url).await, Outcome::Finished, "{url}");
    }
    let header = |name: &str| -> Vec<_> {
        app.received("/").iter().map(|one| one.headers[name].to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(header("x-protocol"), ["HTTP/2.0", "HTTP/1.1", "HTTP/1.1"]);
    assert_eq!(header("x-scheme"), ["https", "http", "https"]);
}

#[tokio::test]
async fn a_server_that_knows_http2_gets_http1_where_http2_is_off() {
    let app = app().await;
    let nginx = Nginx::start(app.address());
    let off: http::Config = serde_json::from_value(serde_json::json!({
        "http2": false, "subnets": ["127.0.0.0/8"], "ca_file": nginx.trusted().ca_file,
    }))
    .unwrap();
    let (sink, mut outcomes) = open(off).await;
    sink.publish(numbered(&nginx.tls_url("/"), 4)).await;
    assert_eq!(collect(&mut outcomes, 4).await, vec![Outcome::Finished; 4]);
    let protocols: Vec<_> = app
        .received("/")
        .iter()
        .map(|one| one.headers["x-protocol"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(protocols, ["HTTP/1.1"; 4]);
}
