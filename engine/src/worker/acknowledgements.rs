//! Sends the answers of handlers, to each master of a cluster by itself: a master that hangs delays
//! the acknowledgements of its own jobs, and no others. Acknowledgements that come while a call is
//! on its way share the next one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dwell_store::clock::{self, Instant};
use dwell_store::consumers::Consumers;
use dwell_store::reconnect::Backoff;
use dwell_store::store::error::Class;
use dwell_store::store::jobs::acknowledge::{Acknowledgement, LeaseAction, LeaseVerdict};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The most acknowledgements of one call.
const MAX_PER_CALL: usize = 1024;
/// The most calls to one master on their way. A single call would leave Redis idle while its answer
/// travels.
const MAX_CONCURRENT_CALLS: usize = 2;
/// The most acknowledgements that wait for one master. Further handlers of its jobs wait with their
/// answers.
const MAX_QUEUED_ACKNOWLEDGEMENTS: usize = 8192;
/// The pauses between two tries of one call.
const RETRY_PAUSE_BOUNDS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// An acknowledgement and the deadline after which it has no effect.
pub(super) type Queued = (Acknowledgement, Instant);

/// The sender for the acknowledgements of handlers. [`send`] carries them out until every clone is
/// dropped. Cheap to clone.
#[derive(Clone)]
pub(super) struct Acknowledgements(Arc<Senders>);

/// The other end of [`Acknowledgements`]: the receiver of each master, as its first acknowledgement
/// comes.
pub(super) type Receivers = mpsc::UnboundedReceiver<mpsc::Receiver<Queued>>;

struct Senders {
    consumers: Consumers,
    /// The sender of each master; without a cluster, one.
    by_master: Mutex<HashMap<Option<String>, mpsc::Sender<Queued>>>,
    opened: mpsc::UnboundedSender<mpsc::Receiver<Queued>>,
}

/// Makes the two ends.
pub(super) fn channel(consumers: Consumers) -> (Acknowledgements, Receivers) {
    let (opened, receivers) = mpsc::unbounded_channel();
    let senders = Senders { consumers, by_master: Mutex::default(), opened };
    (Acknowledgements(Arc::new(senders)), receivers)
}

impl Acknowledgements {
    /// Queues an acknowledgement. Waits while too many wait for its master.
    pub(super) async fn send(&self, queued: Queued) {
        let sender = self.0.sender_to(self.0.consumers.store().master_of_job(&queued.0.id));
        // Only a worker that was dropped receives nothing.
        let _ = sender.send(queued).await;
    }
}

impl Senders {
    fn sender_to(&self, master: Option<String>) -> mpsc::Sender<Queued> {
        let mut by_master = self.by_master.lock();
        if !by_master.contains_key(&master) {
            // A master that is gone leaves nothing behind; an idle one gets another sender.
            by_master.retain(|_, sender| sender.capacity() < sender.max_capacity());
        }
        let sender = by_master.entry(master).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(MAX_QUEUED_ACKNOWLEDGEMENTS);
            // Only a worker that was dropped receives nothing.
            let _ = self.opened.send(receiver);
            sender
        });
        sender.clone()
    }
}

/// Sends acknowledgements until the last sender is dropped.
pub(super) async fn send(consumers: Consumers, mut receivers: Receivers) {
    // Dropping the set, with this future, ends every task.
    let mut masters = JoinSet::new();
    while let Some(acknowledgements) = receivers.recv().await {
        while masters.try_join_next().is_some() {}
        masters.spawn(send_to_master(consumers.clone(), acknowledgements));
    }
    while masters.join_next().await.is_some() {}
}

/// Sends the acknowledgements of one master until its last sender is dropped.
async fn send_to_master(consumers: Consumers, mut acknowledgements: mpsc::Receiver<Queued>) {
    let mut calls = FuturesUnordered::new();
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            count = acknowledgements.recv_many(&mut batch, MAX_PER_CALL), if calls.len() < MAX_CONCURRENT_CALLS => {
                if count == 0 {
                    break;
                }
                calls.push(send_batch(&consumers, batch));
            }
            Some(()) = calls.next(), if !calls.is_empty() => {}
        }
    }
    while calls.next().await.is_some() {}
}

/// Sends these acknowledgements until each has an answer, or its lease is over.
async fn send_batch(consumers: &Consumers, mut batch: Vec<Queued>) {
    let [least, most] = RETRY_PAUSE_BOUNDS;
    let mut backoff = Backoff::new(least, most);
    loop {
        let acknowledgements: Vec<Acknowledgement> =
            batch.iter().map(|(acknowledgement, _)| acknowledgement.clone()).collect();
        let mut answers = consumers.acknowledge(&acknowledgements).await.into_iter();
        let now = clock::now();
        batch.retain(|(said, deadline)| match answers.next() {
            Some(Ok(answer)) => {
                report(said, answer.verdict);
                false
            }
            Some(Err(error)) if error.class == Class::Script || *deadline <= now => {
                tracing::error!(id = %said.id, queue = said.lease.queue, %error, "what a handler answered did not reach redis, the job runs again");
                false
            }
            Some(Err(error)) => {
                tracing::debug!(id = %said.id, %error, "what a handler answered did not reach redis yet");
                true
            }
            None => false,
        });
        if batch.is_empty() {
            return;
        }
        clock::sleep(backoff.pause()).await;
    }
}

/// Logs a verdict that is not the expected one.
fn report(said: &Acknowledgement, verdict: LeaseVerdict) {
    match (&said.action, verdict) {
        (LeaseAction::Fail { error, .. }, LeaseVerdict::Dead) => {
            tracing::warn!(id = %said.id, queue = said.lease.queue, error, "the last attempt failed, the job is dead");
        }
        (LeaseAction::Fail { error, .. }, LeaseVerdict::Failed) => {
            tracing::debug!(id = %said.id, queue = said.lease.queue, error, "an attempt failed")
        }
        // A repeat of an action that was carried out, or a job that another caller finished.
        (_, LeaseVerdict::Fired | LeaseVerdict::NotFound) => {}
        (_, LeaseVerdict::Stale) => {
            tracing::warn!(id = %said.id, queue = said.lease.queue, "the lease was over before the handler answered, the job may run again");
        }
        _ => {}
    }
}
