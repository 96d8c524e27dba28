//! Tests of calls that answer before they have read the body of their request, over real
//! connections.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{BodyProgress, FIRST_ROOM_BYTES, ROOM_STEP_BYTES, UNRESERVED_BYTES, room_for};
use crate::clock;
use crate::config::Limits;
use crate::http::server::account::Memory;
use crate::http::server::listener::{Listener, Room, SHUTDOWN_GRACE};

/// A connection to a listener that refuses every `POST`, and answers a `GET`.
async fn connect() -> TcpStream {
    let router = Router::new().route(
        "/",
        post(async || (StatusCode::UNAUTHORIZED, "refused")).merge(get(async || "done")),
    );
    let listener = Listener::bind("http.listen", "127.0.0.1:0").await.unwrap();
    let link = TcpStream::connect(listener.address()).await.unwrap();
    link.set_nodelay(true).unwrap();
    tokio::spawn(listener.serve(router, CancellationToken::new()));
    link
}

/// The next answer, up to its body.
async fn answer(link: &mut TcpStream, body: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.ends_with(&format!("\r\n\r\n{body}")) {
            let mut bytes = [0; 4096];
            let count = link.read(&mut bytes).await.unwrap();
            assert!(count > 0, "the connection has ended: {text}");
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    };
    clock::timeout(SHUTDOWN_GRACE * 20, read).await.expect("an answer");
    text
}

/// The rest of the connection.
async fn rest(link: &mut TcpStream) -> String {
    let mut text = String::new();
    clock::timeout(SHUTDOWN_GRACE * 20, link.read_to_string(&mut text))
        .await
        .expect("the end of the connection")
        .unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_call_leaves_its_connection_to_the_next_one() {
    let mut link = connect().await;
    for round in 0..300 {
        // The body comes a moment after its head, as that of an ordinary client.
        link.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4096\r\n\r\n")
            .await
            .unwrap();
        tokio::task::yield_now().await;
        link.write_all(&[b'x'; 4096]).await.unwrap();
        let refused = answer(&mut link, "refused").await;
        assert!(
            refused.starts_with("HTTP/1.1 401 ") && !refused.contains("connection: close"),
            "{round}: {refused}"
        );
        link.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert!(answer(&mut link, "done").await.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_ends_the_connection_and_its_answer_says_so() {
    for head in [
        "content-length: 5",
        "transfer-encoding: chunked",
        "content-length: 5\r\nexpect: 100-continue",
    ] {
        let mut link = connect().await;
        link.write_all(format!("POST / HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let answer = rest(&mut link).await;
        assert!(
            answer.starts_with("HTTP/1.1 401 ") && answer.contains("\r\nconnection: close\r\n"),
            "{head}: {answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_to_be_read_does_not_cut_its_answer() {
    for _ in 0..20 {
        let mut link = connect().await;
        let large = vec![b'x'; 4 << 20];
        link.write_all(
            format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", large.len())
                .as_bytes(),
        )
        .await
        .unwrap();
        link.write_all(&large).await.unwrap();
        let answer = rest(&mut link).await;
        assert!(
            answer.contains("\r\nconnection: close\r\n") && answer.ends_with("\r\n\r\nrefused"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_request_with_a_deciding_header_twice_is_refused() {
    for doubled in [
        "host: x\r\nhost: y",
        "Host: x\r\nhost: x",
        "host: x\r\nauthorization: Bearer a\r\nAuthorization: Bearer b",
    ] {
        let mut link = connect().await;
        link.write_all(
            format!("GET / HTTP/1.1\r\n{doubled}\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .await
        .unwrap();
        let answer = rest(&mut link).await;
        assert!(
            answer.starts_with("HTTP/1.1 400 ") && answer.contains("application/problem+json"),
            "{answer}"
        );
    }
}

/// Returns the number of bytes that still come until the connection ends.
async fn rest_of(link: &mut TcpStream) -> usize {
    let (mut bytes, mut count) = (vec![0; 1 << 16], 0);
    while let Ok(read @ 1..) = link.read(&mut bytes).await {
        count += read;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_leave_memory_for_other_calls() {
    use axum::body::Bytes;

    let router = Router::new().route(
        "/",
        get(async || vec![b'x'; 8 << 20]).post(async |body: Bytes| body.len().to_string()),
    );
    let listener = Listener::bind("http.listen", "127.0.0.1:0")
        .await
        .unwrap()
        .within(&Room::default(), &Memory::of(&Limits::default()));
    let address = listener.address();
    tokio::spawn(listener.serve(router, CancellationToken::new()));
    let mut stuck = Vec::new();
    for _ in 0..8 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut link = socket.connect(address).await.unwrap();
        link.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        clock::timeout(SHUTDOWN_GRACE * 20, link.read_exact(&mut head))
            .await
            .expect("a status")
            .unwrap();
        stuck.push((link, String::from_utf8_lossy(&head[9..]).into_owned()));
    }
    let statuses: Vec<&str> = stuck.iter().map(|(_, status)| status.as_str()).collect();
    let mut link = TcpStream::connect(address).await.unwrap();
    link.write_all(
        b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1048576\r\n\r\n",
    )
    .await
    .unwrap();
    link.write_all(&[b'x'; 1 << 20]).await.unwrap();
    let answer = rest(&mut link).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n1048576"),
        "{statuses:?}: {answer}"
    );
    // Each large answer finds its room: after a second the oldest that is not read makes way.
    assert_eq!(statuses, ["200"; 8]);
    let first = clock::timeout(SHUTDOWN_GRACE * 20, rest_of(&mut stuck[0].0))
        .await
        .expect("the connection ends");
    assert!(first < 8 << 20, "{first}");
}

#[test]
fn a_body_that_comes_in_parts_has_room_of_its_own() {
    let whole = 3 * 60_000;
    for (held, whole, is_over, room, expected) in [
        // It came at once, or it is small.
        (3 * 16_000, 3 * 16_000, true, 0, 0),
        (UNRESERVED_BYTES, 0, false, 0, 0),
        (600, UNRESERVED_BYTES, false, 0, 0),
        // All at once, and no more for the overhead of its parts.
        (600, whole, false, 0, whole),
        (whole + 256 * 40, whole, true, whole, whole),
        // Many parts of a byte.
        (UNRESERVED_BYTES + 1, 90, false, 0, FIRST_ROOM_BYTES),
        (whole / 8 * 9 + 9, whole, false, whole, FIRST_ROOM_BYTES * 2),
        // Nobody says how large it is.
        (UNRESERVED_BYTES + 1, 0, false, 0, FIRST_ROOM_BYTES),
        (FIRST_ROOM_BYTES / 8 * 9 + 1, 0, false, FIRST_ROOM_BYTES, FIRST_ROOM_BYTES * 2),
        (FIRST_ROOM_BYTES * 2 + 1, 0, false, FIRST_ROOM_BYTES, FIRST_ROOM_BYTES * 4),
        (FIRST_ROOM_BYTES * 5, 0, false, FIRST_ROOM_BYTES * 4, FIRST_ROOM_BYTES * 8),
        (ROOM_STEP_BYTES / 2 + 1, 0, false, FIRST_ROOM_BYTES * 4, ROOM_STEP_BYTES),
        (ROOM_STEP_BYTES * 2, 0, false, ROOM_STEP_BYTES, ROOM_STEP_BYTES * 2),
    ] {
        let came = BodyProgress { held, whole, is_over };
        let needed = room_for(came, room, || true);
        assert_eq!(needed, expected, "{held} of {whole}, {is_over}, {room}");
    }
    // Others have room, too.
    let came = BodyProgress { held: FIRST_ROOM_BYTES * 2, whole: 0, is_over: false };
    assert_eq!(room_for(came, FIRST_ROOM_BYTES, || false), ROOM_STEP_BYTES);
}
