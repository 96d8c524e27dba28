//! Keeps the connection of a publisher up: opens it, serves it until it ends, opens it again.

use std::time::Duration;

use dwell_connectors::{Outcome, Outcomes, Token};
use tokio_util::sync::CancellationToken;

use super::{Publisher, SUSPENSION_THRESHOLD};
use crate::clock::{self, Instant};
use crate::readiness::{Outage, Readiness, Waiting};
use crate::reconnect::Backoff;

/// A sink may be silent while it owes outcomes for twice `publish_timeout`, plus this margin. A
/// client gives up a publication within one timeout, but looks once a second (Kafka), or looks up
/// the stream first for up to five seconds (NATS).
const SILENCE_MARGIN: Duration = Duration::from_secs(10);

/// Reports of the sink that are passed on together.
const BATCHES_PER_TURN: usize = 64;

/// The way a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The sink ended, with an outcome for everything that it took.
    Lost,
    /// The sink did not report outcomes any more.
    Silent,
    Stopped,
}

impl Publisher {
    /// Keeps the connection up until told to stop, starting with `opened` if there is one. Reports
    /// all outcomes.
    pub async fn run(
        &self,
        opened: Option<Outcomes>,
        readiness: &Readiness,
        stop: CancellationToken,
    ) {
        let mut outage = Outage::new(readiness, Waiting::Broker(self.inner.name.clone()));
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
                    // A client that hangs can still connect: then the backoff goes on.
                    if !silent {
                        backoff.reset();
                    }
                    outage.is_over(!silent);
                    tracing::info!(broker = self.inner.name, "publishing");
                    silent = self.serve(outcomes, &stop).await == End::Silent;
                    if stop.is_cancelled() {
                        return;
                    }
                    let place = self.inner.config.place();
                    if silent {
                        tracing::warn!(
                            broker = self.inner.name,
                            place,
                            "the connection for publishing does not report outcomes, reopening"
                        );
                        self.record_error(format!(
                            "the client for {place} reported no outcome for {:?}",
                            self.silence()
                        ));
                    } else {
                        tracing::warn!(
                            broker = self.inner.name,
                            place,
                            "connection for publishing lost, reopening"
                        );
                        self.record_error(format!("connection for publishing to {place} lost"));
                    }
                }
                Err(error) => {
                    outage.tell(error.kind, &error, &error.hint);
                    self.record_error(error);
                }
            }
            self.expire();
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
    }

    /// Serves one connection. A sink that is silent is dropped without waiting: its client may
    /// hang.
    async fn serve(&self, mut outcomes: Outcomes, stop: &CancellationToken) -> End {
        let mut batches = Vec::with_capacity(BATCHES_PER_TURN);
        let end = loop {
            let (next_deadline, silence) = {
                let pending = self.inner.pending.lock();
                (pending.earliest(), pending.silent_at(self.silence()))
            };
            tokio::select! {
                biased;
                // A sink may report each outcome alone.
                count = outcomes.recv_many(&mut batches, BATCHES_PER_TURN) => match count {
                    0 => break End::Lost,
                    _ => self.given(batches.drain(..).reduce(joined).unwrap_or_default()),
                },
                () = stop.cancelled() => break End::Stopped,
                () = at(next_deadline) => self.expire(),
                () = at(silence) => {
                    if silence.is_some_and(|moment| clock::now() < moment + SUSPENSION_THRESHOLD) {
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
        // A sink answers every token that it took before it ends: the rest came after its end and
        // was not sent.
        let outcome = match end {
            End::Lost => {
                Outcome::Refused("the connection was lost before the message was sent".to_owned())
            }
            End::Silent | End::Stopped => {
                Outcome::Unknown("the connection was closed before the confirm".to_owned())
            }
        };
        self.report(left.into_iter().map(|token| (token, outcome.clone())).collect());
        end
    }

    /// The sink reported outcomes.
    fn given(&self, batch: Vec<(Token, Outcome)>) {
        self.inner.pending.lock().given(batch.len());
        self.report(batch);
    }

    /// Returns the time for which a sink may owe outcomes without reporting any.
    fn silence(&self) -> Duration {
        self.inner.publish_timeout * 2 + SILENCE_MARGIN
    }
}

fn joined(mut one: Vec<(Token, Outcome)>, other: Vec<(Token, Outcome)>) -> Vec<(Token, Outcome)> {
    one.extend(other);
    one
}

/// Waits until this instant, or for ever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => clock::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
