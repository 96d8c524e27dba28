//! Middleware before handlers: layers of [`tower`](https://docs.rs/tower), such as limits,
//! time-outs and load shedding.
//!
//! An error of the handler is a failed attempt, however a layer wraps it. An error of a layer
//! itself ("overloaded", "timed out") is no fault of the job: the job goes back without an attempt
//! burned, due in a second. So a job that is always too slow for a time-out goes round for ever;
//! let the handler itself limit its time where that must count as a failure.
//!
//! ```
//! use dwell_engine::Job;
//! use dwell_engine::worker::{Context, Outcome, Routes};
//! use tower::limit::ConcurrencyLimitLayer;
//!
//! async fn send(job: Job, _: Context) -> Result<Outcome, std::convert::Infallible> {
//!     println!("{} bytes", job.body.len());
//!     Ok(Outcome::Finish)
//! }
//!
//! let routes = Routes::new().queue("emails", send).layer(ConcurrencyLimitLayer::new(4));
//! # drop(routes);
//! ```

use std::error::Error;
use std::sync::Arc;
use std::task::{self, Poll};

use dwell_store::job::Job;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tower_layer::Layer;
use tower_service::Service;

use super::handler::{Ended, Failure, Handler};
use super::routes::Route;
use super::{Context, Outcome, Routes, Worker};

/// An attempt as a layer sees it: the request of the service.
#[derive(Debug, Clone)]
pub struct HandlerRequest {
    /// The job.
    pub job: Job,
    /// The attempt.
    pub context: Context,
}

/// A handler as a service, with the layers before it so far, which a layer wraps.
pub struct HandlerService(Box<dyn CloneService>);

/// The error of a handler, as a [`HandlerService`] returns it. A layer may wrap it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct HandlerError {
    text: String,
    /// An inner layer rejected the job.
    is_rejection: bool,
}

/// The error of a layered service.
type BoxError = Box<dyn Error + Send + Sync>;

/// A [`Service`] whose type is forgotten.
trait CloneService: Send {
    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), HandlerError>>;
    fn call(
        &mut self,
        attempt: HandlerRequest,
    ) -> BoxFuture<'static, Result<Outcome, HandlerError>>;
    fn clone(&self) -> Box<dyn CloneService>;
}

/// A handler without a layer.
struct Bare(Arc<dyn Handler>);

impl CloneService for Bare {
    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), HandlerError>> {
        Poll::Ready(Ok(()))
    }

    fn call(
        &mut self,
        HandlerRequest { job, context }: HandlerRequest,
    ) -> BoxFuture<'static, Result<Outcome, HandlerError>> {
        let ended = self.0.call(job, context);
        ended.map(|ended| ended.map_err(HandlerError::from)).boxed()
    }

    fn clone(&self) -> Box<dyn CloneService> {
        Box::new(Bare(self.0.clone()))
    }
}

/// A layer and the service that it wraps.
struct Wrapped<S>(S);

impl<S> CloneService for Wrapped<S>
where
    S: Service<HandlerRequest, Response = Outcome> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), HandlerError>> {
        self.0.poll_ready(context).map_err(|error| failure_of(&*error.into()))
    }

    fn call(
        &mut self,
        attempt: HandlerRequest,
    ) -> BoxFuture<'static, Result<Outcome, HandlerError>> {
        self.0
            .call(attempt)
            .map(|called| called.map_err(|error| failure_of(&*error.into())))
            .boxed()
    }

    fn clone(&self) -> Box<dyn CloneService> {
        Box::new(Wrapped(self.0.clone()))
    }
}

impl Clone for HandlerService {
    fn clone(&self) -> Self {
        HandlerService(self.0.clone())
    }
}

impl Service<HandlerRequest> for HandlerService {
    type Response = Outcome;
    type Error = HandlerError;
    type Future = BoxFuture<'static, Result<Outcome, HandlerError>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), HandlerError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, attempt: HandlerRequest) -> Self::Future {
        self.0.call(attempt)
    }
}

impl From<Failure> for HandlerError {
    fn from(failure: Failure) -> HandlerError {
        match failure {
            Failure::Handler(text) => HandlerError { text, is_rejection: false },
            Failure::Rejected(text) => HandlerError { text, is_rejection: true },
        }
    }
}

impl From<HandlerError> for Failure {
    fn from(HandlerError { text, is_rejection }: HandlerError) -> Failure {
        if is_rejection { Failure::Rejected(text) } else { Failure::Handler(text) }
    }
}

impl std::fmt::Debug for HandlerService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandlerService")
    }
}

impl Routes {
    /// Puts this layer before the handlers added so far. A layer that is added later sees a job
    /// earlier. Each attempt gets a clone of the service.
    pub fn layer<L>(mut self, layer: L) -> Routes
    where
        L: Layer<HandlerService>,
        L::Service: Service<HandlerRequest, Response = Outcome> + Clone + Send + 'static,
        <L::Service as Service<HandlerRequest>>::Error: Into<BoxError>,
        <L::Service as Service<HandlerRequest>>::Future: Send,
    {
        for Route { handler, .. } in &mut self.routes {
            let inner = handler
                .service()
                .unwrap_or_else(|| HandlerService(Box::new(Bare(handler.clone()))));
            let service = HandlerService(Box::new(Wrapped(layer.layer(inner))));
            *handler = Arc::new(Layered(Mutex::new(service)));
        }
        self
    }
}

impl Worker {
    /// As [`Routes::layer`].
    pub fn layer<L>(mut self, layer: L) -> Worker
    where
        L: Layer<HandlerService>,
        L::Service: Service<HandlerRequest, Response = Outcome> + Clone + Send + 'static,
        <L::Service as Service<HandlerRequest>>::Error: Into<BoxError>,
        <L::Service as Service<HandlerRequest>>::Future: Send,
    {
        self.routes = self.routes.layer(layer);
        self
    }
}

/// A layered service as a handler. Locked to be cloned.
struct Layered(Mutex<HandlerService>);

impl Handler for Layered {
    fn call(&self, job: Job, context: Context) -> BoxFuture<'static, Ended> {
        let mut service = self.0.lock().clone();
        async move {
            std::future::poll_fn(|context| service.poll_ready(context)).await?;
            Ok(service.call(HandlerRequest { job, context }).await?)
        }
        .boxed()
    }

    fn service(&self) -> Option<HandlerService> {
        Some(self.0.lock().clone())
    }
}

/// The handler's error in the chain of sources; without one, the rejection of a layer.
fn failure_of(error: &(dyn Error + 'static)) -> HandlerError {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(of_handler) = error.downcast_ref::<HandlerError>() {
            return of_handler.clone();
        }
        source = error.source();
    }
    tracing::debug!(%error, "a layer rejected a job, it goes back");
    HandlerError { text: error.to_string(), is_rejection: true }
}
