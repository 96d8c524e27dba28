//! Memory stays small whatever callers do: a client that does not read an answer, or does not end a
//! body, holds a share of the common memory, and others are told to try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use crate::peers::listeners::{Listeners, Reply, call, try_call};
use crate::support::{DEADLINE, wait_until};

const MAX_RESIDENT_MIB: u64 = 256;
const HEADERS: &str = "host: localhost\r\ncontent-type: application/json\r\n";

/// A connection that takes few bytes at a time.
async fn connect(server: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(server.strip_prefix("http://").unwrap().parse().unwrap()).await.unwrap()
}

/// Jobs whose bodies take six times their size as JSON.
async fn add_escaped(server: &Listeners, count: usize, size: usize) {
    let body = STANDARD.encode(vec![1; size]);
    let jobs: Vec<Value> =
        (0..count).map(|_| json!({"queue": "n.q", "for": 0, "body_base64": body})).collect();
    for jobs in jobs.chunks((4 << 20) / (size + 200)) {
        let stored =
            call(&server.http, "POST /v1/jobs", HEADERS, json!(jobs).to_string().as_bytes()).await;
        assert_eq!(stored.status, 200);
        let stored = stored.json();
        let other = stored.as_array().unwrap().iter().find(|job| job["state"] != "ready");
        assert_eq!(other, None);
    }
}

/// The status of the answer on this connection, whose rest is read a little at a time.
async fn trickle(line: &str, mut link: TcpStream) -> (u16, tokio::task::JoinHandle<()>) {
    let mut head = [0; 12];
    let read = timeout(DEADLINE, link.read_exact(&mut head)).await.expect("a status");
    read.unwrap_or_else(|error| panic!("{line}: {error}"));
    let status = std::str::from_utf8(&head[9..]).unwrap().parse().unwrap();
    let rest = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_millis(100));
        while link.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {
            ticks.tick().await;
        }
    });
    (status, rest)
}

/// The most memory that the sidecar has had, MiB, and an ordinary call that it answers.
async fn survived(server: &Listeners, what: &str) -> u64 {
    let peak = server.peak() >> 20;
    println!("{what}: at most {peak} MiB");
    assert!(peak < MAX_RESIDENT_MIB, "{what}: {peak} MiB");
    // As a producer does that is told to try again.
    let stored = wait_until("an ordinary call is answered", async || {
        let body = br#"{"queue":"n.q","for":"1h","body":"x"}"#;
        let reply = small_call(server, "POST /v1/jobs", body).await;
        let is_refused = reply.status == 503 && reply.head.contains("\r\nretry-after: ");
        (!is_refused).then_some(reply)
    })
    .await;
    assert_eq!(stored.status, 201, "{what}: {stored:?}");
    peak
}

/// Makes a call, again where its connection loses its place: all connections of these tests are of
/// one address.
async fn small_call(server: &Listeners, line: &str, body: &[u8]) -> Reply {
    wait_until("an answer", async || try_call(&server.http, line, HEADERS, body).await).await
}

/// Makes a call so many times at once, whose answers nobody reads to their end.
async fn survives_unread(
    server: &Listeners,
    (listener, line, body): (&str, &str, &str),
    count: usize,
) {
    let asks = (0..count).map(async |_| {
        let mut link = connect(listener).await;
        let head =
            format!("{line} HTTP/1.1\r\n{HEADERS}content-length: {}\r\n\r\n{body}", body.len());
        link.write_all(head.as_bytes()).await.unwrap();
        trickle(line, link).await
    });
    let (statuses, rests): (Vec<u16>, Vec<_>) = join_all(asks).await.into_iter().unzip();
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)) && statuses.contains(&200),
        "{line}: {statuses:?}"
    );
    survived(server, line).await;
    rests.into_iter().for_each(|rest| rest.abort());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_share_a_bounded_memory() {
    let server = Listeners::start("[queues.\"n.q\"]\n").await;
    add_escaped(&server, 1100, 8 << 10).await;
    for line in ["GET /v1/queues/n.q/peek?max=1000", "POST /v1/queues/n.q/pop"] {
        let body = if line.starts_with("POST") { r#"{"max":1000,"ttr":"1s"}"# } else { "" };
        survives_unread(&server, (&server.http, line, body), 60).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_made_and_wait_share_that_memory() {
    let server = Listeners::start("[queues.\"n.q\"]\n").await;
    add_escaped(&server, 80, 900 << 10).await;
    let body = STANDARD.encode(vec![1; 900 << 10]);
    let job = json!({"id": "one", "queue": "n.q", "for": "1h", "body_base64": body}).to_string();
    assert_eq!(call(&server.http, "POST /v1/jobs", HEADERS, job.as_bytes()).await.status, 201);
    let calls = [
        (&server.http, "GET /v1/jobs/one?body=1", String::new()),
        (&server.delay_queue, "POST /get", json!({"id": "one"}).to_string()),
        (&server.delay_queue, "POST /pop", json!({"topic": "n.q"}).to_string()),
    ];
    for (listener, line, body) in calls {
        // Together more than twice the memory that the process may have.
        survives_unread(&server, (listener, line, &body), 100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_do_not_end_leave_room_to_pops_and_small_calls() {
    let server = Listeners::start("[queues.\"n.q\"]\n").await;
    let mut links = Vec::new();
    for _ in 0..4 {
        let mut link = connect(&server.lmstfy).await;
        let head =
            format!("PUT /api/n/q/bulk HTTP/1.1\r\n{HEADERS}content-length: {}\r\n\r\n", 16 << 20);
        link.write_all(head.as_bytes()).await.unwrap();
        // Without its end, as far as it is taken.
        let _ = timeout(Duration::from_secs(1), link.write_all(&vec![b'1'; 15 << 20])).await;
        links.push(link);
    }
    let asked = std::time::Instant::now();
    for _ in 0..20 {
        let job = br#"{"queue":"n.q","for":0,"body":"x"}"#;
        let stored = small_call(&server, "POST /v1/jobs", job).await;
        assert_eq!(stored.status, 201, "{stored:?}");
        let popped = small_call(&server, "POST /v1/queues/n.q/pop", b"{}").await;
        assert_eq!(popped.status, 200, "{popped:?}");
    }
    // A large body of another client takes the place of one that stands still.
    let text = "x".repeat(900 << 10);
    let jobs: Vec<Value> =
        (0..8).map(|_| json!({"queue": "n.q", "for": "1h", "body": text})).collect();
    let stored =
        call(&server.http, "POST /v1/jobs", HEADERS, json!(jobs).to_string().as_bytes()).await;
    println!(
        "20 small calls and pops and a large body beside 4 that stand still: {:?}",
        asked.elapsed()
    );
    assert_eq!(stored.status, 200, "{stored:?}");
    drop(links);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_bodies_below_64_kib_that_do_not_end_leave_room_too() {
    let server = Listeners::start("[queues.\"n.q\"]\n").await;
    let asked = format!("POST /v1/jobs HTTP/1.1\r\n{HEADERS}content-length: 60100\r\n\r\n")
        + &"1".repeat(60_000);
    // Together more than the memory of all calls: each byte counts as three.
    let (refused, mut senders) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..450 {
        let (http, asked, refused) = (server.http.clone(), asked.clone(), refused.clone());
        senders.spawn(async move {
            loop {
                let mut link = connect(&http).await;
                let _ = link.write_all(asked.as_bytes()).await;
                let _ = link.read(&mut [0]).await;
                refused.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while refused.load(Ordering::Relaxed) < 600 {
        let job = br#"{"queue":"n.q","for":0,"body":"x"}"#;
        let stored = small_call(&server, "POST /v1/jobs", job).await;
        assert_eq!(stored.status, 201, "{stored:?}");
        let popped = small_call(&server, "POST /v1/queues/n.q/pop", b"{}").await;
        assert_eq!(popped.status, 200, "{popped:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_that_nobody_pays_for_hold_up_no_call() {
    let server = Listeners::start(
        "[queues.\"n.*\"]\n[http.tokens.shop]\ntoken = \"token-of-shop\"\nmay = [\"schedule\"]\n",
    )
    .await;
    let asks = (0..1500).map(async |number| {
        let line = format!("GET /api/n/q{number}/size");
        call(&server.lmstfy, &line, "host: localhost\r\n", b"").await.status
    });
    let token = "authorization: Bearer token-of-shop\r\n";
    let (headers, job) = (format!("{HEADERS}{token}"), br#"{"queue":"n.q","for":"1h","body":"x"}"#);
    let (statuses, stored) =
        tokio::join!(join_all(asks), call(&server.http, "POST /v1/jobs", &headers, job));
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(
        statuses.iter().all(|status| [200, 429].contains(status)) && refused > 0,
        "{statuses:?}"
    );
    assert_eq!(stored.status, 201, "{stored:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_do_not_end_share_a_bounded_memory() {
    let server = Listeners::start("[queues.\"n.q\"]\n").await;
    let part = vec![b'1'; 1 << 20];
    for (listener, line, length) in
        [(&server.lmstfy, "PUT /api/n/q/bulk", 60), (&server.http, "POST /v1/jobs", 8)]
    {
        let asks = (0..30).map(async |_| {
            let mut link = connect(listener).await;
            let head =
                format!("{line} HTTP/1.1\r\n{HEADERS}content-length: {}\r\n\r\n", length << 20);
            link.write_all(head.as_bytes()).await.unwrap();
            // The last byte is missing. A client that is refused before stops.
            let (mut read, mut write) = link.split();
            let writes = async {
                for _ in 0..length - 1 {
                    if write.write_all(&part).await.is_err() {
                        break;
                    }
                }
            };
            let mut status = [0; 12];
            let (_, answered) =
                tokio::join!(writes, timeout(DEADLINE * 3, read.read_exact(&mut status)));
            answered
                .expect("an answer")
                .map_or(0, |_| std::str::from_utf8(&status[9..]).unwrap().parse().unwrap())
        });
        let statuses: Vec<u16> = join_all(asks).await;
        assert!(
            statuses.iter().all(|status| [408, 413, 503, 400].contains(status)),
            "{line}: {statuses:?}"
        );
        survived(&server, line).await;
    }
}

/// Connections, each of which has sent these bytes as far as they were taken.
async fn flood(server: &str, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut links = Vec::with_capacity(count);
    for _ in 0..count {
        let link = connect(server).await;
        let _ = link.writable().await;
        // A connection that is not read is full.
        let _ = link.try_write(bytes);
        links.push(link);
    }
    links
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_wait_for_their_clients_share_few_buffers() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let unfinished = format!("GET /v1/jobs HTTP/1.1\r\n{HEADERS}x: {}", "y".repeat(15_000));
    let unread = format!("GET /openapi.json HTTP/1.1\r\n{HEADERS}\r\n").repeat(10);
    // More connections than buffers, whose calls wait for a body: others are not held up by them.
    let slow = format!("POST /v1/jobs HTTP/1.1\r\n{HEADERS}content-length: 99\r\n\r\n{{");
    for (what, bytes) in
        [("unfinished heads", unfinished), ("unread answers", unread), ("unfinished bodies", slow)]
    {
        let server = Listeners::start("[queues.\"n.q\"]\n").await;
        let before = server.peak() >> 20;
        let links = flood(&server.http, 2500, bytes.as_bytes()).await;
        let peak = survived(&server, what).await;
        // Each of them with buffers takes 30 KiB: 75 MiB.
        assert!(peak - before < 60, "{what}: from {before} to {peak} MiB");
        drop(links);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_text_with_very_many_values_is_refused() {
    let server = Listeners::start("[queues.\"n.q\"]\n").await;
    let headers: Vec<String> = (0..400_000).map(|number| format!("\"{number}\":1")).collect();
    let job = format!("{{\"queue\":\"n.q\",\"for\":0,\"headers\":{{{}}}}}", headers.join(","));
    let many = format!(
        "[{}]",
        vec![
            "{\"queue\":\"n.q\",\"for\":0,\"headers\":{\"a\":[".to_owned()
                + &"1,".repeat(20_000)
                + "1]}}";
            100
        ]
        .join(",")
    );
    let bulk = format!("[{}1]", "1,".repeat(8 << 20));
    for (listener, line, body) in [
        (&server.http, "POST /v1/jobs", job),
        (&server.http, "POST /v1/jobs", many),
        (&server.lmstfy, "PUT /api/n/q/bulk", bulk),
    ] {
        let refused = call(listener, line, HEADERS, body.as_bytes()).await;
        assert!([400, 413].contains(&refused.status), "{line}: {}", refused.status);
        survived(&server, line).await;
    }
}
