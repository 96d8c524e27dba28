//! Finds or declares the destinations that an agent needs beside its own, at its start and later: a
//! server can come back without them.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::needed::{Needed, declare_missing};
use super::wait::StartWait;
use super::{AgentEnd, Cause, StartError};
use crate::clock;
use crate::config::Broker;
use crate::publisher::Publisher;
use crate::readiness::{Outage, Readiness, Waiting};
use crate::reconnect::Backoff;

/// The interval between further looks at destinations that were found, beside each new connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The destinations that one agent needs at one broker.
#[derive(Clone)]
pub(super) struct Letters {
    pub(super) name: String,
    pub(super) broker: Broker,
    pub(super) publisher: Publisher,
    pub(super) needed: Vec<Needed>,
    pub(super) readiness: Readiness,
}

impl Letters {
    fn waiting(&self, needed: &Needed) -> Waiting {
        Waiting::Destination { setting: needed.setting.clone(), broker: self.name.clone() }
    }

    /// Lists it as missing.
    pub(super) fn missing(&self, needed: &Needed, error: &StartError) {
        self.readiness.missing(&self.waiting(needed), &error.message);
    }

    async fn find(&self, needed: &Needed) -> Result<(), StartError> {
        match self.publisher.exists(&needed.to).await? {
            true => Ok(()),
            false => declare_missing(&self.broker, &self.name, needed).await,
        }
    }

    /// Looks for each once.
    pub(super) async fn find_all(&self) -> Result<(), StartError> {
        let found = join_all(self.needed.iter().map(|needed| self.find(needed))).await;
        StartError::joined(found.into_iter().filter_map(Result::err)).map_or(Ok(()), Err)
    }

    /// Waits for each as the start does, then keeps them.
    pub(super) async fn find_and_keep(self, wait: StartWait, stop: CancellationToken) -> AgentEnd {
        for needed in &self.needed {
            let waiting = self.waiting(needed);
            let find = async || {
                // The publisher tells of a broker that is away. The sender lives in it.
                let _ = self.publisher.connected().wait_for(|up| *up).await;
                self.find(needed).await
            };
            tokio::select! {
                () = stop.cancelled() => return Ok("a search"),
                found = wait.until_reached(&waiting, find) => found?,
            }
            self.readiness.reached(&waiting);
        }
        self.keep(&stop).await;
        Ok("a search")
    }

    /// Looks for each after each connect and every [`CHECK_INTERVAL`], until told to stop. The
    /// agent goes on meanwhile.
    pub(super) async fn keep(&self, stop: &CancellationToken) {
        let keeping = join_all(self.needed.iter().map(|needed| self.keep_one(needed)));
        // Each goes on for ever; but there may be none.
        let keeping = async {
            keeping.await;
            std::future::pending().await
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = keeping => {}
        }
    }

    async fn keep_one(&self, needed: &Needed) {
        let mut outage = Outage::new(&self.readiness, self.waiting(needed));
        let mut backoff = Backoff::link();
        let mut connected = self.publisher.connected();
        loop {
            // The sender lives in the publisher.
            let _ = connected.wait_for(|up| *up).await;
            match self.find(needed).await {
                Ok(()) => {
                    outage.is_over(true);
                    backoff.reset();
                    let _ = clock::timeout(CHECK_INTERVAL, connected.wait_for(|up| !*up)).await;
                    continue;
                }
                // The publisher tells of it.
                Err(error) if error.cause == Cause::Unreachable => {}
                Err(error) => outage.tell(error.cause.kind(), &error, &error.hint),
            }
            clock::sleep(backoff.pause()).await;
        }
    }
}
