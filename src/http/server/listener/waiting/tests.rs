//! Tests of calls that wait, over real connections.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::http::server::account::Memory;
use crate::http::server::later::later;
use crate::http::server::listener::conversation::converse;
use crate::http::server::listener::{Listener, Room, SHUTDOWN_GRACE};
use crate::http::server::waits::WaitShare;

/// More than the kernel buffers for a client that does not read.
const LARGE_ANSWER_BYTES: usize = 64 << 20;

/// A listener whose call `/waits` is answered when it is let through, `/now` at once. `/unread`
/// waits without having read its body.
struct Server {
    address: SocketAddr,
    shutdown: CancellationToken,
    gate: Arc<Semaphore>,
    /// The number of calls that wait.
    waiting: watch::Sender<usize>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start() -> Server {
        let (gate, waiting) = (Arc::new(Semaphore::new(0)), watch::Sender::new(0));
        let wait = {
            let (gate, waiting) = (gate.clone(), waiting.clone());
            move || {
                let (gate, counted) = (gate.clone(), Counted::new(waiting.clone()));
                later(async move {
                    gate.acquire().await.unwrap().forget();
                    drop(counted);
                    "done".into_response()
                })
            }
        };
        let reads = wait.clone();
        let router = Router::new()
            .route("/waits", post(async move |_: Bytes| reads()))
            .route("/unread", post(async move || wait()))
            .route("/now", post(async |_: Bytes| "done").get(async || "done"))
            .route("/empty", post(async || ()))
            .route("/large", get(async || "Z".repeat(LARGE_ANSWER_BYTES)));
        let listener = Listener::bind("http.listen", "127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.address(), CancellationToken::new());
        let task = tokio::spawn(listener.serve(router, shutdown.clone()));
        Server { address, shutdown, gate, waiting, task }
    }

    async fn ask(&self, text: &str) -> TcpStream {
        let mut link = TcpStream::connect(self.address).await.unwrap();
        link.write_all(text.as_bytes()).await.unwrap();
        link
    }

    async fn until_waiting(&self, count: usize) {
        let mut waiting = self.waiting.subscribe();
        clock::timeout(SHUTDOWN_GRACE * 20, waiting.wait_for(|now| *now == count))
            .await
            .expect("so many waiting calls")
            .unwrap();
    }
}

/// Counts a call that waits, for as long as it lives.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(count: watch::Sender<usize>) -> Counted {
        count.send_modify(|count| *count += 1);
        Counted(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

const CLOSING_REQUEST: &str = "GET /now HTTP/1.1\r\nconnection: close\r\n\r\n";

fn post_to(path: &str, head: &str, body: &str) -> String {
    format!("POST {path} HTTP/{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// All answers until the end of the connection.
async fn answers(mut link: TcpStream) -> String {
    let mut text = String::new();
    clock::timeout(SHUTDOWN_GRACE * 20, link.read_to_string(&mut text))
        .await
        .expect("the end of the connection")
        .unwrap();
    text
}

/// The lines of answers in alphabetic order, without dates.
fn lines(answers: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = answers.lines().filter(|line| !line.starts_with("date: ")).collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn a_call_that_waits_is_answered_as_one_that_does_not() {
    let server = Server::start().await;
    for (head, count) in [
        ("1.1", 2),
        ("1.1\r\nconnection: keep-alive", 2),
        ("1.1\r\nconnection: close", 1),
        ("1.1\r\nconnection: x, Close\r\nconnection: keep-alive", 1),
        ("1.1\r\nconnection: upgrade\r\nupgrade: h2c", 2),
        ("1.0", 1),
        ("1.0\r\nconnection: Keep-Alive", 2),
    ] {
        server.gate.add_permits(1);
        // The next request comes before the answer.
        let [late, now] =
            ["/waits", "/now"].map(|path| post_to(path, head, "{}") + CLOSING_REQUEST);
        let (late, now) =
            (answers(server.ask(&late).await).await, answers(server.ask(&now).await).await);
        assert_eq!((now.matches("done").count(), lines(&late)), (count, lines(&now)), "{head}");
    }
}

#[tokio::test]
async fn a_connection_goes_on_after_a_wait() {
    let server = Server::start().await;
    let mut link = server.ask("").await;
    for (head, next) in [("1.1", ""), ("1.1", CLOSING_REQUEST)] {
        link.write_all(post_to("/waits", head, "{}").as_bytes()).await.unwrap();
        server.until_waiting(1).await;
        link.write_all(next.as_bytes()).await.unwrap();
        server.gate.add_permits(1);
        server.until_waiting(0).await;
    }
    let answers = answers(link).await;
    assert_eq!(
        (answers.matches("HTTP/1.1 200 OK\r\n").count(), answers.matches("\r\n\r\ndone").count()),
        (3, 3),
        "{answers}"
    );
}

#[tokio::test]
async fn many_requests_at_a_time_are_answered_in_their_order() {
    let server = Server::start().await;
    let count = 500;
    server.gate.add_permits(count);
    let asked = (post_to("/waits", "1.1", "{}") + &post_to("/now", "1.1", "{}")).repeat(count)
        + CLOSING_REQUEST;
    let (link, asked) = (server.ask("").await, asked.into_bytes());
    let (read, mut write) = link.into_split();
    let writes = tokio::spawn(async move { write.write_all(&asked).await.map(|()| write) });
    let mut link = read;
    let mut text = String::new();
    clock::timeout(SHUTDOWN_GRACE * 20, link.read_to_string(&mut text))
        .await
        .expect("the end of the connection")
        .unwrap();
    writes.await.unwrap().unwrap();
    assert_eq!(
        (text.matches("HTTP/1.1 200 OK\r\n").count(), text.matches("done").count()),
        (2 * count + 1, 2 * count + 1)
    );
}

#[tokio::test]
async fn a_call_ends_when_its_client_goes_away() {
    let server = Server::start().await;
    let asked = post_to("/waits", "1.1", "{}");
    let (gone, mut half) = (server.ask(&asked).await, server.ask(&asked).await);
    server.until_waiting(2).await;
    drop(gone);
    server.until_waiting(1).await;
    half.shutdown().await.unwrap();
    server.until_waiting(0).await;
    assert_eq!(answers(half).await, "");
}

#[tokio::test]
async fn the_end_of_a_client_is_seen_behind_what_it_sent() {
    let server = Server::start().await;
    let asked = post_to("/waits", "1.1", "{}");
    let unread = "POST /unread HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n".to_owned()
        + &"x".repeat(200_000);
    for asked in
        [asked.clone() + "\r\n", asked.clone() + &asked, asked.clone() + CLOSING_REQUEST, unread]
    {
        let (gone, mut half) = (server.ask(&asked).await, server.ask(&asked).await);
        server.until_waiting(2).await;
        drop(gone);
        server.until_waiting(1).await;
        half.shutdown().await.unwrap();
        server.until_waiting(0).await;
        assert_eq!(answers(half).await, "");
    }
}

#[tokio::test]
async fn a_body_that_a_call_did_not_read_is_no_request() {
    let server = Server::start().await;
    let body = "GET /large HTTP/1.1\r\n\r\n";
    let head = |length: usize| format!("POST /unread HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
    let (together, mut apart) = (
        server.ask(&(head(body.len()) + body + CLOSING_REQUEST)).await,
        server.ask(&head(body.len())).await,
    );
    let cut = server.ask(&(head(1 << 20) + body)).await;
    apart.write_all((body.to_owned() + CLOSING_REQUEST).as_bytes()).await.unwrap();
    server.until_waiting(3).await;
    server.gate.add_permits(3);
    for link in [together, apart] {
        let answers = answers(link).await;
        assert_eq!(
            (answers.matches("\r\n\r\ndone").count(), answers.contains('Z')),
            (2, false),
            "{answers}"
        );
    }
    // Nobody waits for the rest of a large one.
    let cut = answers(cut).await;
    assert!(cut.contains("\r\nconnection: close\r\n") && cut.ends_with("\r\n\r\ndone"), "{cut}");
}

#[tokio::test]
async fn a_call_that_waits_loses_nothing_of_an_earlier_answer() {
    let server = Server::start().await;
    let mut link = server
        .ask(
            &("GET /large HTTP/1.1\r\n\r\n".to_owned()
                + &post_to("/waits", "1.1", "{}")
                + CLOSING_REQUEST),
        )
        .await;
    server.gate.add_permits(1);
    let mut text = String::new();
    clock::timeout(SHUTDOWN_GRACE * 20, link.read_to_string(&mut text))
        .await
        .expect("the end of the connection")
        .unwrap();
    assert_eq!(
        (text.matches('Z').count(), text.matches("\r\n\r\ndone").count()),
        (LARGE_ANSWER_BYTES, 2)
    );
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_all_answers() {
    let server = Server::start().await;
    let count = 3000;
    server.gate.add_permits(count);
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let (mut link, mut write) = socket.connect(server.address).await.unwrap().into_split();
    // The first answer has no body, and its request has one that the call does not read.
    let asked = (post_to("/empty", "1.1", "{}") + &post_to("/waits", "1.1", "{}")).repeat(count)
        + CLOSING_REQUEST;
    let writes =
        tokio::spawn(async move { write.write_all(asked.as_bytes()).await.map(|()| write) });
    let (mut text, mut some) = (String::new(), [0; 64]);
    loop {
        let read = clock::timeout(SHUTDOWN_GRACE * 20, link.read(&mut some))
            .await
            .expect("the end of the connection")
            .unwrap();
        if read == 0 {
            break;
        }
        text.push_str(std::str::from_utf8(&some[..read]).unwrap());
    }
    writes.await.unwrap().unwrap();
    assert_eq!(
        (text.matches("HTTP/1.1 200 OK\r\n").count(), text.matches("done").count()),
        (2 * count + 1, count + 1)
    );
}

#[tokio::test]
async fn a_shutdown_answers_a_call_that_waits_and_ends_its_connection() {
    let server = Server::start().await;
    let link = server.ask(&post_to("/waits", "1.1", "{}")).await;
    server.until_waiting(1).await;
    server.shutdown.cancel();
    server.gate.add_permits(1);
    let answer = answers(link).await;
    assert!(
        answer.contains("\r\nconnection: close\r\n") && answer.ends_with("\r\n\r\ndone"),
        "{answer}"
    );
    clock::timeout(SHUTDOWN_GRACE * 20, server.task)
        .await
        .expect("the server ends")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn peers_whose_calls_wait_leave_connections_to_others() {
    let room = Room::of(64);
    let listener = Listener::bind("http.listen", "127.0.0.1:0").await.unwrap();
    let (address, begun) = (listener.address(), watch::Sender::new(0));
    let counts = begun.clone();
    let waits = move |share: WaitShare| {
        // Longer than this test waits for anything.
        let wait = share.wait(clock::now() + SHUTDOWN_GRACE * 600);
        counts.send_modify(|count| *count += 1);
        let until = wait.until();
        later(wait.kept(async move {
            clock::sleep_until(until).await;
            "none".into_response()
        }))
    };
    let router = Router::new()
        .route("/waits", post(async move |share: WaitShare| waits(share)))
        .route("/now", post(async || "done"));
    let server = listener.within(&room, &Memory::endless()).serve(router, CancellationToken::new());
    let server = tokio::spawn(server);
    let ask = async |from: [u8; 4], asked: String| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut link = socket.connect(address).await.unwrap();
        link.write_all(asked.as_bytes()).await.unwrap();
        link
    };
    // A peer has half of the connections at most.
    let mut links = Vec::new();
    for from in [[127, 0, 0, 2], [127, 0, 0, 3]] {
        for _ in 0..room.most() / 2 {
            links.push(ask(from, post_to("/waits", "1.1", "")).await);
        }
    }
    let mut all = begun.subscribe();
    clock::timeout(SHUTDOWN_GRACE * 20, all.wait_for(|count| *count == room.most()))
        .await
        .expect("all calls")
        .unwrap();
    let other = ask([127, 0, 0, 4], post_to("/now", "1.1\r\nconnection: close", "")).await;
    assert!(answers(other).await.ends_with("\r\n\r\ndone"));

    let most = room.most() / 4 * 3;
    let mut waiting = JoinSet::new();
    let count = links.len();
    for link in links {
        waiting.spawn(answers(link));
    }
    for _ in most..count {
        let answer = waiting.join_next().await.unwrap().unwrap();
        assert!(
            answer.contains("\r\nconnection: close\r\n") && answer.ends_with("\r\n\r\nnone"),
            "{answer}"
        );
    }
    assert_eq!(waiting.len(), most, "these wait for long");
    server.abort();
}

#[test]
fn a_connection_whose_call_waits_is_small() {
    fn size<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }
    // Ten thousand of them wait at a time.
    assert!(size(converse) <= 1024, "{} bytes", size(converse));
}
