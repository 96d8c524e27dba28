//! The start of a new group: one without any committed offset in the topic.
//!
//! A start other than the earliest is committed before anything is read. So it holds for all
//! instances, over restarts, and for messages before the first regular commit. `auto.offset.reset`
//! stays `earliest`: whatever it decides later (offsets deleted by retention, an added partition)
//! must skip nothing.

use std::time::Duration;

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Message, Offset, TopicPartitionList};
use tokio::time::Instant;

use super::config::Config;
use super::connection::failed;
use super::reader::GroupConsumer;
use super::untimed::{Search, search};
use crate::{ConnectorError, FirstRead, MIN_EPOCH_MS, SourceOptions, Start};

/// The longest wait for the committed offsets.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(8);
/// The longest wait for the offsets of the partitions, by all questions together.
const OFFSETS_TIMEOUT: Duration = Duration::from_secs(16);
/// The longest time to read the oldest messages.
const OLDEST_READ_TIMEOUT: Duration = Duration::from_secs(3);
/// The time of one poll for the client's events.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);

/// The start and the end of a partition.
struct Begin {
    partition: i32,
    from: i64,
    end: i64,
}

/// The start of each partition.
fn begins(
    config: &Config,
    consumer: &GroupConsumer,
    options: &SourceOptions,
    count: i32,
) -> Result<Vec<Begin>, ConnectorError> {
    let topic = options.topic.as_str();
    let wrong = |error| failed(config, &format!("cannot read the offsets of `{topic}`"), error);
    let deadline = Instant::now() + OFFSETS_TIMEOUT;
    let found = |at| offsets(consumer, topic, count, at, deadline).map_err(wrong);
    let all = |at| -> Result<Vec<i64>, ConnectorError> {
        let all: Option<Vec<i64>> = found(at)?.into_iter().collect();
        all.ok_or_else(|| wrong(KafkaError::OffsetFetch(Code::BadMessage)))
    };
    // Asked before the times: a message published after that answer is after this end.
    let (lows, ends) = (all(Offset::Beginning)?, all(Offset::End)?);
    let starts: Vec<i64> = match options.start {
        Start::Earliest => lows,
        Start::Latest => ends.clone(),
        Start::At(ms) => {
            // No message is that recent: the end.
            let since = |ms| -> Result<Vec<i64>, ConnectorError> {
                let found = found(Offset::Offset(ms))?;
                Ok(found.into_iter().zip(&ends).map(|(at, end)| at.unwrap_or(*end)).collect())
            };
            let (starts, timed) = (since(ms)?, since(MIN_EPOCH_MS)?);
            let all = (0..).zip(lows).zip(timed.into_iter().zip(starts));
            let mut searches: Vec<Search> = all
                .map(|((partition, low), (timed, start))| Search::new(partition, low, timed, start))
                .collect();
            search(config, options, &mut searches)?;
            searches.into_iter().map(|search| search.start).collect()
        }
    };
    let all = (0..).zip(starts).zip(ends);
    Ok(all.map(|((partition, from), end)| Begin { partition, from, end }).collect())
}

/// The beginning of each partition, its end, or its first message that is not older than a time in
/// ms, which stands for an offset; `None` if there is none. One request asks a broker for all
/// partitions, where `fetch_watermarks` asks for one after the other.
fn offsets(
    consumer: &GroupConsumer,
    topic: &str,
    count: i32,
    at: Offset,
    deadline: Instant,
) -> Result<Vec<Option<i64>>, KafkaError> {
    let mut times = TopicPartitionList::new();
    for partition in 0..count {
        times.add_partition_offset(topic, partition, at)?;
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let found = consumer.offsets_for_times(times, left)?;
    let offset = |partition| -> Result<Option<i64>, KafkaError> {
        let Some(element) = found.find_partition(topic, partition) else { return Ok(None) };
        element.error()?;
        Ok(match element.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        })
    };
    (0..count).map(offset).collect()
}

/// Whether the group has read the topic before.
pub(super) fn is_known(
    config: &Config,
    consumer: &GroupConsumer,
    topic: &str,
    group: &str,
    count: i32,
) -> Result<bool, ConnectorError> {
    let mut list = TopicPartitionList::with_capacity(usize::try_from(count).unwrap_or_default());
    for partition in 0..count {
        list.add_partition(topic, partition);
    }
    let deadline = Instant::now() + COMMITTED_TIMEOUT;
    let committed = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match consumer.committed_offsets(list.clone(), left) {
            Ok(committed) => break committed,
            // A cluster that just started, or that looks for another coordinator of the group.
            Err(error) if is_passing(&error) && Instant::now() < deadline => {
                drop(consumer.poll(POLL_TIMEOUT))
            }
            Err(error) => {
                return Err(failed(
                    config,
                    &format!("cannot read the committed offsets of the group `{group}`"),
                    error,
                ));
            }
        }
    };
    Ok(committed.elements().iter().any(|element| matches!(element.offset(), Offset::Offset(_))))
}

/// Whether the group's coordinator is only temporarily unavailable.
fn is_passing(error: &KafkaError) -> bool {
    let passing = [
        Code::NotCoordinator,
        Code::CoordinatorNotAvailable,
        Code::CoordinatorLoadInProgress,
        Code::WaitingForCoordinator,
    ];
    error.rdkafka_error_code().is_some_and(|code| passing.contains(&code))
}

fn list(
    config: &Config,
    topic: &str,
    begins: &[Begin],
) -> Result<TopicPartitionList, ConnectorError> {
    let mut list = TopicPartitionList::with_capacity(begins.len());
    for Begin { partition, from, .. } in begins {
        let added = list.add_partition_offset(topic, *partition, Offset::Offset(*from));
        added.map_err(|error| failed(config, "cannot name a partition", error))?;
    }
    Ok(list)
}

/// Commits the start of a new group. False if another member was faster: then the group is not new
/// any more.
pub(super) fn commit(
    config: &Config,
    consumer: &GroupConsumer,
    options: &SourceOptions,
    count: i32,
) -> Result<bool, ConnectorError> {
    let SourceOptions { topic, group, .. } = options;
    let begins = begins(config, consumer, options, count)?;
    // The broker refuses this commit while the group has members. A group that read and left would
    // lose its offsets.
    if is_known(config, consumer, topic, group, count)? {
        return Ok(false);
    }
    match consumer.commit(&list(config, topic, &begins)?, CommitMode::Sync) {
        Ok(()) => Ok(true),
        Err(error) if has_members(&error) => Ok(false),
        Err(error) => Err(failed(config, "cannot commit the start of the group", error)),
    }
}

/// Whether the broker refuses the commit of a non-member because the group has members.
fn has_members(error: &KafkaError) -> bool {
    let codes = [Code::UnknownMemberId, Code::IllegalGeneration, Code::RebalanceInProgress];
    error.rdkafka_error_code().is_some_and(|code| codes.contains(&code))
}

/// The messages that a new group would read first. The time is that of the oldest readable message
/// with a time, if that arrives soon.
pub(super) fn inspect(
    config: &Config,
    consumer: &GroupConsumer,
    options: &SourceOptions,
    count: i32,
) -> Result<FirstRead, ConnectorError> {
    let topic = options.topic.as_str();
    let begins: Vec<Begin> = begins(config, consumer, options, count)?
        .into_iter()
        .filter(|begin| begin.end > begin.from)
        .collect();
    let messages =
        begins.iter().map(|begin| u64::try_from(begin.end - begin.from).unwrap_or(0)).sum();
    // Assigned manually: the group is not joined, and nothing is committed.
    let assigned = consumer.assign(&list(config, topic, &begins)?);
    assigned.map_err(|error| failed(config, &format!("cannot read `{topic}`"), error))?;
    let (mut open, begun, mut oldest_ms) = (begins, Instant::now(), None::<i64>);
    while !open.is_empty() && begun.elapsed() < OLDEST_READ_TIMEOUT {
        let Some(Ok(message)) = consumer.poll(POLL_TIMEOUT) else { continue };
        open.retain(|begin| begin.partition != message.partition());
        let ms = message.timestamp().to_millis().filter(|ms| *ms >= MIN_EPOCH_MS);
        oldest_ms = oldest_ms.into_iter().chain(ms).min();
    }
    Ok(FirstRead { messages, oldest_ms })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use rdkafka::mocking::MockCluster;

    use super::*;
    use crate::Acks;
    use crate::kafka::buffer::DeliveryBuffer;
    use crate::kafka::config::ClientRole;
    use crate::kafka::connection::Context;

    #[test]
    fn a_group_that_another_instance_has_begun_keeps_its_offsets() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        let config = Config::at(cluster.bootstrap_servers());
        let options = SourceOptions {
            topic: "t".to_owned(),
            group: "g".to_owned(),
            max_batch: 1,
            max_batch_bytes: 1,
            max_unsettled: 1,
            max_unsettled_bytes: 1 << 20,
            acks: Acks::Explicit,
            start: Start::Latest,
            publishes_to: Vec::new(),
            expired_queue: None,
        };
        let role = ClientRole::Reader { group: &options.group, bytes: 1 << 20 };
        let buffer = Arc::new(DeliveryBuffer::new(&options));
        let consumer: GroupConsumer = config
            .client(role)
            .unwrap()
            .create_with_context(Context::new(&config, role, buffer))
            .unwrap();
        assert!(commit(&config, &consumer, &options, 1).unwrap(), "the group is new");
        // The other instance has read further, and left.
        let mut read = TopicPartitionList::new();
        read.add_partition_offset("t", 0, Offset::Offset(7)).unwrap();
        consumer.commit(&read, CommitMode::Sync).unwrap();
        assert!(!commit(&config, &consumer, &options, 1).unwrap());
        assert_eq!(consumer.committed_offsets(read.clone(), COMMITTED_TIMEOUT).unwrap(), read);
    }
}
