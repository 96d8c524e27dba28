//! The sink: publications go to the producer with their token, which returns with the delivery
//! report.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use rdkafka::message::{OwnedHeaders, OwnedMessage, Timestamp};
use rdkafka::producer::{BaseRecord, Producer};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::config::{ClientRole, Config};
use super::connection::{BLOCKING_TIMEOUT, Context, ask, blocking, failed};
use super::outcome::not_taken;
use super::quirks::refused_batch::ResendQueue;
use super::window::PublishWindow;
use super::writer::{ReportingProducer, Reports, Writer};
use super::{headers, topic};
use crate::{ConnectorError, Destination, ErrorKind, Outcome, Outcomes, Publication, Sink};

/// The wait before a message is offered again to a full producer queue.
const FULL_QUEUE_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The time of one poll for the client's events: it logs many lines, errors among them.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);

pub(crate) async fn open(
    config: &Config,
    publish_timeout: Duration,
) -> Result<(KafkaSink, Outcomes), ConnectorError> {
    let (window, outcomes) = PublishWindow::start();
    let of = Arc::clone(&window);
    let opened = blocking(config, BLOCKING_TIMEOUT, move |config| {
        let role = ClientRole::Writer { timeout: publish_timeout };
        let client = config.client(role)?;
        let resend = Arc::new(ResendQueue::default());
        let reports = Reports::new(Arc::clone(&of), Arc::clone(&resend), &client);
        let producer: ReportingProducer = client
            .create_with_context(Context::new(&config, role, reports))
            .map_err(|error| failed(&config, "cannot create a client", error))?;
        ask(&config, producer.client(), None, || producer.poll(POLL_TIMEOUT))?;
        let (producer, may_publish) = (Arc::new(producer), Arc::new(RwLock::new(true)));
        let writer = Writer::new(&producer, &of, &resend, &may_publish, publish_timeout);
        let ended = writer.start().map_err(|error| {
            config
                .fail(ErrorKind::Disconnected, "cannot start a thread for publishing")
                .because(error)
        })?;
        Ok(KafkaSink {
            config,
            producer: Some(producer),
            window: of,
            resend,
            open: may_publish,
            publish_timeout,
            ended: Some(ended),
        })
    })
    .await;
    if opened.is_err() {
        window.end("the sink did not open");
    }
    Ok((opened?, outcomes))
}

pub(crate) struct KafkaSink {
    config: Config,
    /// Taken by `drop` only.
    producer: Option<Arc<ReportingProducer>>,
    window: Arc<PublishWindow>,
    resend: Arc<ResendQueue>,
    /// Whether the producer accepts messages.
    open: Arc<RwLock<bool>>,
    publish_timeout: Duration,
    /// Ends when every outcome is sent.
    ended: Option<oneshot::Receiver<()>>,
}

impl KafkaSink {
    /// Hands over the waiting publications in order; false if the producer's queue is full.
    fn hand_over(&self, waiting: &mut VecDeque<Publication>) -> bool {
        let open = self.open.read();
        let Some(producer) = self.producer.as_ref().filter(|_| *open) else {
            // The end of the connection answers for them. To refuse them at once would only invite
            // more.
            waiting.clear();
            return true;
        };
        while let Some(publication) = waiting.front() {
            let Some(open) = self.window.hand_over(publication.token) else {
                waiting.pop_front();
                continue;
            };
            match self.send(producer, publication) {
                Ok(()) => {}
                Err(None) if Instant::now() < open.deadline => {
                    // Unless it timed out meanwhile.
                    let _ = self.window.not_taken(publication.token);
                    return false;
                }
                Err(None) => self.window.give(publication.token, |_| {
                    Outcome::Refused("the producer's queue is full".to_owned())
                }),
                Err(Some(outcome)) => self.window.give(publication.token, |_| outcome),
            }
            waiting.pop_front();
        }
        true
    }

    /// Hands over one publication; `None` if the queue is full.
    fn send(
        &self,
        producer: &ReportingProducer,
        publication: &Publication,
    ) -> Result<(), Option<Outcome>> {
        let Publication { token, to, message, .. } = publication;
        let invalid = |why| Some(Outcome::Invalid(why));
        if let Some(why) = topic::malformed(&to.address) {
            return Err(invalid(why));
        }
        let headers = headers::to_kafka(&message.headers).map_err(invalid)?;
        if self.resend.is_limited(&to.address) {
            let owned = OwnedMessage::new(
                message.has_body.then(|| message.body.to_vec()),
                message.key.as_ref().map(|key| key.to_vec()),
                to.address.clone(),
                Timestamp::NotAvailable,
                -1,
                -1,
                headers.clone(),
            );
            let size = message.body.len()
                + message.key.as_ref().map_or(0, Bytes::len)
                + headers::size(headers.as_ref().map(OwnedHeaders::as_borrowed));
            // It waits for its turn.
            let _ = self.window.not_taken(*token);
            if self.resend.take_in(*token, owned, size).is_none() {
                self.resend.send_ready(producer, &self.window);
                return Ok(());
            }
            if self.window.hand_over(*token).is_none() {
                return Ok(());
            }
        }
        let record = BaseRecord {
            topic: &to.address,
            partition: None,
            payload: message.has_body.then_some(&message.body[..]),
            key: message.key.as_ref().map(Bytes::as_ref),
            timestamp: None,
            headers,
            delivery_opaque: Box::new(*token),
        };
        producer.send::<[u8], [u8]>(record).map_err(|(error, _)| not_taken(&error, &to.address))
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn publish(&self, batch: Vec<Publication>) {
        let latest = Instant::now() + self.publish_timeout;
        let until = |publication: &Publication| {
            publication.deadline.map_or(latest, |deadline| deadline.min(latest))
        };
        if !self.window.open(batch.iter().map(|publication| {
            (publication.token, publication.to.address.as_str(), until(publication))
        })) {
            return;
        }
        let mut waiting = VecDeque::from(batch);
        while !self.hand_over(&mut waiting) {
            tokio::time::sleep(FULL_QUEUE_RETRY_INTERVAL).await;
        }
    }

    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        if topic::malformed(&to.address).is_some() {
            return Ok(false);
        }
        if !*self.open.read() {
            return Err(self.config.fail(ErrorKind::Disconnected, "the connection was lost"));
        }
        topic::exists(&self.config, &to.address).await
    }

    async fn close(mut self: Box<Self>) -> Result<(), ConnectorError> {
        self.window.close();
        if let Some(ended) = self.ended.take() {
            // The sender ends by being dropped.
            let _ = ended.await;
        }
        Ok(())
    }
}

impl Drop for KafkaSink {
    /// Outstanding reports still arrive; then the outcomes end.
    fn drop(&mut self) {
        self.window.close();
        if let Some(last) = self.producer.take().and_then(Arc::into_inner) {
            // The drop waits for librdkafka's threads.
            std::thread::spawn(move || drop(last));
        }
    }
}
