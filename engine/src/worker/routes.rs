//! The handlers by their queues.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use dwell_store::job::Job;
use dwell_store::store::error::{Class, ErrorKind, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::handler::{Ended, Failure, Handler};
use super::{Context, Outcome, Task, task};
use crate::client::queues::refuse_invalid_queue;

/// Handlers, each with its queue: the application defines them once, for its
/// [`Worker`](super::Worker) and for its [tests](crate::testing::TestQueue).
#[derive(Clone, Default)]
#[must_use = "routes do nothing without a worker"]
pub struct Routes {
    pub(crate) routes: Vec<Route>,
}

/// A queue and its handler.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) queue: Arc<str>,
    pub(crate) handler: Arc<dyn Handler>,
}

impl Routes {
    /// No queue.
    pub fn new() -> Routes {
        Routes::default()
    }

    /// Runs this handler for each job of the queue: an `async` function, or a closure that returns
    /// a future, of job and context. The error is kept with the job as text, of at most 4 400
    /// bytes.
    pub fn queue<F, Fut, E>(mut self, queue: impl Into<String>, handler: F) -> Routes
    where
        F: Fn(Job, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display + 'static,
    {
        let handler = move |job: Job, context: Context| -> BoxFuture<'static, Ended> {
            ended(handler(job, context)).boxed()
        };
        self.routes.push(Route { queue: queue.into().into(), handler: Arc::new(handler) });
        self
    }

    /// Runs this handler for each task of the type, from the queue of the type. A payload that
    /// cannot be read is a failed attempt: a later version of the application may be able to.
    pub fn task<T, F, Fut, E>(mut self, handler: F) -> Routes
    where
        T: Task,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display + 'static,
    {
        let handler = move |job: Job, context: Context| -> BoxFuture<'static, Ended> {
            match task::read::<T>(&job.body) {
                Ok(task) => ended(handler(task, context)).boxed(),
                Err(why) => std::future::ready(Err(Failure::Handler(why))).boxed(),
            }
        };
        self.routes.push(Route { queue: T::QUEUE.into(), handler: Arc::new(handler) });
        self
    }

    /// These routes, and then others.
    pub fn with(mut self, mut others: Routes) -> Routes {
        self.routes.append(&mut others.routes);
        self
    }

    /// The routes, if a worker can serve them.
    pub(crate) fn into_checked(self) -> Result<Vec<Route>, StoreError> {
        let refuse =
            |message: String, hint: &str| Err(StoreError::new(Class::Settings, message).hint(hint));
        if self.routes.is_empty() {
            return refuse(
                "the worker has no queue".to_owned(),
                "add one by Worker::queue or Worker::task",
            );
        }
        for (at, route) in self.routes.iter().enumerate() {
            refuse_invalid_queue(&route.queue).map_err(|mut error| {
                error.class = Class::Settings;
                error.of_kind(ErrorKind::Configuration)
            })?;
            if self.routes[..at].iter().any(|other| other.queue == route.queue) {
                return refuse(
                    format!("two handlers serve the queue `{}`", route.queue),
                    "give each handler a queue of its own",
                );
            }
        }
        Ok(self.routes)
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.routes.iter().map(|route| &route.queue)).finish()
    }
}

/// The end of a handler, with its error as text.
async fn ended<E: Display>(handling: impl Future<Output = Result<Outcome, E>>) -> Ended {
    handling.await.map_err(|error| Failure::Handler(error.to_string()))
}
