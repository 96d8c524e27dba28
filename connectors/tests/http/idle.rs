//! A connection that the server closes while no request is open, as the next request goes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dwell_connectors::{Message, Outcome};

use crate::{TIMEOUT, assert_unknown, collect, local, open, publication, send};

/// A server on a thread of its own, so that the test decides what the connector has noticed. It
/// answers one request, closes the connection when told to, and answers the requests of the next
/// connection.
struct Closing {
    url: String,
    close: mpsc::Sender<()>,
    closed: mpsc::Receiver<()>,
    /// The thread returns the number of answered requests of the next connection.
    thread: thread::JoinHandle<usize>,
}

fn closing() -> Closing {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (close, told) = mpsc::channel();
    let (tell, closed) = mpsc::channel();
    let thread = thread::spawn(move || {
        let (mut first, client) = listener.accept().unwrap();
        assert!(answer(&mut first));
        told.recv_timeout(TIMEOUT).unwrap();
        drop(first);
        wait_until_known(client);
        tell.send(()).unwrap();
        let (mut second, _) = listener.accept().unwrap();
        (0..).take_while(|_| answer(&mut second)).count()
    });
    Closing { url, close, closed, thread }
}

/// Reads one request and answers 202; false at the end of the connection.
fn answer(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut request = Vec::new();
    let mut bytes = [0; 1024];
    while !request.ends_with(b"\r\n\r\nx") {
        let size = stream.read(&mut bytes).unwrap();
        if size == 0 {
            assert!(request.is_empty(), "the client closed within a request");
            return false;
        }
        request.extend_from_slice(&bytes[..size]);
    }
    stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").unwrap();
    true
}

/// Waits until the client's kernel has the end of the connection; not at all on systems without
/// `/proc`.
fn wait_until_known(client: SocketAddr) {
    let deadline = Instant::now() + TIMEOUT;
    let port = format!(":{:04X}", client.port());
    // A line is a number, local and remote address, and the state: 08 is CLOSE_WAIT.
    let is_known = |table: String| {
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.any(|fields| {
            fields.get(1).is_some_and(|local| local.ends_with(&port))
                && fields.get(3) == Some(&"08")
        })
    };
    while std::fs::read_to_string("/proc/net/tcp").is_ok_and(|table| !is_known(table)) {
        assert!(Instant::now() < deadline, "the client does not hear of the end");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The outcome of the request that goes as the server closes, and how many requests the next
/// connection has: another one is confirmed there. `is_heard`: the runtime has heard of the end,
/// and the connection has not.
fn outcome(is_heard: bool) -> (Outcome, usize) {
    let server = closing();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async {
        let (sink, mut outcomes) = open(local()).await;
        assert_eq!(send(&*sink, &mut outcomes, &server.url).await, Outcome::Confirmed);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        // The runtime stands still, and so notices nothing.
        server.close.send(()).unwrap();
        server.closed.recv_timeout(TIMEOUT).unwrap();
        if is_heard {
            // Events of connections are looked at; then this task is the first.
            tokio::task::yield_now().await;
        }
        sink.publish(vec![publication(1, &server.url, Message::new("x"))]).await;
        let outcome = collect(&mut outcomes, 1).await.remove(0);
        assert_eq!(send(&*sink, &mut outcomes, &server.url).await, Outcome::Confirmed);
        sink.close().await.unwrap();
        assert_eq!(outcomes.recv().await, None, "the connection closes with its sink");
        outcome
    });
    (outcome, server.thread.join().unwrap())
}

#[test]
fn a_request_of_which_nothing_was_sent_goes_on_another_connection() {
    assert_eq!(outcome(true), (Outcome::Confirmed, 2));
}

#[test]
fn a_request_that_goes_on_a_closed_connection_is_open_and_not_sent_again() {
    let (outcome, requests) = outcome(false);
    assert_unknown(&outcome, "the connection ended before an answer: ");
    assert_eq!(requests, 1);
}
