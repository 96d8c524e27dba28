//! A balancer that gives the first connection to a backend that is broken, and the others to one
//! that works.

use std::future::pending;
use std::sync::Arc;

use dwell_connectors::{Outcome, http};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::{Answer, App};
use crate::certificates::Authority;
use crate::nginx::Nginx;
use crate::{assert_failed, collect, numbered, open};

const JOBS: usize = 20;

/// The treatment of its connection by the broken backend.
#[derive(Clone, Copy)]
enum Broken {
    /// It takes the connection, and never says anything.
    Hangs,
    /// It closes the connection.
    Closes,
}

struct Balancer {
    url: String,
    config: http::Config,
    _backend: Nginx,
    _end: DropGuard,
}

/// `http2`: the word, or none, for the backend that works.
async fn balancer(app: &App, http2: &str, broken: Broken) -> Balancer {
    let authority = Authority::new();
    let nginx = Nginx::with(app.address(), &authority, &authority.certify("127.0.0.1"), http2);
    let (listener, backend, end) = (
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        nginx.tls_port(),
        CancellationToken::new(),
    );
    let (port, ending) = (listener.local_addr().unwrap().port(), end.clone());
    tokio::spawn(end.clone().run_until_cancelled_owned(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(ending.clone().run_until_cancelled_owned(async move {
                match (number, broken) {
                    (0, Broken::Hangs) => pending().await,
                    (0, Broken::Closes) => {}
                    _ => {
                        let mut backend = TcpStream::connect(("127.0.0.1", backend)).await.unwrap();
                        // An end of either side is no failure of the test.
                        let _ = tokio::io::copy_bidirectional(&mut stream, &mut backend).await;
                    }
                }
            }));
        }
    }));
    Balancer {
        url: format!("https://127.0.0.1:{port}/"),
        config: nginx.trusted(),
        _backend: nginx,
        _end: end.drop_guard(),
    }
}

async fn outcomes(http2: &str, broken: Broken) -> (Vec<Outcome>, Arc<App>) {
    let app = Arc::new(App::start().await);
    app.answer("/", Answer::status(200));
    let balancer = balancer(&app, http2, broken).await;
    let (sink, mut outcomes) = open(balancer.config.clone()).await;
    sink.publish(numbered(&balancer.url, JOBS as u64)).await;
    (collect(&mut outcomes, JOBS).await, app)
}

#[tokio::test]
async fn a_connection_that_is_not_made_holds_no_request_up_where_another_can_be() {
    for http2 in ["http2", ""] {
        let (all, app) = outcomes(http2, Broken::Hangs).await;
        assert_eq!(all, vec![Outcome::Finished; JOBS], "{http2}");
        assert_eq!(app.received("/").len(), JOBS);
    }
}

#[tokio::test]
async fn a_connection_that_fails_fails_one_request() {
    for http2 in ["http2", ""] {
        let (all, app) = outcomes(http2, Broken::Closes).await;
        assert_failed(&all[0], "the target cannot be reached: ");
        assert_eq!(all[1..], vec![Outcome::Finished; JOBS - 1], "{http2}");
        assert_eq!(app.received("/").len(), JOBS - 1);
    }
}
