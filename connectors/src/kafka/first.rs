//! Where a group begins that is new: nothing of the topic is committed, in no partition.
//!
//! A beginning other than the earliest is committed before anything is read: so it holds for all instances, over restarts, and for what comes
//! before the first commit. `auto.offset.reset` stays `earliest`: what it decides later (offsets that fell out of the log, a partition that was
//! added) must skip nothing.

use std::time::Duration;

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Message, Offset, TopicPartitionList};
use tokio::time::Instant;

use super::config::Config;
use super::link::failed;
use super::reader::Reads;
use crate::{ConnectorError, FirstRead, Start};

/// The longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// The longest look at the oldest messages.
const LOOK: Duration = Duration::from_secs(3);
/// For what the client has to tell.
const MOMENT: Duration = Duration::from_millis(20);

/// Where a partition would begin, and where its log ends.
struct Begin {
    partition: i32,
    from: i64,
    end: i64,
}

/// Where each partition would begin.
fn begins(config: &Config, consumer: &Reads, topic: &str, count: i32, start: Start) -> Result<Vec<Begin>, ConnectorError> {
    let wrong = |error| failed(config, &format!("cannot look where `{topic}` begins"), error);
    let mut times = TopicPartitionList::new();
    if let Start::At(ms) = start {
        for partition in 0..count {
            times.add_partition_offset(topic, partition, Offset::Offset(ms)).map_err(wrong)?;
        }
        times = consumer.offsets_for_times(times, PATIENCE).map_err(wrong)?;
    }
    let begin = |partition| {
        let (low, end) = consumer.fetch_watermarks(topic, partition, PATIENCE).map_err(wrong)?;
        let from = match (start, times.find_partition(topic, partition).map(|element| element.offset())) {
            (Start::Earliest, _) => low,
            (Start::At(_), Some(Offset::Offset(offset))) => offset,
            // None is so young.
            (Start::At(_) | Start::Latest, _) => end,
        };
        Ok(Begin { partition, from, end })
    };
    (0..count).map(begin).collect()
}

fn list(config: &Config, topic: &str, begins: &[Begin]) -> Result<TopicPartitionList, ConnectorError> {
    let mut list = TopicPartitionList::with_capacity(begins.len());
    for Begin { partition, from, .. } in begins {
        let added = list.add_partition_offset(topic, *partition, Offset::Offset(*from));
        added.map_err(|error| failed(config, "cannot name a partition", error))?;
    }
    Ok(list)
}

/// Commits where a new group begins. False where somebody else of the group was faster: then it is not new any more.
pub(super) fn commit(config: &Config, consumer: &Reads, topic: &str, count: i32, start: Start) -> Result<bool, ConnectorError> {
    let begins = begins(config, consumer, topic, count, start)?;
    match consumer.commit(&list(config, topic, &begins)?, CommitMode::Sync) {
        Ok(()) => Ok(true),
        Err(error) if has_members(&error) => Ok(false),
        Err(error) => Err(failed(config, "cannot commit where the group begins", error)),
    }
}

/// Whether the group refuses a commit of who is no member, because it has some.
fn has_members(error: &KafkaError) -> bool {
    let codes = [Code::UnknownMemberId, Code::IllegalGeneration, Code::RebalanceInProgress];
    error.rdkafka_error_code().is_some_and(|code| codes.contains(&code))
}

/// What a new group would begin with. The time is that of the oldest message that is there to be read, as far as it comes soon.
pub(super) fn look(config: &Config, consumer: &Reads, topic: &str, count: i32, start: Start) -> Result<FirstRead, ConnectorError> {
    let begins: Vec<Begin> = begins(config, consumer, topic, count, start)?.into_iter().filter(|begin| begin.end > begin.from).collect();
    let messages = begins.iter().map(|begin| u64::try_from(begin.end - begin.from).unwrap_or(0)).sum();
    // Assigned by hand: the group is not joined, and nothing is committed.
    let assigned = consumer.assign(&list(config, topic, &begins)?);
    assigned.map_err(|error| failed(config, &format!("cannot look into `{topic}`"), error))?;
    let (mut open, begun, mut oldest_ms) = (begins, Instant::now(), None::<i64>);
    while !open.is_empty() && begun.elapsed() < LOOK {
        let Some(Ok(message)) = consumer.poll(MOMENT) else { continue };
        open.retain(|begin| begin.partition != message.partition());
        oldest_ms = oldest_ms.into_iter().chain(message.timestamp().to_millis()).min();
    }
    Ok(FirstRead { messages, oldest_ms })
}
