//! The content of a request on the wire.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dwell_connectors::{Message, Outcome, Publication, Value};
use parking_lot::Mutex;

use crate::app::{Answer, App, Received};
use crate::nginx::Nginx;
use crate::raw::{Link, Raw};
use crate::{collect, local, open, publication};

/// Publishes a message to an application straight, by nginx, and by nginx over HTTP/2; returns each
/// request as it came.
async fn received(message: Message) -> Vec<Received> {
    let app = App::start().await;
    app.answer("/hook", Answer::status(202));
    let nginx = Nginx::start(app.address());
    let (sink, mut outcomes) = open(nginx.trusted()).await;
    for place in [app.url(""), nginx.url(""), nginx.tls_url("")] {
        sink.publish(vec![publication(1, &format!("{place}/hook?a=b%20c&d"), message.clone())])
            .await;
        assert_eq!(collect(&mut outcomes, 1).await, [Outcome::Confirmed], "{place}");
    }
    app.received("/hook")
}

fn values(received: &Received, name: &str) -> Vec<String> {
    received
        .headers
        .get_all(name)
        .iter()
        .map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
        .collect()
}

#[tokio::test]
async fn headers_pass_as_they_came() {
    let message = Message::new("x")
        .with_header("delayed-id", "ü 100%/a")
        .with_header("delayed-attempt", "3")
        .with_header("Delayed-Confirm-Token", "t")
        .with_header("X-Twice", "1")
        .with_header("x-other", "tab\tand ü, ☃")
        .with_header("x-twice", "2")
        .with_header("authorization", "Bearer b")
        .with_header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .with_header("cookie", "a=1")
        .with_header("x-empty", "");
    for received in received(message).await {
        let expected: [(&str, &[&str]); 10] = [
            ("delayed-id", &["%C3%BC 100%/a"]),
            ("delayed-attempt", &["3"]),
            ("delayed-confirm-token", &["t"]),
            ("x-twice", &["1", "2"]),
            ("x-other", &["tab\tand ü, ☃"]),
            ("authorization", &["Bearer b"]),
            ("traceparent", &["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]),
            ("cookie", &["a=1"]),
            ("content-type", &["application/octet-stream"]),
            ("webhook-id", &["id-1"]),
        ];
        for (name, expected) in expected {
            assert_eq!(values(&received, name), expected, "{name}");
        }
        assert!(values(&received, "user-agent")[0].starts_with("Dwell/"));
        assert_eq!(received.query, "a=b%20c&d");
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let stamp: u64 = values(&received, "webhook-timestamp")[0].parse().unwrap();
        assert!((now_s - 600..=now_s).contains(&stamp), "{stamp} is not about {now_s}");
        // Nothing is signed without a secret.
        assert!(!received.headers.contains_key("webhook-signature"));
    }
}

#[tokio::test]
async fn what_acts_on_the_hop_or_is_dwells_own_is_dropped() {
    let mut message = Message::new("xyz")
        .with_header("content-type", "application/json")
        .with_header("user-agent", "mine");
    let dropped = [
        ("Host", "evil.example"),
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("connection", "close"),
        ("keep-alive", "timeout=1"),
        ("Expect", "100-continue"),
        ("te", "trailers"),
        ("trailer", "x-kept"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
        ("proxy-authorization", "Basic eA=="),
        ("webhook-id", "forged"),
        ("Webhook-Signature", "v1,forged"),
        ("webhook-timestamp", "1"),
        ("webhook-other", "forged"),
    ];
    for (name, value) in dropped {
        message = message.with_header(name, value);
    }
    let message = message.with_header("x-kept", "1");
    for received in received(message).await {
        assert_eq!(received.body, "xyz");
        for (name, value) in dropped {
            assert!(
                !values(&received, &name.to_lowercase()).contains(&value.to_owned()),
                "{name}: {:?}",
                received.headers
            );
        }
        for (name, expected) in [
            ("content-type", "application/json"),
            ("user-agent", "mine"),
            ("x-kept", "1"),
            ("webhook-id", "id-1"),
        ] {
            assert_eq!(values(&received, name), [expected], "{name}");
        }
        assert!(values(&received, "host")[0].starts_with("127.0.0.1:"));
        assert!(
            ["webhook-signature", "webhook-other"]
                .iter()
                .all(|name| !received.headers.contains_key(*name))
        );
    }
}

#[tokio::test]
async fn bodies_pass_byte_for_byte() {
    let every = Bytes::from_iter((0..=255).cycle().take(70_000));
    for body in [
        Bytes::new(),
        Bytes::from_static(b"\0\r\n\r\nHTTP/1.1 "),
        every,
        Bytes::from(vec![b'x'; 8 << 20]),
    ] {
        for received in received(Message::new(body.clone())).await {
            assert!(received.body == body, "{} of {} bytes", received.body.len(), body.len());
            assert_eq!(values(&received, "content-length"), [body.len().to_string()]);
        }
    }
}

#[tokio::test]
async fn a_request_is_one_of_http() {
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let hearing = Arc::clone(&heads);
    let server = Raw::start(move |mut link: Link| {
        let heads = Arc::clone(&hearing);
        async move {
            while let Some(request) = link.request().await {
                assert!(request.body.is_empty());
                heads.lock().push(request.head);
                link.say("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let (sink, mut outcomes) = open(local()).await;
    // Dead letters have no id: each request gets one.
    let anonymous = |token| Publication {
        dedupe_id: String::new(),
        ..publication(token, &server.url("/ü?ü"), Message::new(""))
    };
    sink.publish(vec![anonymous(1), anonymous(2)]).await;
    assert_eq!(collect(&mut outcomes, 2).await, [Outcome::Confirmed, Outcome::Confirmed]);
    let ids: Vec<_> = heads
        .lock()
        .iter()
        .map(|head| head.lines().find(|line| line.starts_with("webhook-id: ")).unwrap().to_owned())
        .collect();
    assert!(
        ids.len() == 2
            && ids[0] != ids[1]
            && ids.iter().all(|id| id.len() == "webhook-id: ".len() + 32),
        "{ids:?}"
    );
    let head = heads.lock().pop().unwrap();
    let mut lines: Vec<_> = head.trim_end().lines().map(str::to_owned).collect();
    assert_eq!(lines.remove(0), "POST /%C3%BC?%C3%BC HTTP/1.1");
    let names: Vec<_> = lines.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        names,
        ["content-type", "user-agent", "content-length", "webhook-timestamp", "webhook-id", "host"],
        "{head}"
    );
    assert!(lines.contains(&"content-length: 0".to_owned()), "{head}");
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_invalid_and_not_sent() {
    let app = App::start().await;
    app.answer("/", Answer::status(202));
    let (sink, mut outcomes) = open(local()).await;
    let mut bytes = Message::new("x");
    bytes.headers.push("x", Value::Bytes(b"\xff".as_slice().into()));
    let mut table = Message::new("x");
    table.headers.push("x", Value::Table(vec![]));
    let wrong = [
        ("two", "lines\r\nx: y"),
        ("null", "\0"),
        ("a b", "x"),
        ("a:b", "x"),
        ("", "x"),
        ("ü", "x"),
        ("a\r\nb", "x"),
    ];
    let mut messages: Vec<_> =
        wrong.map(|(name, value)| Message::new("x").with_header(name, value)).into();
    messages.extend([bytes, table]);
    let count = messages.len();
    sink.publish(
        (0..)
            .zip(messages)
            .map(|(token, message)| publication(token, &app.url("/"), message))
            .collect(),
    )
    .await;
    for (token, outcome) in collect(&mut outcomes, count).await.into_iter().enumerate() {
        assert!(
            matches!(&outcome, Outcome::Invalid(why) if why.starts_with("header `")),
            "{token}: {outcome:?}"
        );
    }
    assert_eq!(app.received("/").len(), 0);
}
