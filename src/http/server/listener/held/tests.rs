//! Probes of a peer that has as many connections as it may.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::super::Listener;
use super::super::conversation::HEAD_TIMEOUT;
use super::super::slot::STALL_TIMEOUT;
use crate::clock;

/// Less than the time after which a connection that sends no request ends by itself.
const DEADLINE: Duration = Duration::from_secs(HEAD_TIMEOUT.as_secs() / 2);

/// A listener for probes, whose `/busy` answers once it is told to.
struct Probes {
    address: SocketAddr,
    busy: Arc<Notify>,
    done: Arc<Notify>,
}

impl Probes {
    /// Serves at most so many connections of a peer, until the runtime ends.
    async fn start(most_of_peer: usize) -> Probes {
        let listener = Listener::bind("probes.listen", "127.0.0.1:0").await.unwrap().for_probes();
        let listener = Listener { most_of_peer, ..listener };
        let address = listener.address();
        let [busy, done] = [(); 2].map(|()| Arc::new(Notify::new()));
        let (begins, ends) = (busy.clone(), done.clone());
        let works = move || async move {
            begins.notify_one();
            ends.notified().await;
        };
        let router =
            Router::new().route("/busy", get(works)).route("/livez", get(async || "alive"));
        tokio::spawn(listener.serve(router, CancellationToken::new()));
        Probes { address, busy, done }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Asks once, on a connection of its own.
    async fn send(&self, path: &str) -> TcpStream {
        let mut link = self.connect().await;
        let head = format!("GET {path} HTTP/1.1\r\nhost: dwell\r\nconnection: close\r\n\r\n");
        link.write_all(head.as_bytes()).await.unwrap();
        link
    }

    /// A connection that is busy until [`Probes::done`] is told.
    async fn work(&self) -> TcpStream {
        let link = self.send("/busy").await;
        clock::timeout(DEADLINE, self.busy.notified()).await.expect("a call in time");
        link
    }
}

/// The bytes that come until the connection ends or is reset.
async fn read(mut link: TcpStream) -> String {
    let mut answer = Vec::new();
    let reading = link.read_to_end(&mut answer);
    let _ = clock::timeout(DEADLINE, reading).await.expect("an end in time");
    String::from_utf8(answer).unwrap()
}

async fn assert_answered(link: TcpStream) {
    let answer = read(link).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_probe_waits_for_a_busy_connection_of_its_peer() {
    let probes = Probes::start(1).await;
    let working = probes.work().await;
    let (first, second, third) =
        (probes.send("/livez").await, probes.send("/livez").await, probes.send("/livez").await);
    // There is room for two: the end of the first one shows that the last one has come.
    assert_eq!(read(first).await, "");
    probes.done.notify_one();
    for link in [second, third, working] {
        assert_answered(link).await;
    }
}

/// Three probes at once are answered beside this connection and a busy one, which are all that
/// their peer may have.
async fn assert_answered_beside(probes: Probes, other: TcpStream) {
    let working = probes.work().await;
    let (first, second, third) =
        (probes.send("/livez").await, probes.send("/livez").await, probes.send("/livez").await);
    for link in [first, second, third] {
        assert_answered(link).await;
    }
    probes.done.notify_one();
    assert_answered(working).await;
    drop(other);
}

#[tokio::test]
async fn probes_are_answered_beside_a_connection_that_is_idle() {
    let probes = Probes::start(2).await;
    let mut idle = probes.connect().await;
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: dwell\r\n\r\n").await.unwrap();
    let mut begun = [0; 12];
    let reading = clock::timeout(DEADLINE, idle.read_exact(&mut begun));
    reading.await.expect("an answer in time").unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    assert_answered_beside(probes, idle).await;
}

#[tokio::test]
async fn probes_are_answered_beside_a_connection_that_is_new() {
    let probes = Probes::start(2).await;
    let new = probes.connect().await;
    assert_answered_beside(probes, new).await;
}

#[tokio::test]
async fn a_probe_is_answered_beside_a_connection_that_sends_a_byte_now_and_then() {
    let probes = Probes::start(2).await;
    let mut drips = probes.connect().await;
    let dripping = tokio::spawn(async move {
        while drips.write_all(b"G").await.is_ok() {
            clock::sleep(STALL_TIMEOUT / 5).await;
        }
    });
    let working = probes.work().await;
    assert_answered(probes.send("/livez").await).await;
    probes.done.notify_one();
    assert_answered(working).await;
    dripping.abort();
}

#[tokio::test]
async fn probes_are_answered_beside_a_crowd_of_connections_that_never_ask() {
    let probes = Probes::start(4).await;
    let mut crowd = Vec::new();
    for _ in 0..16 {
        crowd.push(probes.connect().await);
        assert_answered(probes.send("/livez").await).await;
    }
}
