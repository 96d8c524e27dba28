//! Keeps the link of a publisher up: opened, served until it ends, opened again.

use std::time::Duration;

use dwell_connectors::{Outcome, Outcomes, Token};
use tokio_util::sync::CancellationToken;

use super::{OVERSLEPT, Publisher};
use crate::clock::{self, Instant};
use crate::reconnect::Backoff;

/// A sink may say nothing while it owes outcomes for twice `publish_timeout`, and this. A client gives each up within one, and looks for those once a
/// second (Kafka), or asks first whether there is a stream, for up to five (NATS).
const SILENCE_MARGIN: Duration = Duration::from_secs(10);

/// How one life of a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The sink ended, and has answered all that it took.
    Lost,
    /// It said nothing any more.
    Silent,
    Stopped,
}

impl Publisher {
    /// Keeps the link up until told to stop, beginning with `opened` where that is open already. Reports outcomes, and those that do not come.
    pub async fn run(&self, opened: Option<Outcomes>, stop: CancellationToken) {
        let mut backoff = Backoff::link();
        let mut opened = opened;
        let mut silent = false;
        loop {
            let opening = async {
                match opened.take() {
                    Some(outcomes) => Ok(outcomes),
                    None => self.open().await,
                }
            };
            let open = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                open = opening => open,
            };
            match open {
                Ok(outcomes) => {
                    // To open is easy for a client that then stands still.
                    if !silent {
                        backoff.reset();
                    }
                    tracing::info!(broker = self.inner.name, "publishing");
                    silent = self.serve(outcomes, &stop).await == End::Silent;
                    if stop.is_cancelled() {
                        return;
                    }
                    let place = self.inner.config.place();
                    if silent {
                        tracing::warn!(broker = self.inner.name, place, "link for publishing is silent, reopening");
                        self.tell(format!("the client for {place} told no outcome for {:?}", self.silence()));
                    } else {
                        tracing::warn!(broker = self.inner.name, place, "link for publishing lost, reopening");
                        self.tell(format!("link for publishing to {place} lost"));
                    }
                }
                Err(error) => {
                    tracing::warn!(broker = self.inner.name, %error, hint = error.hint, "no link for publishing, trying again");
                    self.tell(error);
                }
            }
            self.expire();
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
    }

    /// One life of a link. A sink that says nothing any more is left to itself: its client may stand still.
    async fn serve(&self, mut outcomes: Outcomes, stop: &CancellationToken) -> End {
        let end = loop {
            let (next_deadline, silence) = {
                let pending = self.inner.pending.lock();
                (pending.earliest(), pending.silent_at(self.silence()))
            };
            tokio::select! {
                biased;
                batch = outcomes.recv() => match batch {
                    Some(batch) => self.given(batch),
                    None => break End::Lost,
                },
                () = stop.cancelled() => break End::Stopped,
                () = at(next_deadline) => self.expire(),
                () = at(silence) => {
                    if silence.is_some_and(|moment| clock::now() < moment + OVERSLEPT) {
                        break End::Silent;
                    }
                    self.inner.pending.lock().given(0);
                }
                () = self.inner.sooner.notified() => {}
            }
        };
        while let Ok(batch) = outcomes.try_recv() {
            self.given(batch);
        }
        let left: Vec<Token> = {
            let mut pending = self.inner.pending.lock();
            *self.inner.sink.write() = None;
            pending.forgive();
            pending.owners.keys().copied().collect()
        };
        *self.inner.lost.lock() = clock::now();
        self.set_connected(false);
        // A sink answers every token that it took before it ends: what it left open came to it afterwards, and was not sent.
        let outcome = match end {
            End::Lost => Outcome::Refused("the link was lost before it was handed over".to_owned()),
            End::Silent | End::Stopped => Outcome::Unknown("the link was left before the confirm".to_owned()),
        };
        self.report(left.into_iter().map(|token| (token, outcome.clone())).collect());
        end
    }

    /// The sink gave outcomes.
    fn given(&self, batch: Vec<(Token, Outcome)>) {
        self.inner.pending.lock().given(batch.len());
        self.report(batch);
    }

    /// For how long a sink may say nothing while it owes outcomes.
    fn silence(&self) -> Duration {
        self.inner.publish_timeout * 2 + SILENCE_MARGIN
    }
}

/// At this moment, or never.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => clock::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
