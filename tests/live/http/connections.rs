//! The rules for the connections of every listener: a refused call leaves its connection usable or
//! says that it does not, a client that goes away is seen, and the fields that decide who calls
//! come once.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::peers::listeners::{Listeners, call};
use crate::support::{DEADLINE, wait_until};

const TOKENS: &str = "[queues.\"n.q\"]\n[limits]\nmax_body = \"1KiB\"\n[http.tokens.shop]\ntoken = \"token-of-shop\"\nmay = [\"consume\", \"act\"]\nqueues = [\"n.q\"]\n";
const TOKEN: &str = "authorization: Bearer token-of-shop\r\n";
const JSON: &str = "content-type: application/json\r\n";

/// A listener, a call that it refuses with this status (line, headers, body), and the next one
/// (line, headers).
type Case<'a> = (&'a str, &'a str, String, &'a [u8], u16, Next<'a>);
type Next<'a> = (&'a str, &'a str);

async fn connect(server: &str) -> TcpStream {
    let link = TcpStream::connect(server.strip_prefix("http://").unwrap()).await.unwrap();
    link.set_nodelay(true).unwrap();
    link
}

/// Sends a call whose body comes a moment after its head.
async fn ask(link: &mut TcpStream, line: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
    let head = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    link.write_all(head.as_bytes()).await?;
    tokio::task::yield_now().await;
    link.write_all(body).await
}

/// The head of the next answer, in lower case, after its body; `None` at the end of the connection.
async fn answer(link: &mut TcpStream) -> Option<String> {
    let read = async {
        let (mut text, mut byte) = (String::new(), [0]);
        while !text.ends_with("\r\n\r\n") {
            if link.read(&mut byte).await.ok()? == 0 {
                return None;
            }
            text.push(char::from(byte[0]).to_ascii_lowercase());
        }
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        link.read_exact(&mut vec![0; length]).await.ok()?;
        Some(text)
    };
    timeout(DEADLINE, read).await.unwrap_or_else(|_| panic!("no answer"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_call_leaves_its_connection_to_the_next_one_or_says_that_it_does_not() {
    let server = Listeners::start(TOKENS).await;
    let large = vec![b'x'; 3000];
    let cases: [Case<'_>; 14] = [
        (&server.http, "POST /v1/jobs", JSON.into(), b"{}", 401, ("GET /", "")),
        (&server.http, "POST /v1/jobs", format!("{JSON}{TOKEN}"), b"{}", 403, ("GET /", "")),
        (
            &server.http,
            "POST /v1/queues/no-such/pop",
            format!("{JSON}{TOKEN}"),
            b"{}",
            403,
            ("GET /", ""),
        ),
        (&server.http, "POST /v1/nothing", format!("{JSON}{TOKEN}"), b"{}", 404, ("GET /", "")),
        (&server.http, "PUT /v1/jobs", format!("{JSON}{TOKEN}"), b"{}", 405, ("GET /", "")),
        (&server.http, "POST /v1/leases", TOKEN.into(), b"{}", 415, ("GET /", "")),
        (
            &server.http,
            "POST /v1/queues/n.q/pop",
            format!("{TOKEN}host: localhost\r\n"),
            &large,
            400,
            ("GET /", ""),
        ),
        (&server.probes, "POST /readyz", String::new(), b"{}", 405, ("GET /livez", "")),
        (&server.probes, "POST /nothing", String::new(), &large, 404, ("GET /livez", "")),
        (&server.delay_queue, "POST /pop", String::new(), b"{}", 401, ("GET /nothing", "")),
        (&server.delay_queue, "POST /nothing", String::new(), &large, 404, ("GET /nothing", "")),
        (&server.lmstfy, "PUT /api/n/q", String::new(), b"x", 401, ("GET /nothing", "")),
        (
            &server.lmstfy,
            "PUT /api/n/q",
            "x-token: token-of-shop\r\n".into(),
            &large,
            403,
            ("GET /nothing", ""),
        ),
        (&server.lmstfy, "PUT /api/n/q/job", String::new(), b"x", 404, ("GET /nothing", "")),
    ];
    for (server, line, headers, body, status, (next, next_headers)) in cases {
        let mut link = connect(server).await;
        for round in 0..100 {
            ask(&mut link, line, &headers, body)
                .await
                .unwrap_or_else(|error| panic!("{line} {status}, round {round}: {error}"));
            let refused = answer(&mut link).await.unwrap_or_else(|| {
                panic!("{line} {status}, round {round}: the connection has ended")
            });
            assert!(refused.starts_with(&format!("http/1.1 {status} ")), "{line}: {refused}");
            assert!(!refused.contains("connection: close"), "{line}, round {round}: {refused}");
            ask(&mut link, next, next_headers, b"").await.unwrap();
            assert!(
                answer(&mut link).await.is_some(),
                "{line} {status}, round {round}: the connection ended without a word"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_not_read_ends_its_connection_with_a_word() {
    let server = Listeners::start(TOKENS).await;
    let large = vec![b'x'; 4 << 20];
    for (server, line, headers, status) in [
        (&server.http, "POST /v1/jobs", JSON, 401),
        (
            &server.http,
            "POST /v1/leases",
            "authorization: Bearer token-of-shop\r\ncontent-type: application/json\r\n",
            413,
        ),
        (&server.probes, "POST /readyz", "", 405),
        (&server.delay_queue, "POST /pop", "", 401),
        (&server.lmstfy, "PUT /api/n/q", "x-token: token-of-shop\r\n", 403),
    ] {
        for _ in 0..5 {
            let mut link = connect(server).await;
            ask(&mut link, line, headers, &large)
                .await
                .unwrap_or_else(|error| panic!("{line}: {error}"));
            let refused = answer(&mut link)
                .await
                .unwrap_or_else(|| panic!("{line}: the connection ended before the answer"));
            assert!(
                refused.starts_with(&format!("http/1.1 {status} "))
                    && refused.contains("\r\nconnection: close\r\n"),
                "{line}: {refused}"
            );
            assert!(answer(&mut link).await.is_none());
        }
        // Nor does anybody wait for one that never comes.
        let mut link = connect(server).await;
        link.write_all(
            format!(
                "{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: 900000\r\n\r\n"
            )
            .as_bytes(),
        )
        .await
        .unwrap();
        let refused = timeout(Duration::from_secs(60), answer(&mut link)).await.unwrap().unwrap();
        assert!(refused.contains("\r\nconnection: close\r\n"), "{line}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_two_hosts_is_refused_at_every_listener() {
    let server = Listeners::start("[queues.\"n.q\"]\n").await;
    for (server, line) in [
        (&server.http, "GET /v1/stats"),
        (&server.http, "GET /"),
        (&server.probes, "GET /readyz"),
        (&server.delay_queue, "POST /pop"),
        (&server.lmstfy, "GET /api/n/q/size"),
    ] {
        for hosts in
            ["host: localhost\r\nhost: evil.example\r\n", "host: localhost\r\nHost: localhost\r\n"]
        {
            let refused = call(server, line, hosts, b"").await;
            assert_eq!(refused.status, 400, "{line}: {refused:?}");
        }
        assert_eq!(
            call(server, line, "host: localhost\r\nx-token: a\r\nx-token: b\r\n", b"").await.status,
            400,
            "{line}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_is_seen_behind_whatever_it_sent() {
    let server = Listeners::start("[queues.\"n.q\"]\n").await;
    let topic = r#"{"topic":"n.q"}"#;
    for (listener, line, body) in [
        (&server.http, "POST /v1/queues/n.q/pop", r#"{"wait":"60s"}"#),
        (&server.delay_queue, "POST /pop", topic),
        (&server.lmstfy, "GET /api/n/q?ttr=60&timeout=60", ""),
        // A body that the call does not read.
        (&server.lmstfy, "GET /api/n/q?ttr=60&timeout=60", "body"),
    ] {
        let head = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\n{JSON}content-length: {}\r\n\r\n",
            body.len()
        );
        let whole = format!("{head}{body}");
        let unread = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\n{JSON}content-length: 9000000\r\n\r\n{}",
            "x".repeat(100_000)
        );
        let reads_none = line.starts_with("GET").then_some(unread);
        for asked in [Some(whole.clone() + "\r\n"), Some(whole.clone() + &whole), reads_none]
            .into_iter()
            .flatten()
        {
            let mut link = connect(listener).await;
            link.write_all(asked.as_bytes()).await.unwrap();
            server.until_waiting("n.q", 1).await;
            drop(link);
            // Long before its wait is over.
            let gone = async || {
                let counts = call(&server.http, "GET /v1/queues/n.q", "host: localhost\r\n", b"")
                    .await
                    .json();
                (counts["waiting"] == 0).then_some(())
            };
            timeout(Duration::from_secs(20), wait_until("its end", gone))
                .await
                .unwrap_or_else(|_| panic!("{line}: the call still waits"));
            let job = json!({"id": "a", "queue": "n.q", "for": 0, "body": "x"}).to_string();
            let stored = call(
                &server.http,
                "POST /v1/jobs",
                &format!("host: localhost\r\n{JSON}"),
                job.as_bytes(),
            )
            .await;
            assert_eq!(stored.status, 201, "{stored:?}");
            let counts =
                call(&server.http, "GET /v1/queues/n.q", "host: localhost\r\n", b"").await.json();
            assert_eq!(
                (&counts["ready"], &counts["reserved"]),
                (&json!(1), &json!(0)),
                "{line}: the job is held for nobody"
            );
            call(&server.http, "DELETE /v1/jobs/a", "host: localhost\r\n", b"").await;
        }
    }
}
