//! A server that speaks HTTP/2 frame by frame, over TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_connectors::http;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::certificates::Authority;
use crate::local;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A server that speaks HTTP/2 frame by frame.
pub(crate) struct Frames {
    port: u16,
    folder: tempfile::TempDir,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    _end: DropGuard,
}

/// A frame of a stream.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    /// Has END_STREAM, or a flag of another frame at its place.
    pub(crate) ends: bool,
    pub(crate) stream: u32,
    pub(crate) length: usize,
}

/// The server's end of a connection.
pub(crate) struct Link {
    pub(crate) stream: TlsStream<TcpStream>,
    requests: Arc<AtomicUsize>,
}

impl Frames {
    /// Starts a server that serves each connection so, once it has sent its SETTINGS.
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(Link) -> F + Send + Sync + 'static,
    ) -> Self {
        Frames::with(serve, |_| Vec::new()).await
    }

    /// The same; `settings` makes the payload of the SETTINGS of each connection by its number.
    pub(crate) async fn with<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(Link) -> F + Send + Sync + 'static,
        settings: impl Fn(usize) -> Vec<u8> + Send + 'static,
    ) -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        let acceptor = acceptor(&authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, connections, end) = (
            Arc::<AtomicUsize>::default(),
            Arc::<AtomicUsize>::default(),
            CancellationToken::new(),
        );
        let (counting, accepting, ending) =
            (Arc::clone(&requests), Arc::clone(&connections), end.clone());
        tokio::spawn(end.clone().run_until_cancelled_owned(async move {
            for number in 1.. {
                let (stream, _) = listener.accept().await.unwrap();
                accepting.fetch_add(1, Ordering::SeqCst);
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut preface = [0; 24];
                stream.read_exact(&mut preface).await.unwrap();
                assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
                let mut link = Link { stream, requests: Arc::clone(&counting) };
                link.say(SETTINGS, 0, 0, &settings(number)).await;
                tokio::spawn(ending.clone().run_until_cancelled_owned(serve(link)));
            }
        }));
        Frames { port, folder, requests, connections, _end: end.drop_guard() }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn trusted(&self) -> http::Config {
        http::Config { ca_file: Some(self.folder.path().join("ca.pem")), ..local() }
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    let certificate = authority.certify("127.0.0.1");
    let chain = vec![CertificateDer::from_pem_slice(certificate.pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

impl Link {
    /// Waits for the next request; its stream, or `None` at the end of the connection.
    pub(crate) async fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == HEADERS {
                return Some(frame.stream);
            }
        }
    }

    /// The next frame of a stream; `None` at the end of the connection. Answers what the protocol
    /// wants answered.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
            match kind {
                SETTINGS | PING if flags & ACK == 0 => {
                    let answer = if kind == PING { payload } else { Vec::new() };
                    self.say(kind, ACK, 0, &answer).await;
                }
                _ if stream == 0 => {}
                _ => {
                    if kind == HEADERS {
                        self.requests.fetch_add(1, Ordering::SeqCst);
                    }
                    return Some(Frame {
                        kind,
                        ends: flags & END_STREAM != 0,
                        stream,
                        length: payload.len(),
                    });
                }
            }
        }
    }

    /// Sends a frame; false once the client is gone.
    pub(crate) async fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// Sends so many pings at once.
    pub(crate) async fn pings(&mut self, count: usize) {
        let ping = [&[0, 0, 8, PING][..], &[0; 13]].concat();
        self.stream.write_all(&ping.repeat(count)).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends other SETTINGS than the first.
    pub(crate) async fn settings(&mut self, payload: &[u8]) {
        self.say(SETTINGS, 0, 0, payload).await;
    }

    /// Answers 200, which is number 8 of HPACK's table.
    pub(crate) async fn answer(&mut self, stream: u32) {
        self.say(HEADERS, END_STREAM | END_HEADERS, stream, &[0x88]).await;
    }

    pub(crate) async fn go_away(&mut self, last: u32, why: u32) {
        self.go_away_saying(last, why, "").await;
    }

    /// The same with a text of the server (RFC 9113 §6.8, additional debug data).
    pub(crate) async fn go_away_saying(&mut self, last: u32, why: u32, text: &str) {
        self.say(
            GOAWAY,
            0,
            0,
            &[&last.to_be_bytes()[..], &why.to_be_bytes(), text.as_bytes()].concat(),
        )
        .await;
    }
}
