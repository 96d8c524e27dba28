//! A producer and a consumer, over the same connectors as the runtime.

use std::time::Duration;

use dwell_connectors::{
    Acks, BrokerConfig, ConnectorError, Destination, Message, Outcome, Outcomes, Publication, Sink,
    SourceOptions, Start, Token,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Result;
use dwell::clock;

/// The most publications of a producer without a confirm.
const WINDOW_PUBLICATIONS: usize = 2048;
/// The most publications handed over at once.
const CHUNK_PUBLICATIONS: usize = 256;
/// The most bytes without a confirm, roughly: NATS refuses more than 128 MiB of unwritten data.
const WINDOW_BYTES: usize = 32 << 20;
/// The longest wait for a confirm.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(15);

/// Publishes with confirms, many at a time.
pub struct Producer {
    sink: Box<dyn Sink>,
    outcomes: Outcomes,
    next: Token,
    open: usize,
}

impl Producer {
    /// Connects.
    pub async fn open(broker: &BrokerConfig) -> Result<Self> {
        let (sink, outcomes) = broker.sink(CONFIRM_TIMEOUT).await?;
        Ok(Producer { sink, outcomes, next: 0, open: 0 })
    }

    /// Publishes in order. Returns once the broker client has all of them; the last confirms may be
    /// outstanding.
    pub async fn send(
        &mut self,
        to: &Destination,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<()> {
        let (mut chunk, mut most) = (Vec::with_capacity(CHUNK_PUBLICATIONS), WINDOW_PUBLICATIONS);
        for message in messages {
            // The largest body so far limits the window.
            most = most.min((WINDOW_BYTES / message.body.len().max(1)).max(2));
            chunk.push(Publication {
                token: self.next,
                to: to.clone(),
                message,
                dedupe_id: String::new(),
                deadline: None,
            });
            self.next += 1;
            if chunk.len() >= CHUNK_PUBLICATIONS.min(most / 2) {
                self.hand_over(std::mem::take(&mut chunk), most).await?;
            }
        }
        self.hand_over(chunk, most).await
    }

    /// Publishes the chunk once at most `most` publications are without a confirm.
    async fn hand_over(&mut self, chunk: Vec<Publication>, most: usize) -> Result<()> {
        while let Ok(batch) = self.outcomes.try_recv() {
            self.confirmed(batch)?;
        }
        while self.open > 0 && self.open + chunk.len() > most {
            self.wait().await?;
        }
        if !chunk.is_empty() {
            self.open += chunk.len();
            self.sink.publish(chunk).await;
        }
        Ok(())
    }

    /// Waits for all confirms.
    pub async fn flush(&mut self) -> Result<()> {
        while self.open > 0 {
            self.wait().await?;
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<()> {
        match self.outcomes.recv().await {
            Some(batch) => self.confirmed(batch),
            None => Err("the broker's connection was lost while publishing".into()),
        }
    }

    fn confirmed(&mut self, batch: Vec<(Token, Outcome)>) -> Result<()> {
        self.open -= batch.len();
        match batch.into_iter().find(|(_, outcome)| *outcome != Outcome::Confirmed) {
            None => Ok(()),
            Some((_, outcome)) => {
                Err(format!("the broker did not take a message: {outcome:?}").into())
            }
        }
    }
}

/// How a reader reads all of a destination, and acknowledges it.
pub fn reading(topic: &str, group: &str) -> SourceOptions {
    SourceOptions {
        topic: topic.to_owned(),
        group: group.to_owned(),
        max_batch: 1024,
        max_batch_bytes: 16 << 20,
        max_unsettled: 16_384,
        max_unsettled_bytes: 64 << 20,
        acks: Acks::Explicit,
        start: Start::Earliest,
        publishes_to: Vec::new(),
        expired_queue: None,
    }
}

/// Reads a destination until it is dropped.
pub struct Consumer {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ConnectorError>>,
}

impl Consumer {
    /// Connects, and passes every batch to `seen` with its wall-clock time of receipt (epoch µs).
    pub async fn open(
        broker: &BrokerConfig,
        topic: &str,
        acks: Acks,
        mut seen: impl FnMut(i64, Vec<Message>) + Send + 'static,
    ) -> Result<Self> {
        let source = broker.source(SourceOptions { acks, ..reading(topic, "testkit") }).await?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            loop {
                let batch = tokio::select! {
                    () = stopped.cancelled() => return source.close().await,
                    batch = source.recv() => batch?,
                };
                seen(clock::wall_us(), batch.messages);
                source.ack(batch.id).await?;
            }
        });
        Ok(Consumer { stop, task })
    }

    /// Returns the error if the consumer has stopped by itself.
    pub async fn check(&mut self) -> Result<()> {
        if !self.task.is_finished() {
            return Ok(());
        }
        match (&mut self.task).await {
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(())) => Err("a consumer of the environment ended".into()),
            Err(error) => Err(format!("a consumer of the environment failed: {error}").into()),
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
