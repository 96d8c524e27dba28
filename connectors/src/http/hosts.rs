//! The hosts that have requests or connections, and what they share.

mod host;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::uri::Scheme;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use self::host::Host;
pub(super) use self::host::PendingRequest;
use super::connection::Connect;
use super::limits::MAX_IDLE_CONNECTIONS;
use super::signer::Signer;
use crate::{Outcome, Token};

/// The most hosts without HTTP/2 that are remembered.
const MAX_HTTP1_HOSTS: usize = 4096;

/// The hosts of one sink.
pub(super) struct Hosts {
    pub(super) connect: Connect,
    pub(super) signer: Option<Arc<Signer>>,
    outcomes: mpsc::UnboundedSender<Vec<(Token, Outcome)>>,
    is_closing: AtomicBool,
    /// A permit for each connection that is kept without a request.
    idle: Arc<Semaphore>,
    /// By [`super::url::origin`]. Locked before the state of a host.
    hosts: Mutex<HashMap<Arc<str>, Arc<Host>>>,
    /// Hosts of `https` that have HTTP/1.1 alone, as the last connection told.
    http1: Mutex<HashSet<Arc<str>>>,
}

impl Hosts {
    pub(super) fn new(
        connect: Connect,
        signer: Option<Arc<Signer>>,
        outcomes: mpsc::UnboundedSender<Vec<(Token, Outcome)>>,
    ) -> Self {
        Hosts {
            connect,
            signer,
            outcomes,
            is_closing: AtomicBool::new(false),
            idle: Arc::new(Semaphore::new(MAX_IDLE_CONNECTIONS)),
            hosts: Mutex::default(),
            http1: Mutex::default(),
        }
    }

    /// Passes attempts to their hosts.
    pub(super) fn push(self: &Arc<Self>, attempts: Vec<PendingRequest>) {
        let mut hosts = self.hosts.lock();
        for attempt in attempts {
            let origin = &attempt.target.origin;
            let host = match hosts.get(origin) {
                Some(host) => Arc::clone(host),
                None => {
                    // Without TLS nothing tells that a server knows HTTP/2.
                    let has_tls = attempt.target.uri.scheme() != Some(&Scheme::HTTP);
                    let is_http1 =
                        !(self.connect.http2 && has_tls) || self.http1.lock().contains(origin);
                    let host = Arc::new(Host::new(
                        Arc::clone(self),
                        Arc::clone(origin),
                        attempt.target.uri.clone(),
                        is_http1,
                    ));
                    hosts.insert(Arc::clone(origin), Arc::clone(&host));
                    host
                }
            };
            // The map is locked: the host is not forgotten before it has the attempt.
            host.push(Box::new(attempt));
        }
    }

    /// Remembers whether a host has HTTP/1.1 alone.
    pub(super) fn has_http1(&self, origin: &Arc<str>, is_alone: bool) {
        let mut http1 = self.http1.lock();
        if !is_alone {
            http1.remove(origin);
            return;
        }
        if http1.len() >= MAX_HTTP1_HOSTS {
            http1.clear();
        }
        http1.insert(Arc::clone(origin));
    }

    /// Reports outcomes.
    pub(super) fn report(&self, outcomes: Vec<(Token, Outcome)>) {
        if !outcomes.is_empty() {
            // The caller may have closed its end: then nobody waits for the outcomes.
            let _ = self.outcomes.send(outcomes);
        }
    }

    /// The permit to keep a connection without a request; `None`: the connection is to close.
    fn idle_permit(&self) -> Option<OwnedSemaphorePermit> {
        if self.is_closing() {
            return None;
        }
        Arc::clone(&self.idle).try_acquire_owned().ok()
    }

    /// Forgets a host without requests and connections: producers name hosts, so they may be many.
    fn forget(&self, host: &Arc<Host>) {
        let mut hosts = self.hosts.lock();
        if let Some(known) = hosts.get(&host.origin)
            && Arc::ptr_eq(known, host)
            && host.is_unused()
        {
            hosts.remove(&host.origin);
        }
    }

    /// Closes each connection after its request.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        let hosts: Vec<Arc<Host>> = self.hosts.lock().values().cloned().collect();
        hosts.iter().for_each(|host| host.close());
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep, timeout};

    use super::super::config::Config;
    use super::super::targets::Targets;
    use super::*;
    use crate::Message;

    #[tokio::test]
    async fn a_host_is_forgotten_with_its_last_attempt() {
        let config: Config =
            serde_json::from_value(serde_json::json!({"subnets": ["127.0.0.0/8"]})).unwrap();
        let (sender, mut outcomes) = mpsc::unbounded_channel();
        let hosts = Arc::new(Hosts::new(
            Connect::new(&config, config.timeout()).await.unwrap(),
            None,
            sender,
        ));
        // Nobody listens on this port.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let target =
            Targets::new(config.subnets).read(&format!("http://127.0.0.1:{port}/")).unwrap();
        let begun = Instant::now();
        let attempt = |token| PendingRequest {
            token,
            target: Arc::clone(&target),
            message: Message::new("x"),
            dedupe_id: String::new(),
            begun,
            queued: begun,
            until: begun + Duration::from_secs(60),
            was_given_back: false,
        };
        // More than a host has slots.
        hosts.push((0..300).map(attempt).collect());
        for _ in 0..300 {
            let outcome = timeout(Duration::from_secs(60), outcomes.recv()).await.unwrap().unwrap();
            assert!(
                matches!(outcome.as_slice(), [(_, Outcome::Failed(why))] if why.contains("refused")),
                "{outcome:?}"
            );
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while !hosts.hosts.lock().is_empty() {
            assert!(Instant::now() < deadline, "the host is still known");
            sleep(Duration::from_millis(1)).await;
        }
    }
}
