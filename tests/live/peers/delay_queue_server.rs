//! The calls of clients of ouqiang/delay-queue, with Dwell in its place: those of its README and of
//! its PHP client (DelayQueue.php), byte for byte, and the older form with a single URL.
//!
//! Where `DWELL_DELAY_QUEUE` is the URL of a delay-queue, its cases run on that too.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::fixture::now_ms;
use super::listeners::{Listeners, Reply, call};
use crate::support::wait_until;

/// The headers of the PHP client.
const HEADERS: &str =
    "user-agent: Guzzle/5.3.1 curl/7.88.1 PHP/8.2.20\r\ncontent-type: application/json\r\n";
const SETTINGS: &str = "[queues.\"order*\"]\n[queues.\"other*\"]\n";

/// A server that speaks the protocol.
struct Peer {
    server: String,
    /// Distinguishes the jobs and topics of this run.
    run: String,
}

impl Peer {
    fn new(server: &str) -> Peer {
        Peer { server: server.to_owned(), run: format!("{:06x}", rand::random::<u32>() >> 8) }
    }

    fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.run)
    }

    async fn post(&self, path: &str, body: &str) -> Reply {
        let reply = call(&self.server, &format!("POST {path}"), HEADERS, body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
        reply
    }

    /// `code` and `data` of an answer; `message` must be text.
    async fn ask(&self, path: &str, body: &str) -> (Value, Value) {
        let answer = self.post(path, body).await.json();
        assert!(answer["message"].is_string(), "{path} {body}: {answer}");
        (answer["code"].clone(), answer["data"].clone())
    }

    async fn done(&self, path: &str, body: &str) -> Value {
        let (code, data) = self.ask(path, body).await;
        assert_eq!(code, 0, "{path} {body}");
        data
    }
}

/// The call of the PHP client for a job with a class name, and its answer.
async fn php_client(peer: &Peer) {
    let (topic, id) = (peer.name("order"), peer.name("56352695584"));
    let inner =
        r#"{"uid":10829378,"created":1498657365,"className":"\\DelayQueue\\Tests\\Handler"}"#;
    let escaped = serde_json::to_string(inner).unwrap();
    let begun = Instant::now();
    let push = format!(r#"{{"topic":"{topic}","id":"{id}","delay":1,"ttr":60,"body":{escaped}}}"#);
    let from_s = now_ms() / 1000;
    assert_eq!(peer.done("/push", &push).await, Value::Null);
    let to_s = now_ms() / 1000 + 2;
    let got = peer.done("/get", &format!(r#"{{"id":"{id}"}}"#)).await;
    let due_s = got["delay"].as_i64().unwrap();
    assert!((from_s..=to_s).contains(&due_s), "{got}, from {from_s} to {to_s}");
    let wanted = json!({"topic": topic, "id": id, "delay": got["delay"], "ttr": 60, "body": inner});
    assert_eq!(got, wanted);
    let popped = peer.done("/pop", &format!(r#"{{"topic":"{topic}"}}"#)).await;
    assert_eq!(popped, json!({"id": id, "body": inner}));
    // A pop waits for three minutes where no job comes.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(
        peer.done("/get", &format!(r#"{{"id":"{id}"}}"#)).await,
        wanted,
        "the same while it is reserved"
    );
    for path in ["/finish", "/finish", "/delete"] {
        assert_eq!(peer.done(path, &format!(r#"{{"id":"{id}"}}"#)).await, Value::Null, "{path}");
    }
    assert_eq!(peer.done("/get", &format!(r#"{{"id":"{id}"}}"#)).await, Value::Null);
}

/// A job that is not finished within its TTR comes again, each time; a push of its id replaces it.
async fn again(peer: &Peer) {
    let (topic, id) = (peer.name("order-again"), peer.name("again"));
    peer.done(
        "/push",
        &format!(r#"{{"ToPic":" {topic} ","ID":" {id} ","DELAY":1,"TTR":1,"Body":" <b>é & "}}"#),
    )
    .await;
    for _ in 0..3 {
        // Topics in the order of their priority.
        let popped =
            peer.done("/pop", &format!(r#"{{"topic":"{},{topic}"}}"#, peer.name("other"))).await;
        assert_eq!(popped, json!({"id": id, "body": "<b>é &"}));
    }
    peer.done(
        "/push",
        &format!(r#"{{"topic":"{topic}","id":"{id}","delay":1,"ttr":60,"body":"new"}}"#),
    )
    .await;
    let popped = wait_until("the new body", async || {
        let popped = peer.done("/pop", &format!(r#"{{"topic":"{topic}"}}"#)).await;
        (popped["body"] == "new").then_some(popped)
    })
    .await;
    assert_eq!(popped["id"], id);
    peer.done("/delete", &format!(r#"{{"id":"{id}"}}"#)).await;
}

/// A job that waits is deleted; unknown ids are no error.
async fn deleted(peer: &Peer) {
    let id = peer.name("deleted");
    peer.done(
        "/push",
        &format!(
            r#"{{"topic":"{}","id":"{id}","delay":2147483,"ttr":86400,"more":1}}"#,
            peer.name("order-deleted")
        ),
    )
    .await;
    assert_eq!(
        peer.done("/get", &format!(r#"{{"id":"{id}"}}"#)).await["body"],
        "",
        "a job without a body"
    );
    for _ in 0..2 {
        peer.done("/delete", &format!(r#"{{"id":" {id} "}}"#)).await;
    }
    assert_eq!(peer.done("/get", &format!(r#"{{"id":"{id}"}}"#)).await, Value::Null);
}

/// The calls that are refused with code 1.
async fn refused(peer: &Peer) {
    let topic = peer.name("order-refused");
    let job = |changed: &str, value: &str| {
        let fields = [
            ("topic", format!("\"{topic}\"")),
            ("id", "\"refused\"".to_owned()),
            ("delay", "1".to_owned()),
            ("ttr", "1".to_owned()),
        ];
        let field = |(name, usual): &(&str, String)| {
            format!("\"{name}\":{}", if *name == changed { value } else { usual })
        };
        format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
    };
    for (name, value) in [
        ("id", "\" \""),
        ("id", "2"),
        ("topic", "\"\""),
        ("topic", "null"),
        ("delay", "0"),
        ("delay", "-1"),
        ("delay", "2147483649"),
        ("delay", "1.5"),
        ("delay", "1.0"),
        ("delay", "\"1\""),
        ("ttr", "0"),
        ("ttr", "86401"),
    ] {
        assert_eq!(
            peer.ask("/push", &job(name, value)).await,
            (json!(1), Value::Null),
            "{name} {value}"
        );
    }
    for body in ["", "{", "[]", "null", "{} {}"] {
        for path in ["/push", "/pop", "/finish", "/delete", "/get"] {
            assert_eq!(peer.ask(path, body).await, (json!(1), Value::Null), "{path} {body}");
        }
    }
    assert_eq!(call(&peer.server, "POST /other", HEADERS, b"{}").await.status, 404);
    let reply = call(&peer.server, "GET /push", "", b"").await;
    assert_eq!((reply.status, &reply.json()["code"]), (200, &json!(1)), "any method");
}

async fn cases(peer: &Peer) {
    tokio::join!(php_client(peer), again(peer), deleted(peer), refused(peer));
}

/// The single URL of before.
async fn classic(peer: &Peer) {
    let (topic, id) = (peer.name("orderclose"), peer.name("classic"));
    let ask = async |body: Value| {
        let answer = peer.post("/", &body.to_string()).await.json();
        assert!(answer["error"].is_string() && answer.as_object().unwrap().len() == 4, "{answer}");
        answer
    };
    let done =
        |id: &str, value: &str| json!({"success": true, "error": "", "id": id, "value": value});
    let add = json!({"command": "add", "topic": topic, "id": id, "delay": 0, "TTR": 60, "body": {"b": 1, "a": " x "}});
    assert_eq!(ask(add).await, done(&id, ""));
    assert_eq!(
        ask(json!({"command": "pop", "topic": topic})).await,
        done(&id, "{\"a\":\" x \",\"b\":1}")
    );
    for command in ["finish", "delete"] {
        assert_eq!(ask(json!({"command": command, "id": id})).await, done(&id, ""));
    }
    for refused in [
        json!({"command": "get", "id": id}),
        json!({"id": id}),
        json!({"command": "add", "topic": topic}),
        json!({"command": "pop"}),
    ] {
        assert_eq!(ask(refused.clone()).await["success"], false, "{refused}");
    }
}

/// The features that delay-queue does not have: topics that are not declared, bounds of the
/// settings.
async fn bounds(peer: &Peer) {
    for body in [
        r#"{"topic":"undeclared","id":"a","delay":1,"ttr":1}"#,
        r#"{"topic":"order:1","id":"a","delay":1,"ttr":1}"#,
        r#"{"topic":"order","id":"a","delay":2147483648,"ttr":1}"#,
        r#"{"topic":"order","id":"a","delay":1,"ttr":86400}"#,
        "{\"topic\":\"order\",\"id\":\"a\\u0007b\",\"delay\":1,\"ttr\":1}",
    ] {
        assert_eq!(peer.ask("/push", body).await.0, 1, "{body}");
    }
    for topic in ["undeclared", "order,undeclared", " , "] {
        assert_eq!(peer.ask("/pop", &json!({ "topic": topic }).to_string()).await.0, 1, "{topic}");
    }
    let evil = "host: evil.example\r\n";
    assert_eq!(call(&peer.server, "POST /pop", evil, b"{}").await.status, 421);
}

/// A recurring schedule has the id: the job is not stored, and the client hears so.
async fn ids_of_schedules(peer: &Peer, http: &str) {
    let json = "content-type: application/json\r\n";
    let schedule = br#"{"schedule":"@yearly","queue":"order"}"#;
    let stored = call(http, "PUT /v1/schedules/recurs", json, schedule).await;
    assert_eq!(stored.status, 201, "{stored:?}");
    let push = r#"{"topic":"order","id":"recurs","delay":1,"ttr":1}"#;
    assert_eq!(peer.ask("/push", push).await, (json!(1), Value::Null));
    assert_eq!(peer.done("/delete", r#"{"id":"recurs"}"#).await, Value::Null);
    assert_eq!(call(http, "GET /v1/schedules/recurs", "", b"").await.status, 200, "left alone");
}

/// A consumer that goes away while it waits gets nothing.
async fn clients_that_go_away(peer: &Peer) {
    let (topic, id) = (peer.name("order-goes-away"), peer.name("goes-away"));
    let address = peer.server.strip_prefix("http://").unwrap();
    let mut link = TcpStream::connect(address).await.unwrap();
    let body = json!({ "topic": topic }).to_string();
    let head = format!(
        "POST /pop HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    link.write_all(head.as_bytes()).await.unwrap();
    drop(link);
    peer.done(
        "/push",
        &format!(r#"{{"topic":"{topic}","id":"{id}","delay":1,"ttr":3600,"body":"x"}}"#),
    )
    .await;
    assert_eq!(peer.done("/pop", &body).await["id"], id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_delay_queue_are_answered() {
    let dwell = Listeners::start(&format!("[limits]\nmax_ttr = \"23h\"\n{SETTINGS}")).await;
    let peer = Peer::new(&dwell.delay_queue);
    bounds(&peer).await;
    let dwell = Listeners::start(&format!("[limits]\nmax_ttr = \"1d\"\n{SETTINGS}")).await;
    let peer = Peer::new(&dwell.delay_queue);
    cases(&peer).await;
    tokio::join!(classic(&peer), clients_that_go_away(&peer), ids_of_schedules(&peer, &dwell.http));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_stands_in_the_url() {
    let token = "[http.tokens.worker]\ntoken = \"of-the-worker\"\nmay = [\"consume\"]\nqueues = [\"order\"]\n";
    let dwell = Listeners::start(&format!("{SETTINGS}{token}")).await;
    let server = &dwell.delay_queue;
    let push = br#"{"topic":"order","id":"a","delay":1,"ttr":1}"#;
    for (line, body, status) in [
        ("POST /push", &push[..], 401),
        ("POST /push?token=wrong", push, 401),
        ("POST /push?token=of-the-worker", push, 403),
        ("POST /get?token=of-the-worker", br#"{"id":"unknown"}"#, 200),
        ("POST /pop?token=of-the-worker", br#"{"topic":"other"}"#, 403),
        ("POST /finish?token=of-the-worker", br#"{"id":"unknown"}"#, 200),
        ("POST /", br#"{"command":"finish","id":"unknown"}"#, 401),
        ("POST /?token=of-the-worker", br#"{"command":"finish","id":"unknown"}"#, 200),
    ] {
        let reply = call(server, line, HEADERS, body).await;
        assert_eq!(reply.status, status, "{line}: {reply:?}");
    }
    assert!(!dwell.log().contains("of-the-worker"), "no token is logged");
}

/// The oracle: so that the cases say of delay-queue what is true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_are_those_of_delay_queue() {
    let Ok(server) = std::env::var("DWELL_DELAY_QUEUE") else {
        eprintln!("skipped: DWELL_DELAY_QUEUE names no delay-queue");
        return;
    };
    cases(&Peer::new(&server)).await;
}
