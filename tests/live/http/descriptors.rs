//! Consumers that wait do not take the file descriptors that Dwell itself needs.

use std::os::unix::fs::PermissionsExt;

use dwell_testkit::servers::{DwellServer, RedisOptions, RedisServer};
use futures_util::future::join_all;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::commands::fixture::program;
use crate::support::{redis_link, wait_until};

/// The limit of open files.
const FILES: usize = 256;
/// More than the connections that are left to a second peer.
const OTHER_CONSUMERS: usize = 50;
const JSON: &str = "content-type: application/json\r\n";

/// Sends a call from this address, and leaves its answer on the connection.
async fn ask(from: &str, port: u16, line: &str, body: &str) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(format!("{from}:0").parse().unwrap())?;
    let mut link = socket.connect(([127, 0, 0, 1], port).into()).await?;
    let head = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{JSON}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    link.write_all(head.as_bytes()).await?;
    Ok(link)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_consumers_leave_descriptors_for_redis_and_for_others() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let limited = folder.path().join("dwell");
    std::fs::write(
        &limited,
        format!("#!/bin/sh\nulimit -n {FILES}\nexec '{}' \"$@\"\n", program().display()),
    )
    .unwrap();
    std::fs::set_permissions(&limited, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = format!("[redis]\nurls = [\"{}\"]\n[queues.emails]\n", redis.url());
    let dwell = DwellServer::start(limited, &settings).await.unwrap();
    let mut links = Vec::new();
    for _ in 0..FILES + 100 {
        links.push(
            ask("127.0.0.1", dwell.http_port(), "POST /v1/queues/emails/pop", r#"{"wait":"60s"}"#)
                .await,
        );
    }
    // A peer has three quarters of the connections at most, and those are fewer than the files.
    // Consumers of another one wait at all the others.
    for _ in 0..OTHER_CONSUMERS {
        links.push(
            ask("127.0.0.3", dwell.http_port(), "POST /v1/queues/emails/pop", r#"{"wait":"60s"}"#)
                .await,
        );
    }
    let from = async |host: &str, line: &str, body: &str| {
        let mut answer = String::new();
        let mut link = ask(host, dwell.http_port(), line, body).await.ok()?;
        link.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    };
    let other = async |line: &str, body: &str| from("127.0.0.2", line, body).await;
    // Long before a wait is over.
    let waiting = wait_until("the waiting pops", async || {
        let answer = other("GET /v1/queues/emails", "").await?;
        let queue: serde_json::Value =
            serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        queue["waiting"].as_u64().filter(|waiting| *waiting > 0)
    })
    .await;
    assert!(waiting < FILES as u64 / 2, "{waiting} pops wait");

    // Nothing is answered that a consumer in a loop would ask again at once.
    wait_until("a pop beyond all places is refused", async || {
        let pops =
            (0..20).map(|_| from("127.0.0.1", "POST /v1/queues/emails/pop", r#"{"wait":"60s"}"#));
        let refused = ["HTTP/1.1 503", "retry-after: 1", "connection: close", r#""memory""#];
        let answers: Vec<String> = join_all(pops).await.into_iter().flatten().collect();
        answers.iter().any(|answer| refused.iter().all(|part| answer.contains(part))).then_some(())
    })
    .await;

    // Producers on the host of the consumers, as those of a sidecar are.
    let job = json!({"queue": "emails", "for": "1h", "body": "x"}).to_string();
    let own = async || {
        let stored = from("127.0.0.1", "POST /v1/jobs", &job).await;
        stored.filter(|answer| answer.starts_with("HTTP/1.1 201"))
    };
    wait_until("the pops beyond the share are answered", async || own().await).await;
    for count in 0..20 {
        assert!(own().await.is_some(), "{count} jobs were stored before");
    }

    let mut link = redis_link(redis.url()).await;
    for kind in ["normal", "pubsub"] {
        let _: redis::RedisResult<()> =
            redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind).query_async(&mut link).await;
    }
    let job = json!({"id": "a", "queue": "emails", "for": 0, "body": "x"}).to_string();
    wait_until("a job is stored", async || {
        other("POST /v1/jobs", &job).await.filter(|answer| answer.starts_with("HTTP/1.1 20"))
    })
    .await;
    // The cut may have ended the pops that waited, as a Redis that is away does.
    wait_until("a consumer has it", async || {
        let popped = other("POST /v1/queues/emails/pop", "{}").await?;
        let shown = other("GET /v1/jobs/a", "").await?;
        (popped.contains(r#""id":"a""#) || shown.contains(r#""state":"reserved""#)).then_some(())
    })
    .await;
    assert!(dwell.get("/readyz").await.unwrap().starts_with("HTTP/1.1 200"));
    drop(links);
}
