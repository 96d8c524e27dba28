//! The fate of a connection while others wait for buffers, over real connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::Limits;
use crate::http::server::account::Memory;
use crate::http::server::listener::{Listener, Room, SHUTDOWN_GRACE};
use crate::http::server::waits::WaitShare;

/// Bytes of an answer that no socket's buffer holds.
const LARGE_ANSWER_BYTES: usize = 4 << 20;

/// A connection with buffers, while another waits for some.
struct Pressed {
    link: TcpStream,
    /// Calls of `GET /evil`.
    evil: Arc<AtomicUsize>,
    _held: Vec<Buffered>,
    _turn: tokio::task::JoinHandle<Option<Buffered>>,
}

impl Pressed {
    /// A connection whose client has sent this.
    async fn with(first: &[u8]) -> Pressed {
        let evil = Arc::<AtomicUsize>::default();
        let count = evil.clone();
        let router = Router::new()
            .route("/", post(async || (StatusCode::UNAUTHORIZED, "refused")).get(async || "done"))
            .route("/large", get(async || vec![b'x'; LARGE_ANSWER_BYTES]))
            .route("/evil", get(async move || count.fetch_add(1, Ordering::Relaxed).to_string()));
        let room = Room::default();
        let listener = Listener::bind("http.listen", "127.0.0.1:0")
            .await
            .unwrap()
            .within(&room, &Memory::of(&Limits::default()));
        let slots: Vec<_> = (0..=MAX_BUFFERED_CONNECTIONS)
            .map(|_| Slot::new(listener.address().ip(), WaitShare::endless()))
            .collect();
        let calls: Vec<_> = slots.iter().map(super::super::slot::BusyGuard::new).collect();
        let mut held: Vec<_> =
            slots[1..].iter().map(|slot| room.buffers().try_take(slot).unwrap()).collect();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut link = socket.connect(listener.address()).await.unwrap();
        link.set_nodelay(true).unwrap();
        tokio::spawn(listener.serve(router, CancellationToken::new()));
        link.write_all(first).await.unwrap();
        let queued = async {
            while room.buffers().0.waiting.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        };
        clock::timeout(SHUTDOWN_GRACE * 20, queued).await.expect("it waits for buffers");
        let mut turn = room.buffers().turn(&slots[0]);
        assert!((&mut turn).now_or_never().is_none());
        // Looks again and again whether another gives its buffers back.
        let (buffers, slot) = (room.buffers().clone(), slots[0].clone());
        let turn = tokio::spawn(async move {
            let first = turn.await;
            if buffers.0.waiting.load(Ordering::Relaxed) == 0 {
                return first;
            }
            // The task of the connection came to the queue later than its count: the connection is
            // next.
            drop(first);
            buffers.turn(&slot).await
        });
        held.pop();
        // The guards of calls that run: nobody else gives buffers back.
        std::mem::forget(calls);
        Pressed { link, evil, _held: held, _turn: turn }
    }

    /// The rest of the connection.
    async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset is an end.
        let _ = clock::timeout(SHUTDOWN_GRACE * 20, self.link.read_to_end(&mut bytes))
            .await
            .expect("the end of the connection");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_of_a_refused_body_is_no_request() {
    let mut pressed =
        Pressed::with(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nx").await;
    let mut head = [0; 12];
    clock::timeout(SHUTDOWN_GRACE * 20, pressed.link.read_exact(&mut head))
        .await
        .expect("an answer")
        .unwrap();
    assert_eq!(&head, b"HTTP/1.1 401");
    pressed._held.clear();
    let _ = pressed.link.write_all(b"\r\n\r\nGET /evil HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let rest = pressed.rest().await;
    assert!(
        rest.ends_with("\r\n\r\nrefused") && pressed.evil.load(Ordering::Relaxed) == 0,
        "{rest}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_answer_whose_client_reads_arrives_whole() {
    let mut pressed =
        Pressed::with(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(pressed.rest().await.len() > LARGE_ANSWER_BYTES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_in_two_parts_is_answered_and_half_a_head_is_not_waited_for() {
    let mut pressed = Pressed::with(b"GET / HTTP/1.1\r\nhost: x\r\n").await;
    clock::sleep(Duration::from_millis(50)).await;
    pressed.link.write_all(b"connection: close\r\n\r\n").await.unwrap();
    assert!(pressed.rest().await.ends_with("\r\n\r\ndone"));
    let mut pressed = Pressed::with(b"GET / HTTP/1.1\r\nhost: x\r\n").await;
    assert_eq!(pressed.rest().await, "");
}
