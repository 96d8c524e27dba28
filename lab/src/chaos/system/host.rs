//! The host of URLs that are targets beside those of the broker, and how it treats requests.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dwell::clock;
use parking_lot::Mutex;

use super::Error;
use crate::http::receiver::{Answer, Arrival, Handler, Receiver, later, status};

/// The name of the instances' broker for URLs.
pub(crate) const HOOK_BROKER: &str = "hook";
/// The hosts that can be slow, by the last number of their address: the port is the same.
const SLOW_HOSTS: std::ops::RangeInclusive<u8> = 2..=9;
/// When a slow host answers: before the publish timeout.
const SLOW_ANSWER_DELAY: Duration = Duration::from_secs(2);
/// The path of dead letters.
pub(crate) const DEAD_PATH: &str = "/dead";

/// The treatment of requests by the host. Jobs arrive with the requests that the host takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Manner {
    /// Takes them and answers 202.
    #[default]
    Takes,
    /// Takes them and closes the connection.
    DropsAnswers,
    /// Takes them. The slow hosts answer late.
    Slow,
    /// Says nothing.
    Silent,
    /// Answers with errors and throttling, or closes the connection.
    Refuses,
}

/// The receiver of the requests that the host takes.
type Taken = Box<dyn Fn(Arrival) + Send + Sync>;

/// The host.
pub(crate) struct Host {
    /// Locked by a fault for its whole duration.
    receiver: tokio::sync::Mutex<Option<Receiver>>,
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    manner: Mutex<Manner>,
    taken: OnceLock<Taken>,
    refused: AtomicUsize,
}

impl Host {
    pub(super) async fn start() -> Result<Host, Error> {
        let shared = Arc::<Shared>::default();
        let receiver = listen(0, &shared).await?;
        let port = receiver.port();
        Ok(Host { port, receiver: tokio::sync::Mutex::new(Some(receiver)), shared })
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The URLs of a path on the hosts that can be slow.
    pub(crate) fn slow_urls(&self, path: &str) -> Vec<String> {
        SLOW_HOSTS.map(|number| format!("http://127.0.0.{number}:{}{path}", self.port)).collect()
    }

    /// Sets where requests go that are taken. Only the first call counts; before it none is taken.
    pub(crate) fn listen(&self, taken: impl Fn(Arrival) + Send + Sync + 'static) {
        self.shared.taken.get_or_init(|| Box::new(taken));
    }

    /// Treats requests in this manner for a time.
    pub(crate) async fn behave(&self, manner: Manner, hold: Duration) {
        let _one = self.receiver.lock().await;
        *self.shared.manner.lock() = manner;
        clock::sleep(hold).await;
        *self.shared.manner.lock() = Manner::Takes;
    }

    /// Closes port and connections for a time.
    pub(crate) async fn down(&self, hold: Duration) -> Result<(), Error> {
        let mut receiver = self.receiver.lock().await;
        if let Some(receiver) = receiver.take() {
            receiver.stop().await;
        }
        clock::sleep(hold).await;
        *receiver = Some(listen(self.port, &self.shared).await?);
        Ok(())
    }
}

async fn listen(port: u16, shared: &Arc<Shared>) -> Result<Receiver, Error> {
    let shared = Arc::clone(shared);
    let handler: Handler = Arc::new(move |arrival| shared.treat(arrival));
    let listening = Receiver::start_on(Ipv4Addr::UNSPECIFIED, port, handler);
    listening.await.map_err(Error::io("the host of URLs"))
}

impl Shared {
    fn treat(&self, arrival: Arrival) -> Answer {
        let manner = *self.manner.lock();
        match (manner, self.taken.get()) {
            (Manner::Silent, _) => Answer::Nothing,
            (Manner::Refuses, _) | (_, None) => {
                match self.refused.fetch_add(1, Ordering::Relaxed) % 6 {
                    0 => status(500),
                    1 => status(429),
                    2 => later(429, 1),
                    3 => later(503, 1),
                    4 => status(503),
                    _ => Answer::Close,
                }
            }
            (Manner::Takes | Manner::Slow | Manner::DropsAnswers, Some(taken)) => {
                let is_slow = !arrival.host.starts_with("127.0.0.1:");
                taken(arrival);
                match (manner, status(202)) {
                    (Manner::DropsAnswers, _) => Answer::Close,
                    (Manner::Slow, Answer::Send(response)) if is_slow => {
                        Answer::Late(response, SLOW_ANSWER_DELAY)
                    }
                    (_, answer) => answer,
                }
            }
        }
    }
}
