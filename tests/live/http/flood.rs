//! Clients that only hold connections: new requests are answered, running ones are not disturbed,
//! and memory stays small.

use std::time::{Duration, Instant};

use dwell_testkit::servers::{DwellServer, RedisOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::sidecar::Sidecar;
use crate::bridge::environment::Environment;
use crate::commands::fixture::Fixture;
use crate::support::wait_until;

/// More than the listener takes.
const CLIENTS: usize = 600;
/// The time for which a client of the flood tries to send its bytes: a client that is not read is
/// stuck.
const SEND_TIMEOUT: Duration = Duration::from_millis(50);

/// Opens this many connections and sends these bytes on each, as far as they are taken. Reads
/// nothing.
async fn flood(port: u16, bytes: &[u8]) -> Vec<TcpStream> {
    let mut links = Vec::new();
    for _ in 0..CLIENTS {
        let Ok(Ok(mut link)) = timeout(SEND_TIMEOUT, TcpStream::connect(("127.0.0.1", port))).await
        else {
            continue;
        };
        // A connection that is closed has sent enough.
        let _ = timeout(SEND_TIMEOUT, link.write_all(bytes)).await;
        links.push(link);
    }
    links
}

/// Asks by a connection of its own, up to three times, as kubelet does: the probe has the address of
/// the flood here, and the connections of an address may all be busy for a moment. On a busy machine
/// an answer may take longer than kubelet's second.
async fn ask(dwell: &DwellServer, path: &str) -> String {
    let mut answer = None;
    for _ in 0..3 {
        let asked = timeout(Duration::from_secs(10), dwell.get(path)).await;
        if let Ok(text) = asked.expect("an answer in time") {
            answer = Some(text);
            break;
        }
    }
    answer.expect("an answer")
}

async fn alive(dwell: &DwellServer) -> Duration {
    let asked = Instant::now();
    let answer = ask(dwell, "/livez").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    asked.elapsed()
}

/// Reads the metrics, as a scraper that asks again does: while the clients of the flood stand in line
/// for the memory that all answers share, an answer may be a 503 with `retry-after`.
async fn scrape(dwell: &DwellServer) {
    let begun = Instant::now();
    loop {
        let answer = ask(dwell, "/metrics").await;
        if answer.starts_with("HTTP/1.1 503") && begun.elapsed() < Duration::from_secs(60) {
            assert!(answer.contains("retry-after: 1"), "{answer}");
            continue;
        }
        assert!(answer.ends_with('\n'), "{} bytes: {answer:.600}", answer.len());
        return;
    }
}

/// The status of the answer to a request; `None` where its connection ends without one.
async fn status(address: &str, path: &str) -> Option<u16> {
    let mut link = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    link.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    link.read_to_string(&mut answer).await.ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

fn resident_mib(dwell: &DwellServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", dwell.pid().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Returns the memory that the flood cost.
async fn survives(test: &str, bytes: &[u8]) -> u64 {
    let env = Environment::new(test, RedisOptions::default(), "").await;
    let dwell = env.dwell().await;
    alive(&dwell).await;
    let before = resident_mib(&dwell);
    let links = flood(dwell.port(), bytes).await;
    let cost = resident_mib(&dwell).saturating_sub(before);
    println!("{} connections cost {cost} MiB", links.len());
    for _ in 0..5 {
        println!("/livez took {:?}", alive(&dwell).await);
    }
    scrape(&dwell).await;
    // All of them were open meanwhile.
    drop(links);
    cost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_read_their_answers_silence_no_probe() {
    let request = b"GET /metrics HTTP/1.1\r\nhost: dwell\r\n\r\n";
    assert!(survives("deaf-clients", &request.repeat(2000)).await < 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_never_end_silence_no_probe_and_cost_little() {
    let head =
        [b"GET /metrics HTTP/1.1\r\nhost: dwell\r\nx: ".as_slice(), &[b'x'; 400_000]].concat();
    assert!(survives("endless-heads", &head).await < 32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_are_slow_to_ask_silence_no_probe() {
    assert!(survives("slow-clients", b"GET /livez HTTP/1.1\r\nhost:").await < 32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_events_makes_no_room_for_others() {
    let fixture = Fixture::new().await;
    let sidecar = Sidecar::start(&fixture, "").await;
    let mut events = sidecar.events();
    let mut next = || events.next().expect("the stream goes on").0;
    assert_eq!(next(), "stats");
    let port = sidecar.address.rsplit(':').next().unwrap().parse().unwrap();
    let links = flood(port, b"GET /v1/stats HTTP/1.1").await;
    assert_eq!([next(), next(), next()], ["stats"; 3]);
    // A connection may lose its place to another one of the flood, which has the same address.
    wait_until("an answer", async || {
        (status(&sidecar.address, "/v1/stats").await == Some(200)).then_some(())
    })
    .await;
    drop(links);
}
