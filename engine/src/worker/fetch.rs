//! Pops the jobs of one queue and starts a handler for each, as many at a time as are allowed.

use std::sync::Arc;
use std::time::Duration;

use dwell_store::clock::{self, micros};
use dwell_store::consumers::Consumers;
use dwell_store::reconnect::Backoff;
use dwell_store::store::jobs::acknowledge::Acknowledgement;
use dwell_store::store::jobs::pop::Popped;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Context;
use super::acknowledgements::Acknowledgements;
use super::handler::{self, action_of, release};
use super::leases::Leases;
use super::routes::Route;
use crate::client::Client;
use crate::client::queues::Pop;

/// The longest wait of one pop for a job.
const POP_WAIT: Duration = Duration::from_secs(30);
/// The most jobs of one pop: their handlers run while the next ones are fetched.
const MAX_POP_JOBS: usize = 256;
/// The time for handlers to end after they were cancelled, and for unstarted jobs to go back.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// The loop of one queue.
pub(super) struct Fetch {
    pub(super) client: Client,
    /// The consumers whose waiting pops end when the worker stops.
    pub(super) consumers: Consumers,
    pub(super) route: Route,
    pub(super) concurrency: usize,
    pub(super) ttr: Option<Duration>,
    pub(super) leases: Arc<Leases>,
    pub(super) acknowledgements: Acknowledgements,
}

impl Fetch {
    /// Serves the queue until told to stop, then lets the handlers end, at most for `drain`, and
    /// aborts the rest. The leases of aborted handlers stay.
    pub(super) async fn run(self, stop: CancellationToken, drain: Duration) {
        let mut handlers = JoinSet::new();
        let mut backoff = Backoff::link();
        while !stop.is_cancelled() {
            self.wait_for_room(&mut handlers, &stop).await;
            let free = self.concurrency - handlers.len().min(self.concurrency);
            let mut pop =
                Pop::from_queue(&*self.route.queue).max(free.min(MAX_POP_JOBS)).wait(POP_WAIT);
            if let Some(ttr) = self.ttr {
                pop = pop.ttr(ttr);
            }
            match self.consumers.pop(&pop.request()).await {
                Ok(popped) if stop.is_cancelled() => {
                    // Dropped, the jobs would go back in the background, which the end of the
                    // process stops.
                    for Popped { id, lease, .. } in popped.sent() {
                        self.acknowledgements
                            .send((
                                Acknowledgement { id, lease, action: release(Duration::ZERO) },
                                clock::now() + CANCEL_GRACE,
                            ))
                            .await;
                    }
                }
                Ok(popped) => {
                    backoff.reset();
                    popped.sent().into_iter().for_each(|job| self.start(&mut handlers, job));
                }
                Err(error) => {
                    if !error.is_told() {
                        tracing::warn!(queue = &*self.route.queue, %error, hint = error.hint, "fetching jobs failed, trying again");
                    }
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = clock::sleep(backoff.pause()) => {}
                    }
                }
            }
        }
        self.drain(handlers, drain).await;
    }

    /// Waits until another handler may start.
    async fn wait_for_room(&self, handlers: &mut JoinSet<()>, stop: &CancellationToken) {
        while handlers.try_join_next().is_some() {}
        while handlers.len() >= self.concurrency && !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                _ = handlers.join_next() => {
                    // Other handlers that are about to end make the next pop larger.
                    tokio::task::yield_now().await;
                    while handlers.try_join_next().is_some() {}
                }
            }
        }
    }

    /// Starts the handler of a job.
    fn start(&self, handlers: &mut JoinSet<()>, popped: Popped) {
        let popped = self.client.with_wait(popped);
        let ahead_us =
            popped.deadline_ms.saturating_mul(1000).saturating_sub(self.client.store.now_us());
        let deadline = clock::now() + micros(ahead_us);
        let times = (popped.due_ms(), popped.deadline_ms);
        let Popped { id, lease, record, state, .. } = popped;
        let context = Context::new(
            id,
            self.route.queue.clone(),
            state.attempt,
            times,
            record.job.headers.clone(),
        );
        let master = self.consumers.store().master_of_job(context.id());
        let key = self.leases.begin(lease, context.clone(), deadline, master);
        let (leases, acknowledgements, handler) =
            (self.leases.clone(), self.acknowledgements.clone(), self.route.handler.clone());
        handlers.spawn(async move {
            let ended = handler::run(handler, record.job, context.clone()).await;
            let Some(over) = leases.end(key) else { return };
            if over.is_lost {
                tracing::debug!(id = %context.id(), ?ended, "a handler ended whose job was not its own any more");
                return;
            }
            let action = action_of(ended, &over.lease, over.is_draining);
            let id = context.id().clone();
            acknowledgements
                .send((Acknowledgement { id, lease: over.lease, action }, over.deadline))
                .await;
        });
    }

    async fn drain(&self, mut handlers: JoinSet<()>, limit: Duration) {
        if !handlers.is_empty() {
            tracing::info!(
                queue = &*self.route.queue,
                running = handlers.len(),
                "the worker waits for its handlers"
            );
        }
        if clock::timeout(limit, all(&mut handlers)).await.is_some() {
            return;
        }
        self.leases.cancel_all();
        if clock::timeout(CANCEL_GRACE, all(&mut handlers)).await.is_none() {
            tracing::warn!(
                queue = &*self.route.queue,
                running = handlers.len(),
                "handlers did not end in time, their jobs are given back"
            );
        }
        // Dropping aborts the handlers at once; a handler that blocks its thread goes on until it
        // awaits.
    }
}

async fn all(handlers: &mut JoinSet<()>) {
    while handlers.join_next().await.is_some() {}
}
