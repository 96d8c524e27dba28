//! The hosts that have requests or connections, and what they share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::connection::Connect;
use super::host::{Attempt, Host};
use super::signer::Signer;
use crate::{Outcome, Token};

/// The hosts of one sink.
pub(super) struct Hosts {
    pub(super) connect: Connect,
    pub(super) signer: Option<Arc<Signer>>,
    outcomes: mpsc::UnboundedSender<Vec<(Token, Outcome)>>,
    is_closing: AtomicBool,
    /// By [`super::url::origin`]. Locked before the state of a host.
    hosts: Mutex<HashMap<Arc<str>, Arc<Host>>>,
}

impl Hosts {
    pub(super) fn new(connect: Connect, signer: Option<Arc<Signer>>, outcomes: mpsc::UnboundedSender<Vec<(Token, Outcome)>>) -> Self {
        Hosts { connect, signer, outcomes, is_closing: AtomicBool::new(false), hosts: Mutex::default() }
    }

    /// Passes attempts to their hosts.
    pub(super) fn push(self: &Arc<Self>, attempts: Vec<Attempt>) {
        let mut hosts = self.hosts.lock();
        for attempt in attempts {
            let origin = &attempt.target.origin;
            let host = match hosts.get(origin) {
                Some(host) => Arc::clone(host),
                None => {
                    let host = Arc::new(Host::new(Arc::clone(self), Arc::clone(origin), attempt.target.uri.clone()));
                    hosts.insert(Arc::clone(origin), Arc::clone(&host));
                    host
                }
            };
            // The map is locked: the host is not forgotten before it has the attempt.
            host.push(Box::new(attempt));
        }
    }

    /// Reports outcomes.
    pub(super) fn report(&self, outcomes: Vec<(Token, Outcome)>) {
        if !outcomes.is_empty() {
            // The caller may have closed its end: then nobody waits for the outcomes.
            let _ = self.outcomes.send(outcomes);
        }
    }

    /// Forgets a host without requests and connections: producers name hosts, so they may be many.
    pub(super) fn forget(&self, host: &Arc<Host>) {
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
