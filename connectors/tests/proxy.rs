//! The fault proxy, in front of an echo server.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(20);
/// The time that a test waits to establish that nothing arrives.
const SILENCE: Duration = Duration::from_millis(100);

/// An echo server, and what it received.
async fn echo() -> (String, tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (heard, hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut link, _)) = listener.accept().await {
            let heard = heard.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(size @ 1..) = link.read(&mut bytes).await {
                    let _ = heard.send(bytes[..size].to_vec());
                    link.write_all(&bytes[..size]).await.unwrap();
                }
            });
        }
    });
    (address, hears)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let mut link = TcpStream::connect(proxy.address()).await.unwrap();
    speak(&mut link, b"hello").await;
    link
}

/// Sends this, and expects it back.
async fn speak(link: &mut TcpStream, words: &[u8]) {
    link.write_all(words).await.unwrap();
    assert_eq!(hear(link, words.len()).await, words);
}

async fn hear(link: &mut TcpStream, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    tokio::time::timeout(TIMEOUT, link.read_exact(&mut bytes))
        .await
        .expect("an answer comes")
        .unwrap();
    bytes
}

async fn is_silent(link: &mut TcpStream) {
    assert!(tokio::time::timeout(SILENCE, link.read_u8()).await.is_err(), "something came");
}

async fn is_reset(link: &mut TcpStream) {
    let end = tokio::time::timeout(TIMEOUT, link.read_u8()).await.expect("the end comes");
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn the_last_words_of_both_sides_pass() {
    let proxy = Proxy::start(echo().await.0).await.unwrap();
    let mut link = connect(&proxy).await;
    let words = vec![7; 3 << 20];
    let (mut hearing, mut speaking) = link.split();
    let mut heard = Vec::new();
    let (said, all) = tokio::join!(
        async {
            speaking.write_all(&words).await.unwrap();
            speaking.shutdown().await
        },
        hearing.read_to_end(&mut heard)
    );
    said.unwrap();
    all.unwrap();
    assert!(heard == words);
    let deadline = Instant::now() + TIMEOUT;
    while proxy.open() > 0 {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_cut_resets_what_is_open_and_what_comes() {
    let proxy = Proxy::start(echo().await.0).await.unwrap();
    let mut link = connect(&proxy).await;
    proxy.cut();
    is_reset(&mut link).await;
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    is_reset(&mut refused).await;
    proxy.heal();
    connect(&proxy).await;
}

#[tokio::test]
async fn a_reset_spares_what_comes() {
    let proxy = Proxy::start(echo().await.0).await.unwrap();
    let mut link = connect(&proxy).await;
    proxy.reset();
    is_reset(&mut link).await;
    connect(&proxy).await;
}

#[tokio::test]
async fn what_stalls_comes_afterwards() {
    let (server, mut heard) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut link = connect(&proxy).await;
    heard.recv().await.unwrap();
    proxy.set(Direction::Up, Flow::Stall);
    proxy.set(Direction::Down, Flow::Stall);
    link.write_all(b"later").await.unwrap();
    let mut another = TcpStream::connect(proxy.address()).await.unwrap();
    another.write_all(b"too").await.unwrap();
    is_silent(&mut link).await;
    is_silent(&mut another).await;
    assert!(heard.try_recv().is_err());
    proxy.heal();
    assert_eq!(hear(&mut link, 5).await, b"later");
    assert_eq!(hear(&mut another, 3).await, b"too");
}

#[tokio::test]
async fn dropped_answers_never_come_though_the_server_heard() {
    let (server, mut heard) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let (mut link, mut quiet) = (connect(&proxy).await, connect(&proxy).await);
    for _ in 0..2 {
        assert_eq!(heard.recv().await.unwrap(), b"hello");
    }
    proxy.set(Direction::Down, Flow::Drop);
    link.write_all(b"lost").await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), b"lost");
    is_silent(&mut link).await;
    proxy.heal();
    is_reset(&mut link).await;
    speak(&mut quiet, b"unharmed").await;
}

#[tokio::test]
async fn what_is_delayed_comes_late_and_in_order() {
    let proxy = Proxy::start(echo().await.0).await.unwrap();
    let mut link = connect(&proxy).await;
    proxy.set(Direction::Down, Flow::Delay(2 * SILENCE));
    link.write_all(b"first").await.unwrap();
    is_silent(&mut link).await;
    link.write_all(b"second").await.unwrap();
    assert_eq!(hear(&mut link, 11).await, b"firstsecond");
}

#[tokio::test]
async fn a_throttled_link_passes_no_more_than_its_rate() {
    let proxy = Proxy::start(echo().await.0).await.unwrap();
    let mut link = connect(&proxy).await;
    proxy.set(Direction::Up, Flow::Throttle(20_000));
    let began = Instant::now();
    speak(&mut link, &[1; 10_000]).await;
    // Never sooner: half a second at this rate, less the first piece.
    assert!(began.elapsed() >= Duration::from_millis(450), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_stranded_connection_is_silent_until_its_server_is_back() {
    let (server, mut heard) = echo().await;
    let proxy = Proxy::start(server).await.unwrap();
    let mut link = connect(&proxy).await;
    heard.recv().await.unwrap();
    let stranded = proxy.strand();
    link.write_all(b"unheard").await.unwrap();
    is_silent(&mut link).await;
    assert!(heard.try_recv().is_err());
    connect(&proxy).await;
    drop(stranded);
    is_reset(&mut link).await;
}

#[tokio::test]
async fn a_proxy_that_leads_elsewhere_resets_what_led_to_the_old_place() {
    let (old, new) = (echo().await, echo().await);
    let proxy = Proxy::start(old.0).await.unwrap();
    let mut link = connect(&proxy).await;
    proxy.lead_to(new.0);
    is_reset(&mut link).await;
    connect(&proxy).await;
    let mut hears = new.1;
    assert_eq!(hears.recv().await.unwrap(), b"hello");
}

#[tokio::test]
async fn a_server_that_is_away_is_a_reset() {
    let proxy = Proxy::start("127.0.0.1:1").await.unwrap();
    let mut link = TcpStream::connect(proxy.address()).await.unwrap();
    is_reset(&mut link).await;
}
