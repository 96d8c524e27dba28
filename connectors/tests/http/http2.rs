//! HTTP/2 servers that say which requests they do not handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_connectors::{Message, Outcome, Publication, http};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::certificates::Authority;
use crate::{CROWD, assert_refused, assert_unknown, collect, local, numbered, open, publication, send, until};

/// The most requests on a connection.
const STREAMS: usize = 100;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
/// END_STREAM and END_HEADERS.
const WHOLE: u8 = 5;
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A server that speaks HTTP/2 frame by frame.
struct Frames {
    port: u16,
    folder: tempfile::TempDir,
    requests: Arc<AtomicUsize>,
    _end: DropGuard,
}

/// The server's end of a connection.
struct Link {
    stream: TlsStream<TcpStream>,
    requests: Arc<AtomicUsize>,
}

impl Frames {
    async fn start<F: Future<Output = ()> + Send + 'static>(serve: impl Fn(Link) -> F + Send + Sync + 'static) -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        let acceptor = acceptor(&authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, end) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
        let (counting, ending) = (Arc::clone(&requests), end.clone());
        tokio::spawn(end.clone().run_until_cancelled_owned(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut preface = [0; 24];
                stream.read_exact(&mut preface).await.unwrap();
                assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
                let mut link = Link { stream, requests: Arc::clone(&counting) };
                link.say(SETTINGS, 0, 0, &[]).await;
                tokio::spawn(ending.clone().run_until_cancelled_owned(serve(link)));
            }
        }));
        Frames { port, folder, requests, _end: end.drop_guard() }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}/", self.port)
    }

    fn trusted(&self) -> http::Config {
        http::Config { ca_file: Some(self.folder.path().join("ca.pem")), ..local() }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    let certificate = authority.certify("127.0.0.1");
    let chain = vec![CertificateDer::from_pem_slice(certificate.pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

impl Link {
    /// Waits for the next request; its stream, or `None` at the end of the connection.
    async fn request(&mut self) -> Option<u32> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            let (kind, flags) = (head[3], head[4]);
            match kind {
                SETTINGS | PING if flags & ACK == 0 => {
                    let answer = if kind == PING { payload } else { Vec::new() };
                    self.say(kind, ACK, 0, &answer).await;
                }
                HEADERS => {
                    self.requests.fetch_add(1, Ordering::SeqCst);
                    return Some(u32::from_be_bytes(head[5..].try_into().unwrap()));
                }
                _ => {}
            }
        }
    }

    async fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        // The error means that the client is gone.
        let _ = self.stream.write_all(&frame).await;
        let _ = self.stream.flush().await;
    }

    /// Answers 200, which is number 8 of HPACK's table.
    async fn answer(&mut self, stream: u32) {
        self.say(HEADERS, WHOLE, stream, &[0x88]).await;
    }

    async fn go_away(&mut self, last: u32, why: u32) {
        self.say(GOAWAY, 0, 0, &[last.to_be_bytes(), why.to_be_bytes()].concat()).await;
    }
}

/// Answers each request of a connection.
async fn serve(mut link: Link) {
    while let Some(stream) = link.request().await {
        link.answer(stream).await;
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_was_not_taken_and_another_end_is_open() {
    for (why, is_refused) in [(REFUSED_STREAM, true), (CANCEL, false), (INTERNAL_ERROR, false), (NO_ERROR, false)] {
        let server = Frames::start(move |mut link: Link| async move {
            let stream = link.request().await.unwrap();
            link.say(RST_STREAM, 0, stream, &why.to_be_bytes()).await;
            serve(link).await;
        });
        let server = server.await;
        let (sink, mut outcomes) = open(server.trusted()).await;
        let outcome = send(&*sink, &mut outcomes, &server.url()).await;
        if is_refused {
            assert_refused(&outcome, "the connection ended before the target took the request: ");
        } else {
            assert_unknown(&outcome, "the connection ended before an answer: ");
        }
        assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
        assert_eq!(server.requests(), 2, "nothing is sent twice");
    }
}

#[tokio::test]
async fn streams_after_the_last_one_of_a_server_that_goes_were_not_taken() {
    for why in [NO_ERROR, ENHANCE_YOUR_CALM] {
        for is_answered in [true, false] {
            let number = Arc::<AtomicUsize>::default();
            let server = Frames::start(move |mut link: Link| {
                let is_first = number.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    if !is_first {
                        return serve(link).await;
                    }
                    let first = link.request().await.unwrap();
                    for _ in 0..3 {
                        link.request().await.unwrap();
                    }
                    link.go_away(first, why).await;
                    if is_answered {
                        link.answer(first).await;
                        link.request().await;
                    }
                }
            })
            .await;
            let (sink, mut outcomes) = open(server.trusted()).await;
            sink.publish(numbered(&server.url(), 1)).await;
            until("the first request", || server.requests() == 1).await;
            sink.publish(numbered(&server.url(), 4).split_off(1)).await;
            let all = collect(&mut outcomes, 4).await;
            if is_answered {
                assert_eq!(all[0], Outcome::Finished);
            } else {
                assert_unknown(&all[0], "the connection ended before an answer: ");
            }
            for outcome in &all[1..] {
                assert_refused(outcome, "the connection ended before the target took the request: ");
            }
            assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
            assert_eq!(server.requests(), 5, "nothing is sent twice");
        }
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_leaves_its_streams_open() {
    let server = Frames::start(|mut link: Link| async move {
        for _ in 0..2 {
            link.request().await;
        }
        // What is no frame of HTTP/2.
        let _ = link.stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(numbered(&server.url(), 1)).await;
    until("the first request", || server.requests() == 1).await;
    sink.publish(numbered(&server.url(), 2).split_off(1)).await;
    for outcome in collect(&mut outcomes, 2).await {
        assert_unknown(&outcome, "the connection ended before an answer: ");
    }
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_and_the_next_request_opens_another() {
    let ended = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&ended);
    let server = Frames::start(move |link: Link| {
        let ended = Arc::clone(&counting);
        async move {
            serve(link).await;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
    until("the end of the connection", || ended.load(Ordering::SeqCst) == 1).await;
    assert_eq!(send(&*sink, &mut outcomes, &server.url()).await, Outcome::Finished);
}

#[tokio::test]
async fn a_connection_has_so_many_requests_and_what_waits_for_one_too_long_is_not_sent() {
    let _crowd = CROWD.lock().await;
    let released = Arc::new(watch::Sender::new(false));
    let releasing = Arc::clone(&released);
    let server = Frames::start(move |mut link: Link| {
        let mut release = releasing.subscribe();
        async move {
            let mut streams = Vec::new();
            while streams.len() < STREAMS {
                // A host opens more connections until one turns out to be HTTP/2.
                let Some(stream) = link.request().await else { return };
                streams.push(stream);
            }
            release.wait_for(|released| *released).await.unwrap();
            for stream in streams {
                link.answer(stream).await;
            }
            serve(link).await;
        }
    })
    .await;
    let (sink, mut outcomes) = open(server.trusted()).await;
    sink.publish(numbered(&server.url(), STREAMS as u64)).await;
    until("a request for each stream", || server.requests() == STREAMS).await;
    let late =
        Publication { deadline: Some(Instant::now() + Duration::from_millis(50)), ..publication(1001, &server.url(), Message::new("x")) };
    sink.publish(vec![late]).await;
    assert_refused(
        &collect(&mut outcomes, 1).await[0],
        "never sent: 256 requests or connections (on HTTP/2 100 requests) wait for the host",
    );
    sink.publish((2001..=2100).map(|token| publication(token, &server.url(), Message::new("x"))).collect()).await;
    released.send_replace(true);
    assert_eq!(collect(&mut outcomes, STREAMS + 100).await, vec![Outcome::Finished; STREAMS + 100]);
    assert_eq!(server.requests(), STREAMS + 100);
}
