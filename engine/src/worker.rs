//! Runs handlers for the jobs of queues inside an application, which needs nothing but a Redis.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use dwell_engine::worker::{Context, Outcome, Task, Worker};
//! use dwell_engine::{Client, Redis};
//! use serde::{Deserialize, Serialize};
//! use tokio_util::sync::CancellationToken;
//!
//! #[derive(Serialize, Deserialize)]
//! struct CloseOrder {
//!     order: u64,
//! }
//!
//! impl Task for CloseOrder {
//!     const QUEUE: &'static str = "orders.close";
//! }
//!
//! async fn close(task: CloseOrder, context: Context) -> Result<Outcome, std::io::Error> {
//!     println!("order {} is not paid, attempt {}", task.order, context.attempt());
//!     Ok(Outcome::Finish)
//! }
//!
//! # async fn example() -> Result<(), dwell_engine::Error> {
//! let client = Client::connect(&Redis::new("redis://127.0.0.1:6379"), &[]).await?;
//! client.enqueue(&CloseOrder { order: 17 }, Duration::from_secs(30 * 60)).await?;
//!
//! let stop = CancellationToken::new();
//! Worker::new(client).task(close).concurrency(32).drain(Duration::from_secs(20)).run(stop).await
//! # }
//! ```
//!
//! # Map
//!
//! - [`Worker`]: the queues that a process serves, and its limits. [`Routes`]: the handlers by
//!   queue, which a [`TestQueue`](crate::testing::TestQueue) runs as well.
//! - [`Outcome`]: the answer of a handler. [`Context`]: the attempt of a handler.
//! - [`Task`]: a payload in JSON, with the name of its queue.
//! - `service` (feature `tower`): middleware.
//! - `agents`: starts, runs and drains the other agents; `fetch`: pops and starts handlers;
//!   `leases`: prolongs leases; `acknowledgements`: sends the answers of handlers; `maintenance_options`:
//!   the options of the maintenance.

mod acknowledgements;
mod agents;
mod context;
mod fetch;
pub(crate) mod handler;
mod leases;
mod maintenance_options;
mod routes;
#[cfg(feature = "tower")]
pub mod service;
mod task;

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use dwell_store::job::Job;
use dwell_store::store::error::StoreError;
use tokio_util::sync::CancellationToken;

pub use self::context::Context;
pub use self::handler::Outcome;
pub use self::routes::Routes;
pub use self::task::Task;
use crate::client::Client;

/// The default of [`Worker::concurrency`].
const DEFAULT_CONCURRENCY: usize = 16;
/// The default of [`Worker::drain`].
const DEFAULT_DRAIN: Duration = Duration::from_secs(25);
/// The default of [`Worker::dead_retention`]: the sidecar's `dead_retention`.
const DEFAULT_DEAD_RETENTION: Duration = Duration::from_secs(14 * 24 * 3600);

/// Fetches the jobs of queues and runs a handler for each.
///
/// While a handler runs, the worker prolongs the job's lease at each third of its TTR. A handler
/// that answers `Err` or panics has failed its attempt: the job waits for the next wait of its
/// retry array, and is dead at the end of it. A job may run twice: after a crash, after a lost
/// lease, and where the answer of a handler did not reach Redis in time.
///
/// Workers of one namespace, and the instances of the sidecar, share the upkeep of all its jobs:
/// the jobs of a killed worker are handed out again once their leases are over. A worker delivers
/// no jobs of brokers.
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    client: Client,
    routes: Routes,
    rules: WorkerRules,
}

/// The settings of a worker.
#[derive(Debug, Clone, Copy)]
struct WorkerRules {
    concurrency: usize,
    drain: Duration,
    dead_retention: Duration,
    ttr: Option<Duration>,
}

impl Worker {
    /// A worker in the namespace of this client, without a queue.
    pub fn new(client: Client) -> Worker {
        let rules = WorkerRules {
            concurrency: DEFAULT_CONCURRENCY,
            drain: DEFAULT_DRAIN,
            dead_retention: DEFAULT_DEAD_RETENTION,
            ttr: None,
        };
        Worker { client, routes: Routes::new(), rules }
    }

    /// As [`Routes::queue`].
    pub fn queue<F, Fut, E>(mut self, queue: impl Into<String>, handler: F) -> Worker
    where
        F: Fn(Job, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display + 'static,
    {
        self.routes = self.routes.queue(queue, handler);
        self
    }

    /// As [`Routes::task`].
    pub fn task<T, F, Fut, E>(mut self, handler: F) -> Worker
    where
        T: Task,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display + 'static,
    {
        self.routes = self.routes.task(handler);
        self
    }

    /// Serves these queues as well.
    pub fn routes(mut self, routes: Routes) -> Worker {
        self.routes = self.routes.with(routes);
        self
    }

    /// The number of jobs of each queue that run at a time, at least 1. Default: 16.
    pub fn concurrency(mut self, jobs: usize) -> Worker {
        self.rules.concurrency = jobs.max(1);
        self
    }

    /// The longest time for handlers to end once the worker is told to stop. Default: 25 s.
    pub fn drain(mut self, limit: Duration) -> Worker {
        self.rules.drain = limit;
        self
    }

    /// The retention of dead jobs of these queues. Default: 14 days. Workers of one queue should
    /// agree: the shortest time counts.
    pub fn dead_retention(mut self, retention: Duration) -> Worker {
        self.rules.dead_retention = retention;
        self
    }

    /// The span of a lease until it is prolonged, at least 100 ms: also the delay until the job of
    /// a killed worker is handed out again. Default: the TTR of each job.
    pub fn ttr(mut self, ttr: Duration) -> Worker {
        self.rules.ttr = Some(ttr.max(Duration::from_millis(100)));
        self
    }

    /// Serves the queues until `stop` is cancelled. Then fetches nothing more and waits for the
    /// handlers, at most for [`drain`](Worker::drain). After that it cancels
    /// [`Context::cancellation`], ends the handlers that still run a second later, and gives their
    /// jobs back, which burns no attempt: another worker gets them at once.
    ///
    /// Dropping this future ends the handlers without that: their jobs are handed out again once
    /// their leases are over.
    ///
    /// # Errors
    /// [`Configuration`](crate::ErrorKind::Configuration) where there is no queue, where two
    /// handlers have the same queue, or where the name of a queue cannot be used. While Redis is
    /// away the worker waits for it.
    pub async fn run(self, stop: CancellationToken) -> Result<(), StoreError> {
        let routes = self.routes.into_checked()?;
        agents::run(self.client, routes, self.rules, stop).await;
        Ok(())
    }
}
