//! The reader of a source: the thread that polls the consumer, commits settled offsets, and leaves
//! the group at the end.
//!
//! The reader never stops polling for long: the group removes a member that does not poll.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, RebalanceProtocol,
};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::buffer::DeliveryBuffer;
use super::config::Config;
use super::connection::{Context, caught, failed};
use super::delivery::{Delivery, delivery};
use super::quirks::empty_assignment;
use crate::{ConnectorError, ErrorKind};

/// The longest wait of one poll.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// The most messages taken over at once.
const MAX_CHUNK_MESSAGES: usize = 512;
/// The most bytes of those; the last message may exceed this.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// The interval of commits.
const COMMIT_INTERVAL: Duration = Duration::from_millis(500);
/// The time that the reader waits without polling while the buffer is full. After that it pauses
/// the partitions, which discards prefetched messages.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest wait for the answer of a seek. Without the answer a failed seek would go unnoticed.
const SEEK_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval of log lines about an unreadable partition.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The length of one wait for room.
const ROOM_WAIT_TIMEOUT: Duration = Duration::from_millis(20);

pub(super) type GroupConsumer = BaseConsumer<Context<Arc<DeliveryBuffer>>>;

/// Answers when the reader has left the group.
pub(super) type Closed = oneshot::Receiver<Result<(), ConnectorError>>;
/// The work of the thread.
type Run = fn(&mut ReaderTask) -> Result<(), ConnectorError>;

/// The thread between the consumer and the buffer.
pub(super) struct ReaderTask {
    config: Config,
    consumer: GroupConsumer,
    buffer: Arc<DeliveryBuffer>,
    topic: String,
    committed: Instant,
    full: Option<Instant>,
    paused: bool,
    /// When an unreadable batch was last logged.
    told: Cell<Option<Instant>>,
}

impl ReaderTask {
    /// Starts the thread. The receiver answers once the thread has ended and left the group.
    pub(super) fn start(
        config: Config,
        consumer: GroupConsumer,
        buffer: Arc<DeliveryBuffer>,
        topic: String,
    ) -> Result<Closed, ConnectorError> {
        let reader = ReaderTask {
            config,
            consumer,
            buffer,
            topic,
            committed: Instant::now(),
            full: None,
            paused: false,
            told: Cell::default(),
        };
        reader.spawn(Self::run)
    }

    fn spawn(mut self, run: Run) -> Result<Closed, ConnectorError> {
        let (done, closed) = oneshot::channel();
        let what = self.config.fail(ErrorKind::Disconnected, "cannot start a thread for reading");
        let work = move || {
            let result = caught(|| run(&mut self));
            let result = result.unwrap_or_else(|| {
                Err(self.config.fail(ErrorKind::Disconnected, "the reader panicked"))
            });
            if let Err(error) = &result {
                self.buffer.end(error);
            }
            // Leaves the group, then closes the client, and waits for both.
            caught(|| empty_assignment::leave(&self.consumer));
            drop(self);
            // After a drop nobody waits.
            let _ = done.send(result);
        };
        std::thread::Builder::new()
            .name("kafka-reader".to_owned())
            .spawn(work)
            .map_err(|error| what.because(error))?;
        Ok(closed)
    }

    /// Works until the source closes, or the connection is lost.
    fn run(&mut self) -> Result<(), ConnectorError> {
        loop {
            let status = self.buffer.status();
            if status.closing {
                return self.commit(CommitMode::Sync);
            }
            self.turn_back()?;
            if self.committed.elapsed() >= COMMIT_INTERVAL {
                self.commit(CommitMode::Async)?;
            }
            self.full = (status.room == 0).then(|| self.full.unwrap_or_else(Instant::now));
            self.pause(
                status.paused || self.full.is_some_and(|since| since.elapsed() >= STALL_TIMEOUT),
            )?;
            if self.paused {
                self.poll(0, 0)?;
            } else if status.room > 0 {
                let is_dry = self.poll(status.room, status.room_bytes)?;
                self.reassign_stalled(is_dry)?;
            } else {
                self.buffer.wait(ROOM_WAIT_TIMEOUT);
            }
            if let Some(why) = self.consumer.client().context().events.lost(self.consumer.client())
            {
                return Err(self
                    .config
                    .fail(ErrorKind::Disconnected, &format!("the connection was lost: {why}")));
            }
        }
    }

    /// Takes over available messages, about `room` of them; true if that was all.
    fn poll(&self, room: usize, room_bytes: usize) -> Result<bool, ConnectorError> {
        self.take_over(room, room_bytes, |wait| {
            self.consumer.poll(wait).map(|message| message.map(|message| delivery(&message)))
        })
    }

    fn take_over(
        &self,
        room: usize,
        room_bytes: usize,
        mut next: impl FnMut(Duration) -> Option<KafkaResult<Delivery>>,
    ) -> Result<bool, ConnectorError> {
        let (mut deliveries, mut taken, mut bytes, mut wait, mut silences) =
            (Vec::<Delivery>::new(), 0, 0, POLL_TIMEOUT, 0);
        // A poll also returns nothing after an internal event, such as a rebalance or a log line,
        // with messages behind it; seldom twice in a row.
        while silences < 2
            && taken < room.clamp(1, MAX_CHUNK_MESSAGES)
            && bytes < room_bytes.clamp(1, MAX_CHUNK_BYTES)
        {
            let came = next(wait);
            silences = if came.is_some() { 0 } else { silences + 1 };
            match came {
                Some(Ok(delivery)) => {
                    taken += 1;
                    bytes += delivery.bytes;
                    deliveries.push(delivery);
                }
                Some(Err(error)) => {
                    self.buffer.put(std::mem::take(&mut deliveries));
                    match error {
                        KafkaError::PartitionEOF(partition) => {
                            if self.buffer.at_end(partition) {
                                warn!(
                                    topic = self.topic,
                                    partition, "nacked messages are no longer in the log"
                                );
                            }
                        }
                        error => self.classify(error)?,
                    }
                }
                // Before a revoked partition is assigned again: it starts anew then, and these
                // messages belong to the old assignment.
                None => self.buffer.put(std::mem::take(&mut deliveries)),
            }
            wait = Duration::ZERO;
        }
        self.buffer.put(deliveries);
        Ok(silences == 2)
    }

    /// The meaning of a consumer error: most are temporary.
    fn classify(&self, error: KafkaError) -> Result<(), ConnectorError> {
        let what = format!("cannot read `{}`", self.topic);
        match error.rdkafka_error_code() {
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => Err(missing(&self.config, &self.topic)),
            Some(
                Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::InconsistentGroupProtocol
                // librdkafka would retry without end and read nothing.
                | Code::InvalidSessionTimeout
                | Code::InvalidGroupId
                | Code::GroupMaxSizeReached,
            ) => Err(failed(&self.config, &what, error)),
            // This partition stops; others go on.
            Some(Code::BadCompression) => {
                if self.told.get().is_none_or(|told| told.elapsed() >= LOG_INTERVAL) {
                    self.told.set(Some(Instant::now()));
                    let hint = "raise limits.max_inbound_bytes, or move the group past the batch: kafka-consumer-groups --reset-offsets";
                    error!(topic = self.topic, hint, "a batch is damaged, or decompresses to more than the limit: its partition is not read");
                }
                self.buffer.wait(ROOM_WAIT_TIMEOUT);
                Ok(())
            }
            _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                // The event only says that there is one.
                let known = self.consumer.client().fatal_error();
                let error = known.map_or(error, |(code, _)| KafkaError::MessageConsumptionFatal(code));
                Err(failed(&self.config, &what, error))
            }
            code => {
                debug!(topic = self.topic, ?code, "a consumer error that may pass");
                self.buffer.disturbed();
                // No error may make the thread spin.
                self.buffer.wait(ROOM_WAIT_TIMEOUT);
                Ok(())
            }
        }
    }

    /// Pauses or resumes all assigned partitions.
    fn pause(&mut self, paused: bool) -> Result<(), ConnectorError> {
        // New partitions are not paused: the rebalance callback does that.
        if self.paused != paused {
            let wrong = |error| failed(&self.config, "cannot pause or resume", error);
            let ours = self.consumer.assignment().map_err(wrong)?;
            if paused { self.consumer.pause(&ours) } else { self.consumer.resume(&ours) }
                .map_err(wrong)?;
            self.paused = paused;
            self.buffer.set_partitions_paused(paused);
        }
        Ok(())
    }

    /// Seeks back to nacked messages.
    fn turn_back(&self) -> Result<(), ConnectorError> {
        for (partition, offset) in self.buffer.turns() {
            let sought =
                self.consumer.seek(&self.topic, partition, Offset::Offset(offset), SEEK_TIMEOUT);
            self.buffer.went_back(partition, offset, sought.is_ok());
            if let Err(error) = sought {
                // Not fetching yet, or revoked: the next round shows. Perhaps only the answer was
                // late.
                debug!(topic = self.topic, partition, offset, %error, "cannot seek back yet");
                self.buffer.wait(ROOM_WAIT_TIMEOUT);
            }
        }
        Ok(())
    }

    /// Assigns stalled partitions again. None of their messages was handed out: they start at the
    /// committed offset.
    fn reassign_stalled(&self, is_dry: bool) -> Result<(), ConnectorError> {
        if self.consumer.assignment_lost() {
            return Ok(());
        }
        if !matches!(self.consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
            // A single partition cannot be assigned: the whole group must rebalance.
            let Some(partition) = self.buffer.stuck_partition() else { return Ok(()) };
            return Err(self.config.fail(
                ErrorKind::Disconnected,
                &format!("partition {partition} is assigned, and nothing is read from it"),
            ));
        }
        for partition in self.buffer.late_partitions(is_dry) {
            info!(
                topic = self.topic,
                partition,
                "nothing was read from a partition since it was assigned, assigning it again"
            );
            let mut list = TopicPartitionList::with_capacity(1);
            let added = list.add_partition_offset(&self.topic, partition, Offset::Stored);
            added.map_err(|error| failed(&self.config, "cannot assign again", error))?;
            // It was revoked meanwhile, or will be late again.
            let wrong = |error: KafkaError| debug!(topic = self.topic, partition, %error, "cannot assign again");
            let _ =
                self.consumer.incremental_unassign(&list).inspect_err(|error| wrong(error.clone()));
            let _ =
                self.consumer.incremental_assign(&list).inspect_err(|error| wrong(error.clone()));
            let _ = self.consumer.resume(&list).inspect_err(|error| wrong(error.clone()));
        }
        Ok(())
    }

    fn commit(&mut self, mode: CommitMode) -> Result<(), ConnectorError> {
        self.committed = Instant::now();
        commit(&self.consumer, &self.buffer, &self.topic, None, mode)
            .map_err(|error| failed(&self.config, "cannot commit", error))
    }
}

/// The error of a missing topic.
pub(super) fn missing(config: &Config, topic: &str) -> ConnectorError {
    let failure = config.fail(ErrorKind::Missing, &format!("there is no topic `{topic}`"));
    failure.hint(format!("create the topic `{topic}`, or set `declare = true`"))
}

/// Commits settled offsets, of these partitions or of all. The result of an asynchronous commit is
/// unknown (librdkafka reports it to a callback that rdkafka 0.39 does not set). So the buffer
/// repeats it once, and a synchronous commit includes all offsets without a confirmed commit.
fn commit(
    consumer: &GroupConsumer,
    buffer: &DeliveryBuffer,
    topic: &str,
    partitions: Option<&[i32]>,
    mode: CommitMode,
) -> KafkaResult<()> {
    let positions = buffer.to_commit(partitions, matches!(mode, CommitMode::Sync));
    if positions.is_empty() {
        return Ok(());
    }
    let mut list = TopicPartitionList::with_capacity(positions.len());
    for (partition, position) in &positions {
        list.add_partition_offset(topic, *partition, Offset::Offset(*position))?;
    }
    let result = consumer.commit(&list, mode);
    if result.is_err() {
        buffer.not_committed(positions.into_iter().map(|(partition, _)| partition));
    }
    result
}

fn numbers(list: &TopicPartitionList) -> Vec<i32> {
    list.elements()
        .iter()
        .map(rdkafka::topic_partition_list::TopicPartitionListElem::partition)
        .collect()
}

impl ConsumerContext for Context<Arc<DeliveryBuffer>> {
    fn pre_rebalance(&self, consumer: &GroupConsumer, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(list) = rebalance else { return };
        let partitions = numbers(list);
        info!(?partitions, lost = consumer.assignment_lost(), "partitions are revoked");
        // Lost partitions already belong to another member, which reads from the last commit.
        if !consumer.assignment_lost()
            && let Some(topic) = list.elements().first().map(|element| element.topic().to_owned())
            && let Err(error) =
                commit(consumer, &self.of, &topic, Some(&partitions), CommitMode::Sync)
        {
            debug!(%error, "the last commit before the revocation failed: settled messages come again");
        }
        self.of.revoke(&partitions);
    }

    fn post_rebalance(&self, consumer: &GroupConsumer, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                let partitions = numbers(list);
                info!(?partitions, "partitions are assigned");
                self.of.assign(partitions.into_iter());
                // A partition that was paused when it was revoked is still paused when it is
                // assigned again.
                if let Err(error) = if self.of.partitions_paused() {
                    consumer.pause(list)
                } else {
                    consumer.resume(list)
                } {
                    debug!(%error, "cannot pause or resume new partitions");
                }
            }
            Rebalance::Revoke(_) => {}
            Rebalance::Error(error) => debug!(%error, "the rebalance failed"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
    use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Fault};

    use super::*;
    use crate::kafka::config::ClientRole;
    use crate::{Acks, SourceOptions, Start};

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn reader(address: &str) -> ReaderTask {
        let (topic, group) = ("a".to_owned(), "g".to_owned());
        let (max_batch, max_batch_bytes, max_unsettled, max_unsettled_bytes) = (1, 1, 1, 64 << 20);
        let acks = Acks::Explicit;
        let (start, publishes_to, expired_queue) = (Start::Earliest, Vec::new(), None);
        let options = SourceOptions {
            topic: topic.clone(),
            group,
            max_batch,
            max_batch_bytes,
            max_unsettled,
            max_unsettled_bytes,
            acks,
            start,
            publishes_to,
            expired_queue,
        };
        let (config, buffer) = (Config::at(address), Arc::new(DeliveryBuffer::new(&options)));
        let role = ClientRole::Reader { group: "g", bytes: 64 << 20 };
        let context = Context::new(&config, role, Arc::clone(&buffer));
        let consumer = config.client(role).unwrap().create_with_context(context).unwrap();
        ReaderTask {
            config,
            consumer,
            buffer,
            topic,
            committed: Instant::now(),
            full: None,
            paused: false,
            told: Cell::default(),
        }
    }

    #[test]
    fn what_an_asynchronous_commit_did_not_store_a_synchronous_one_does() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("a", 1, 1).unwrap();
        let producer: BaseProducer = rdkafka::ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .create()
            .unwrap();
        producer.send(BaseRecord::<(), _>::to("a").payload("1")).unwrap();
        producer.flush(TIMEOUT).unwrap();
        let mut reader = reader(&cluster.bootstrap_servers());
        reader.consumer.subscribe(&["a"]).unwrap();
        let begun = Instant::now();
        let batch = loop {
            reader.poll(1, MAX_CHUNK_BYTES).unwrap();
            if let Some(batch) = reader.buffer.take(1, 1).unwrap() {
                break batch;
            }
            assert!(begun.elapsed() < TIMEOUT, "nothing comes");
        };
        reader.buffer.settle(batch.id, true).unwrap();
        cluster
            .request_errors(Api::OffsetCommit, &[Fault::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS]);
        // The first takes the fault.
        reader.commit(CommitMode::Async).unwrap();
        reader.commit(CommitMode::Sync).unwrap();
        let committed = reader.consumer.committed(TIMEOUT).unwrap();
        assert_eq!(
            committed.elements().iter().map(|element| element.offset()).collect::<Vec<_>>(),
            [Offset::Offset(1)]
        );
        assert_eq!(reader.buffer.to_commit(None, true), [], "it is known to be there");
    }

    #[test]
    fn it_is_dry_only_after_two_silences() {
        let reader = reader("127.0.0.1:1");
        reader.buffer.assign(0..1);
        let message = |offset| {
            Some(Delivery { message: crate::Message::new("1"), partition: 0, offset, bytes: 1 })
        };
        for (events, taken, is_dry) in [
            // As after a rebalance and a log line.
            (vec![None, message(0), None, message(1), message(2)], 3, false),
            (vec![None, message(3), None, None, message(4)], 1, true),
            (vec![None, None], 0, true),
        ] {
            let mut events = events.into_iter();
            assert_eq!(
                reader.take_over(3, MAX_CHUNK_BYTES, |_| events.next().unwrap().map(Ok)).unwrap(),
                is_dry
            );
            let batch = reader.buffer.take(3, 3).unwrap();
            assert_eq!(batch.map_or(0, |batch| batch.messages.len()), taken);
        }
    }

    #[test]
    fn what_was_read_before_a_partition_went_is_not_taken_for_what_comes_when_it_is_back() {
        let reader = reader("127.0.0.1:1");
        reader.buffer.assign(0..2);
        let mut step = 0;
        let next = |_| {
            step += 1;
            match step {
                1 => {
                    return Some(Ok(Delivery {
                        message: crate::Message::new("went"),
                        partition: 0,
                        offset: 5,
                        bytes: 1,
                    }));
                }
                2 => reader.buffer.revoke(&[0]),
                3 => {
                    return Some(Ok(Delivery {
                        message: crate::Message::new("ours"),
                        partition: 1,
                        offset: 0,
                        bytes: 1,
                    }));
                }
                4 => reader.buffer.assign(0..1),
                _ => {}
            }
            None
        };
        assert!(reader.take_over(3, MAX_CHUNK_BYTES, next).unwrap());
        let batch = reader.buffer.take(3, 100).unwrap().unwrap();
        assert_eq!(
            batch.messages.iter().map(|message| &message.body[..]).collect::<Vec<_>>(),
            [b"ours"]
        );
    }

    #[tokio::test]
    async fn a_panic_ends_the_source() {
        let reader = reader("127.0.0.1:1");
        let buffer = Arc::clone(&reader.buffer);
        let closed = reader.spawn(|_| panic!("of the test")).unwrap();
        let error = closed.await.unwrap().unwrap_err();
        assert!(
            error.kind == ErrorKind::Disconnected && error.message.contains("panicked"),
            "{error}"
        );
        // Waiting callers are woken, and nothing can be settled.
        buffer.arrived().await;
        assert!(buffer.take(1, 1).is_err() && buffer.settle(crate::BatchId(1), true).is_err());
    }
}
