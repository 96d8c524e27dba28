//! A TCP proxy that cuts connections while the server lives on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// Cancelled: connections end at once.
    cut: Mutex<CancellationToken>,
    open: AtomicUsize,
}

impl Proxy {
    pub(crate) async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { cut: Mutex::new(CancellationToken::new()), open: AtomicUsize::new(0) });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (cut, target, shared) = (accepting.cut.lock().clone(), target.clone(), Arc::clone(&accepting));
                if cut.is_cancelled() {
                    continue;
                }
                shared.open.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let passing = async {
                        let mut server = TcpStream::connect(target).await?;
                        tokio::io::copy_bidirectional(&mut client, &mut server).await
                    };
                    tokio::select! {
                        _ = passing => {}
                        () = cut.cancelled() => {}
                    }
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Proxy { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("amqp://{}", self.address)
    }

    /// Cuts every connection, and every new one at once.
    pub(crate) fn cut(&self) {
        self.shared.cut.lock().cancel();
    }

    /// New connections pass again.
    pub(crate) fn mend(&self) {
        *self.shared.cut.lock() = CancellationToken::new();
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}
