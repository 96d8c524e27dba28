//! The task of a sink that reads JetStream's answers and reports the outcomes of publications.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subscriber;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, ReadyChunks, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::connection::{BrokerConnection, denied};
use super::pub_ack::{PubAck, denied_subject, read};
use super::stream;
use super::window::{Given, Open, PublishWindow};
use crate::{ConnectorError, Outcome, Token};

/// The time that a stream lookup stays valid.
const STREAM_LOOKUP_TTL: Duration = Duration::from_secs(1);
/// The most answers taken over at once.
const MAX_CHUNK_ANSWERS: usize = 512;

/// The task that reads answers.
pub(super) struct PubAckReader {
    connection: Arc<BrokerConnection>,
    window: Arc<PublishWindow>,
    answers: ReadyChunks<Subscriber>,
    publish_timeout: Duration,
    /// Publications whose subject is being looked up.
    asking: HashMap<String, Vec<Token>>,
    looks: FuturesUnordered<BoxFuture<'static, (String, Result<bool, ConnectorError>)>>,
    /// Whether a stream has the subject, and when that was asked.
    known: HashMap<String, (bool, Instant)>,
}

impl PubAckReader {
    pub(super) fn start(
        connection: Arc<BrokerConnection>,
        window: Arc<PublishWindow>,
        answers: Subscriber,
        server_errors: mpsc::UnboundedReceiver<String>,
        publish_timeout: Duration,
    ) {
        let answers = answers.ready_chunks(MAX_CHUNK_ANSWERS);
        let looks = FuturesUnordered::new();
        let mut reader = PubAckReader {
            connection,
            window,
            answers,
            publish_timeout,
            asking: HashMap::new(),
            looks,
            known: HashMap::new(),
        };
        tokio::spawn(async move {
            reader.run(server_errors).await;
            reader.end();
        });
    }

    /// Runs until the connection is lost, or the sink is closed and every answer came.
    async fn run(&mut self, mut server_errors: mpsc::UnboundedReceiver<String>) {
        let mut tick = interval(
            (self.publish_timeout / 20).clamp(Duration::from_millis(5), Duration::from_millis(250)),
        );
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !(self.window.is_done() && self.asking.is_empty()) {
            tokio::select! {
                biased;
                () = self.connection.lost() => return,
                chunk = self.answers.next() => match chunk {
                    Some(chunk) => self.answered(&chunk),
                    None => return self.connection.lose("the client has ended"),
                },
                Some((subject, found)) = self.looks.next() => self.looked(subject, found),
                Some(complaint) = server_errors.recv() => self.complained(&complaint),
                () = self.window.closed() => {}
                _ = tick.tick() => {
                    self.window.expire();
                    self.known.retain(|_, (_, when)| when.elapsed() < STREAM_LOOKUP_TTL);
                    if self.connection.is_lost() {
                        return;
                    }
                }
            }
        }
    }

    fn answered(&mut self, chunk: &[async_nats::Message]) {
        let mut outcomes = Vec::with_capacity(chunk.len());
        let numbered = chunk.iter().filter_map(|message| {
            Some((message.subject.rsplit_once('.')?.1.parse().ok()?, message))
        });
        for (Open { token, subject, .. }, message) in self.window.take(numbered) {
            match read(message) {
                PubAck::Outcome(outcome) => outcomes.push((token, outcome)),
                PubAck::NoResponders => self.nobody_answers(token, subject.into_string()),
            }
        }
        self.window.give(outcomes);
    }

    /// No stream has the subject, or its stream has no leader now: looks the subject up once, and
    /// uses the result for a moment.
    fn nobody_answers(&mut self, token: Token, subject: String) {
        if let Some((found, when)) = self.known.get(&subject)
            && when.elapsed() < STREAM_LOOKUP_TTL
        {
            let outcome = no_responders(&subject, *found);
            return self.window.give(vec![(token, outcome)]);
        }
        let asking = self.asking.entry(subject.clone()).or_default();
        asking.push(token);
        if asking.len() == 1 {
            let connection = Arc::clone(&self.connection);
            self.looks.push(
                async move {
                    let found =
                        stream::find(&connection, &subject).await.map(|stream| stream.is_some());
                    (subject, found)
                }
                .boxed(),
            );
        }
    }

    fn looked(&mut self, subject: String, found: Result<bool, ConnectorError>) {
        let outcome = match found {
            Ok(found) => {
                self.known.insert(subject.clone(), (found, Instant::now()));
                no_responders(&subject, found)
            }
            // The existence of the stream is unknown, but nothing was stored.
            Err(error) => Outcome::Refused(format!(
                "no stream answers for `{subject}`, and the reason is unknown: {error}"
            )),
        };
        let tokens = self.asking.remove(&subject).unwrap_or_default();
        self.window.give(tokens.into_iter().map(|token| (token, outcome.clone())).collect());
    }

    fn complained(&self, complaint: &str) {
        if let Some(subject) = denied_subject(complaint) {
            self.window.deny(subject, &format!("publishing to `{subject}` is not permitted"));
        } else if denied(complaint).is_some() {
            // Without answers the sink is useless.
            self.connection.lose(complaint);
        }
    }

    /// Sends every missing outcome: first those of answers that have arrived, then the rest.
    fn end(&mut self) {
        while let Some(Some(chunk)) = self.answers.next().now_or_never() {
            self.answered(&chunk);
        }
        let why = self.connection.error().message;
        let asked: Given = self
            .asking
            .drain()
            .flat_map(|(_, tokens)| tokens)
            .map(|token| (token, Outcome::Refused(why.clone())))
            .collect();
        self.window.give(asked);
        self.window.end(&why);
    }
}

fn no_responders(subject: &str, found: bool) -> Outcome {
    if found {
        Outcome::Refused(format!("the stream of `{subject}` does not answer now"))
    } else {
        Outcome::Unroutable(format!("no stream has the subject `{subject}`"))
    }
}
