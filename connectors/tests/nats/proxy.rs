//! A TCP proxy that cuts connections while the server lives on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub(crate) struct Proxy {
    address: SocketAddr,
    cut: CancellationToken,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn start(server_url: &str) -> Self {
        let target = server_url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, accepted) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let open = Arc::new(AtomicUsize::new(0));
        let (until, count, living) = (cut.clone(), Arc::clone(&accepted), Arc::clone(&open));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                // What comes after the cut passes again.
                let until = if until.is_cancelled() { CancellationToken::new() } else { until.clone() };
                count.fetch_add(1, Ordering::SeqCst);
                let (target, living) = (target.clone(), Arc::clone(&living));
                living.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        () = until.cancelled() => {}
                    }
                    living.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Proxy { address, cut, accepted, open }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Cuts every connection that is open now; new ones pass.
    pub(crate) fn cut(&self) {
        self.cut.cancel();
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// How many connections there ever were.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}
