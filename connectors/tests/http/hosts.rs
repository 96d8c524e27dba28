//! Connections without a request, of many hosts: a sink keeps a bounded number of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_connectors::{Message, Outcome, Publication};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use crate::frames::{self, Frames};
use crate::raw::{self, Raw};
use crate::{CROWD_LOCK, collect, open, publication, send, until};

/// The most connections without a request that a sink keeps.
const MAX_IDLE_CONNECTIONS: usize = 512;
/// More hosts than that.
const HOSTS: usize = 600;
/// A connection without a request is closed after this time in any case.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// A publication to each host: all addresses 127.0.x.y are this machine's.
fn to_each(port: u16) -> Vec<Publication> {
    (0..HOSTS)
        .map(|number| {
            let url = format!("http://127.0.{}.{}:{port}/", number / 250 + 1, number % 250 + 1);
            publication(number as u64, &url, Message::new("x"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_hosts_keep_so_many_connections_without_a_request_and_get_all_requests() {
    let _crowd = CROWD_LOCK.lock().await;
    // Both ends of the connections are files of this process.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let released = Arc::new(watch::Sender::new(false));
    let releasing = Arc::clone(&released);
    let http1 = Raw::on("0.0.0.0:0", move |mut link: raw::Link| {
        let mut release = releasing.subscribe();
        async move {
            while link.request().await.is_some() {
                release.wait_for(|released| *released).await.unwrap();
                link.say("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let ended = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&ended);
    let http2 = Frames::start(move |mut link: frames::Link| {
        let ended = Arc::clone(&counting);
        async move {
            while let Some(stream) = link.request().await {
                link.answer(stream).await;
            }
            ended.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let (sink, mut outcomes) = open(http2.trusted()).await;

    sink.publish(to_each(http1.port())).await;
    until("a request of each host", || http1.requests() == HOSTS).await;
    let answered = Instant::now();
    released.send_replace(true);
    assert_eq!(collect(&mut outcomes, HOSTS).await, vec![Outcome::Confirmed; HOSTS]);
    until("the end of connections beyond the bound", || http1.open() <= MAX_IDLE_CONNECTIONS).await;
    assert!(http1.open() > 0, "no connection is kept");
    assert_eq!(send(&*sink, &mut outcomes, &http2.url()).await, Outcome::Finished);
    until("the end of the HTTP/2 connection", || ended.load(Ordering::SeqCst) == 1).await;
    assert!(answered.elapsed() < IDLE_TIMEOUT, "the connections ended by their age");

    sink.publish(to_each(http1.port())).await;
    assert_eq!(collect(&mut outcomes, HOSTS).await, vec![Outcome::Confirmed; HOSTS]);
    assert_eq!(send(&*sink, &mut outcomes, &http2.url()).await, Outcome::Finished);
    assert_eq!((http1.requests(), http2.requests()), (2 * HOSTS, 2), "nothing is sent twice");
}
