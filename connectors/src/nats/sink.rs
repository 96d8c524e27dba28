//! The sink: each publication has a reply subject, and all answers come on one subscription.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use async_nats::message::OutboundMessage;
use async_trait::async_trait;
use bytes::BytesMut;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::config::Config;
use super::connection::BrokerConnection;
use super::pub_ack_reader::PubAckReader;
use super::window::PublishWindow;
use super::{headers, stream, subject};
use crate::{ConnectorError, Destination, Outcome, Outcomes, Publication, Sink};

/// The bytes of a dot and a number below 10 billion in a reply subject.
const REPLY_NUMBER_BYTES: usize = 11;

pub(crate) async fn open(
    config: &Config,
    publish_timeout: Duration,
) -> Result<(NatsSink, Outcomes), ConnectorError> {
    let (connection, server_errors) = BrokerConnection::connect(config).await?;
    let connection = Arc::new(connection);
    let inbox = connection.client.new_inbox();
    let answers = connection
        .ask(connection.client.subscribe(format!("{inbox}.*")))
        .await?
        .map_err(|error| connection.error().because(error))?;
    let (out, outcomes) = mpsc::unbounded_channel();
    let window = Arc::new(PublishWindow::new(out));
    PubAckReader::start(
        Arc::clone(&connection),
        Arc::clone(&window),
        answers,
        server_errors,
        publish_timeout,
    );
    Ok((NatsSink { connection, window, inbox, publish_timeout }, outcomes))
}

pub(crate) struct NatsSink {
    connection: Arc<BrokerConnection>,
    window: Arc<PublishWindow>,
    /// Reply subjects are `<inbox>.<number>`.
    inbox: String,
    publish_timeout: Duration,
}

impl NatsSink {
    /// The message to publish, without its reply subject; or why it can never be published.
    /// `before`: the subject of the message before, which is shared if it is the same.
    fn outbound(
        &self,
        publication: Publication,
        before: Option<&Subject>,
    ) -> Result<OutboundMessage, String> {
        let Publication { to, message, dedupe_id, .. } = publication;
        let subject = match before {
            Some(before) if before.as_str() == to.address => before.clone(),
            _ => subject_of(to)?,
        };
        let headers = headers::to_nats(message.headers, &dedupe_id)?;
        let size = message.body.len() + headers.as_ref().map_or(0, headers::wire_size);
        let most = self.connection.client.max_payload();
        if size > most {
            return Err(format!("{size} bytes with headers, the server takes {most}"));
        }
        Ok(OutboundMessage { subject, reply: None, payload: message.body, headers })
    }

    /// The reply subject of this publication, written into the buffer.
    fn reply(&self, number: u64, buffer: &mut BytesMut) -> Subject {
        write!(buffer, "{}.{number}", self.inbox).expect("a buffer grows");
        Subject::from_utf8(buffer.split()).expect("an inbox and a number are text")
    }
}

/// The subject of a destination, or why nothing can be published there.
fn subject_of(to: Destination) -> Result<Subject, String> {
    if let Some(why) = subject::malformed(&to.address) {
        return Err(why);
    }
    if to.address.split('.').any(|token| matches!(token, "*" | ">")) {
        return Err(format!("`{to}` is a pattern, not a subject"));
    }
    Ok(Subject::from(to.address))
}

#[async_trait]
impl Sink for NatsSink {
    async fn publish(&self, batch: Vec<Publication>) {
        let (mut invalid, mut ready) = (Vec::new(), Vec::with_capacity(batch.len()));
        let latest = Instant::now() + self.publish_timeout;
        for publication in batch {
            let (token, until) = (
                publication.token,
                publication.deadline.map_or(latest, |deadline| deadline.min(latest)),
            );
            match self.outbound(
                publication,
                ready.last().map(|(_, message, _): &(_, OutboundMessage, _)| &message.subject),
            ) {
                Ok(message) => ready.push((token, message, until)),
                Err(why) => invalid.push((token, Outcome::Invalid(why))),
            }
        }
        let Some(first) = self.window.open(
            ready.iter().map(|(token, message, until)| (*token, message.subject.clone(), *until)),
            invalid,
        ) else {
            return;
        };
        // One allocation for the reply subjects of the batch.
        let mut replies =
            BytesMut::with_capacity(ready.len() * (self.inbox.len() + REPLY_NUMBER_BYTES));
        let mut last = first;
        let messages = (first..).zip(ready).filter_map(|(number, (_, mut message, _))| {
            // A publication missing in the window has its outcome: the connection was lost
            // meanwhile, or it timed out.
            self.window.written(number).then(|| {
                last = number;
                message.reply = Some(self.reply(number, &mut replies));
                message
            })
        });
        if self.connection.send_all(messages).await.is_err() {
            self.window.not_written(last);
        }
    }

    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        if subject::malformed(&to.address).is_some() {
            return Ok(false);
        }
        Ok(stream::find(&self.connection, &to.address).await?.is_some())
    }

    async fn close(self: Box<Self>) -> Result<(), ConnectorError> {
        let flushed = self.connection.ask(self.connection.client.flush()).await;
        self.window.close();
        flushed?.map_err(|error| self.connection.error().because(error))
    }
}

impl Drop for NatsSink {
    /// Outstanding answers still arrive; then the outcomes end.
    fn drop(&mut self) {
        self.window.close();
    }
}
