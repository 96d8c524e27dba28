//! A connection that the server closes while no request is open, as the next request goes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dwell_connectors::{Message, Outcome};

use crate::{TIMEOUT, assert_refused, assert_unknown, collect, local, open, publication, send};

/// A server on a thread of its own, so that the test decides what the connector has noticed. It
/// answers one request, closes the connection when told to, and answers one request again.
struct Closing {
    url: String,
    close: mpsc::Sender<()>,
    closed: mpsc::Receiver<()>,
    thread: thread::JoinHandle<()>,
}

fn closing() -> Closing {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (close, told) = mpsc::channel();
    let (tell, closed) = mpsc::channel();
    let thread = thread::spawn(move || {
        let (mut first, client) = listener.accept().unwrap();
        answer(&mut first);
        told.recv_timeout(TIMEOUT).unwrap();
        drop(first);
        wait_until_known(client);
        tell.send(()).unwrap();
        let (mut second, _) = listener.accept().unwrap();
        answer(&mut second);
    });
    Closing { url, close, closed, thread }
}

/// Reads one request and answers 202.
fn answer(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut request = Vec::new();
    let mut bytes = [0; 1024];
    while !request.ends_with(b"\r\n\r\nx") {
        let size = stream.read(&mut bytes).unwrap();
        assert!(size > 0, "the client has closed");
        request.extend_from_slice(&bytes[..size]);
    }
    stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").unwrap();
}

/// Waits until the client's kernel has the end of the connection; not at all on systems without
/// `/proc`.
fn wait_until_known(client: SocketAddr) {
    let deadline = Instant::now() + TIMEOUT;
    let port = format!(":{:04X}", client.port());
    // A line is a number, local and remote address, and the state: 08 is CLOSE_WAIT.
    let is_known = |table: String| {
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.any(|fields| fields.get(1).is_some_and(|local| local.ends_with(&port)) && fields.get(3) == Some(&"08"))
    };
    while std::fs::read_to_string("/proc/net/tcp").is_ok_and(|table| !is_known(table)) {
        assert!(Instant::now() < deadline, "the client does not hear of the end");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The outcome of the request that goes as the server closes; then the next is confirmed. `events`:
/// how many tasks the runtime runs before it asks for events of connections.
fn outcome(events: u32) -> Outcome {
    let server = closing();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(events).build().unwrap();
    let outcome = runtime.block_on(async {
        let (sink, mut outcomes) = open(local()).await;
        assert_eq!(send(&*sink, &mut outcomes, &server.url).await, Outcome::Confirmed);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        // The runtime stands still, and so notices nothing.
        server.close.send(()).unwrap();
        server.closed.recv_timeout(TIMEOUT).unwrap();
        sink.publish(vec![publication(1, &server.url, Message::new("x"))]).await;
        let outcome = collect(&mut outcomes, 1).await.remove(0);
        assert_eq!(send(&*sink, &mut outcomes, &server.url).await, Outcome::Confirmed);
        outcome
    });
    server.thread.join().unwrap();
    outcome
}

/// Holds what `outcome::never_sent` takes for granted: the text of the client's error.
#[test]
fn a_request_that_the_client_gives_back_is_refused() {
    // The request is handed to the connection, then the end is noticed.
    assert_refused(&outcome(1), "the connection ended before the target took the request: ");
}

#[test]
fn a_request_that_goes_on_a_closed_connection_is_open_and_not_sent_again() {
    // The request is written, then the end is noticed.
    assert_unknown(&outcome(1000), "the connection ended before an answer: ");
}
