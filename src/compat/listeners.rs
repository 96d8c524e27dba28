//! The listeners of `[compat]`, from their addresses to their end.

use std::io;

use axum::Router;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::service::Service;
use super::{delay_queue, lmstfy};
use crate::config::Compat;
use crate::http::server::account::Memory;
use crate::http::{ListenError, Listener, Room, StartGate};

/// A listener that is bound.
#[derive(Debug)]
pub struct Bound {
    listener: Listener,
    router: fn(Service, Access) -> Router,
}

/// A listener that answers: 503 until it is opened.
#[derive(Debug)]
pub struct Serving {
    gate: StartGate,
    router: fn(Service, Access) -> Router,
    task: JoinHandle<io::Result<()>>,
}

/// Binds the listeners that the settings name, within the room and the memory of all.
///
/// # Errors
/// An address cannot be listened on.
pub async fn bind(
    settings: &Compat,
    room: &Room,
    memory: &Memory,
) -> Result<Vec<Bound>, ListenError> {
    let mut bound = Vec::new();
    if let Some(listen) = &*settings.delay_queue {
        let listener = Listener::bind("compat.delay_queue", listen)
            .await?
            .for_consumers()
            .within(room, memory);
        tracing::info!(address = %listener.address(), "listener for clients of delay-queue");
        bound.push(Bound { listener, router: delay_queue::router });
    }
    if let Some(listen) = &*settings.lmstfy {
        let listener =
            Listener::bind("compat.lmstfy", listen).await?.for_consumers().within(room, memory);
        tracing::info!(address = %listener.address(), "listener for clients of lmstfy");
        bound.push(Bound { listener, router: lmstfy::router });
    }
    Ok(bound)
}

impl Bound {
    /// Answers until `stop`.
    #[must_use]
    pub fn serve(self, stop: CancellationToken) -> Serving {
        let gate = StartGate::default();
        let task = tokio::spawn(self.listener.serve(gate.router(), stop));
        Serving { gate, router: self.router, task }
    }
}

impl Serving {
    /// Carries out all further calls.
    pub fn open(&self, service: &Service, access: &Access) {
        self.gate.open((self.router)(service.clone(), access.clone()));
    }

    /// Waits for the end, after `stop`.
    pub async fn ended(self) {
        if let Ok(Err(error)) = self.task.await {
            tracing::warn!(%error, "a listener ended with an error");
        }
    }
}
