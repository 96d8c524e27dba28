//! The search for messages without a time before the start of a group.
//!
//! A producer that takes seconds for milliseconds stamps its messages January 1970, which is no
//! time ([`MIN_EPOCH_MS`]). By the broker's index of times such a message is older than any start.
//! So the messages before the start are read, backwards in windows, up to the last one with a time:
//! those behind that one may have been sent since the start, and the group begins with them.
//!
//! If the search takes too long, the group begins behind the last message that is known to have a
//! time, and may read requests that are older than the start: none is lost.

use std::ops::Range;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Message, Offset, TopicPartitionList};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::config::{ClientRole, Config};
use super::connection::{Context, failed};
use crate::{ConnectorError, ErrorKind, MIN_EPOCH_MS, SourceOptions};

/// The longest wait for the next message.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);
/// The longest time of the search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(12);
/// The time of one poll.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);
/// The offsets of the first window.
const FIRST_WINDOW: i64 = 64;
/// The growth of a window over the one behind it.
const WINDOW_GROWTH: i64 = 8;

/// The search in one partition.
pub(super) struct Search {
    pub(super) partition: i32,
    /// Where the group begins, as far as is known.
    pub(super) start: i64,
    /// The first message with a time, or a later one that was read: the search ends there.
    timed: i64,
    /// The offsets that are read.
    window: Range<i64>,
    /// Whether the window was read to its end.
    is_read: bool,
    /// The first message of the window without a time, behind the last one with a time.
    untimed: Option<i64>,
    is_over: bool,
}

impl Search {
    /// A search before the first message since the start. `low`: the first message; `timed`: the
    /// first one with a time.
    pub(super) fn new(partition: i32, low: i64, timed: i64, since: i64) -> Self {
        // Before it nothing has a time.
        let is_over = timed >= since;
        Search {
            partition,
            start: if is_over { low.min(since) } else { since },
            timed,
            window: since.saturating_sub(FIRST_WINDOW).max(timed)..since,
            is_read: false,
            untimed: None,
            is_over,
        }
    }

    /// Takes a message into account.
    fn take(&mut self, offset: i64, ms: Option<i64>) {
        if offset >= self.window.end {
            self.is_read = true;
        } else if ms.is_some_and(|ms| ms >= MIN_EPOCH_MS) {
            (self.timed, self.untimed) = (offset, None);
        } else {
            self.untimed.get_or_insert(offset);
        }
    }

    /// Goes on with the window before this one, if no message of this one has a time.
    fn turn(&mut self) {
        self.start = self.untimed.take().unwrap_or(self.start);
        self.is_over = self.window.start <= self.timed;
        let length = (self.window.end - self.window.start).saturating_mul(WINDOW_GROWTH);
        let before = self.window.start;
        self.window = before.saturating_sub(length).max(self.timed)..before;
        self.is_read = false;
    }

    /// Ends the search early. Whatever is behind the last message that is known to have a time may
    /// have been sent since the start.
    fn give_up(&mut self) {
        (self.start, self.is_over) = (self.timed + 1, true);
    }

    /// Whether the rest of the window is awaited.
    fn is_open(&self) -> bool {
        !self.is_over && !self.is_read
    }
}

/// The time that the search has left.
struct Deadline {
    /// The end of the wait for the next message.
    next: Instant,
    /// The end of the search.
    end: Instant,
    /// Whether any message came.
    is_answered: bool,
}

impl Deadline {
    fn new(now: Instant) -> Self {
        Deadline { next: now + ANSWER_TIMEOUT, end: now + SEARCH_TIMEOUT, is_answered: false }
    }

    /// Gives the next message its time.
    fn answered(&mut self, now: Instant) {
        (self.next, self.is_answered) = (self.end.min(now + ANSWER_TIMEOUT), true);
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.next
    }
}

/// Searches in all partitions. Fails if no message came at all.
pub(super) fn search(
    config: &Config,
    options: &SourceOptions,
    searches: &mut [Search],
) -> Result<(), ConnectorError> {
    let (mut deadline, mut given_up) = (Deadline::new(Instant::now()), Vec::new());
    while searches.iter().any(|search| !search.is_over) {
        if !deadline.is_over(Instant::now()) {
            read(config, options, searches, &mut deadline)?;
        }
        for search in searches.iter_mut().filter(|search| !search.is_over) {
            if search.is_read {
                search.turn();
            } else {
                search.give_up();
                given_up.push((search.partition, search.start));
            }
        }
    }
    if !given_up.is_empty() {
        warn!(
            topic = options.topic,
            group = options.group,
            partitions = given_up.len(),
            "the messages before the start were not all read in time: the group begins further \
             back, and may read requests that are older than `start`; `max_age` rejects those"
        );
        debug!(topic = options.topic, ?given_up, "partitions and offsets that begin further back");
    }
    Ok(())
}

/// Reads the windows of the searches that are not over, as far as the time allows. A client of its
/// own reads them: nothing that it has prefetched can be taken for another window.
fn read(
    config: &Config,
    options: &SourceOptions,
    searches: &mut [Search],
    deadline: &mut Deadline,
) -> Result<(), ConnectorError> {
    let topic = options.topic.as_str();
    let what = format!("cannot read the messages before the start in `{topic}`");
    let role = ClientRole::Reader { group: &options.group, bytes: options.max_unsettled_bytes };
    let consumer: BaseConsumer<Context<()>> = config
        .client(role)?
        .create_with_context(Context::new(config, role, ()))
        .map_err(|error| failed(config, "cannot create a client", error))?;
    let mut list = TopicPartitionList::with_capacity(searches.len());
    for search in searches.iter().filter(|search| !search.is_over) {
        list.add_partition_offset(topic, search.partition, Offset::Offset(search.window.start))
            .map_err(|error| failed(config, &what, error))?;
    }
    consumer.assign(&list).map_err(|error| failed(config, &what, error))?;
    let mut last = None;
    while searches.iter().any(Search::is_open) && !deadline.is_over(Instant::now()) {
        let (partition, message) = match consumer.poll(POLL_TIMEOUT) {
            Some(Ok(message)) => {
                let ms = message.timestamp().to_millis();
                (message.partition(), Some((message.offset(), ms)))
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => (partition, None),
            Some(Err(error)) => {
                last = Some(error);
                continue;
            }
            None => continue,
        };
        let open = |search: &&mut Search| search.partition == partition && search.is_open();
        let Some(search) = searches.iter_mut().find(open) else { continue };
        deadline.answered(Instant::now());
        match message {
            Some((offset, ms)) => search.take(offset, ms),
            None => search.is_read = true,
        }
        if search.is_read {
            leave_to_others(&consumer, topic, partition);
        }
    }
    if deadline.is_answered {
        return Ok(());
    }
    Err(match last {
        Some(error) => failed(config, &what, error),
        None => config.fail(ErrorKind::Disconnected, &format!("{what}: no answer")),
    })
}

/// Stops fetching from a partition whose window is read: the others get its share.
fn leave_to_others(consumer: &BaseConsumer<Context<()>>, topic: &str, partition: i32) {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition(topic, partition);
    if let Err(error) = consumer.pause(&list) {
        debug!(%error, topic, partition, "cannot pause a partition whose window is read");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rdkafka::ClientConfig;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

    use super::*;
    use crate::{Acks, Start};

    const NOW: Option<i64> = Some(1_600_000_000_000);
    const SECONDS: Option<i64> = Some(1_600_000_000);

    /// The start that is found in a partition, and the number of windows read.
    fn found(mut search: Search, stamp: impl Fn(i64) -> Option<i64>) -> (i64, usize) {
        let mut windows = 0;
        while !search.is_over {
            windows += 1;
            for offset in search.window.start..=search.window.end {
                search.take(offset, stamp(offset));
            }
            assert!(search.is_read);
            search.turn();
        }
        (search.start, windows)
    }

    #[test]
    fn a_start_goes_back_to_the_last_message_with_a_time() {
        // Nothing before the start has a time, or there is nothing.
        assert_eq!(found(Search::new(0, 5, 100, 100), |_| SECONDS), (5, 0));
        assert_eq!(found(Search::new(0, 5, 5, 5), |_| NOW), (5, 0));
        // Everything has a time.
        assert_eq!(found(Search::new(0, 5, 5, 1_000), |_| NOW), (1_000, 1));
        let timed = |numbers: &'static [i64]| {
            move |offset: i64| if numbers.contains(&offset) { NOW } else { SECONDS }
        };
        assert_eq!(found(Search::new(0, 5, 5, 1_000), timed(&[5, 997])), (998, 1));
        assert_eq!(found(Search::new(0, 5, 5, 1_000), timed(&[5, 935])), (936, 2));
        assert_eq!(found(Search::new(0, 5, 7, 100_000), timed(&[7])), (8, 5));
        // No time at all is none too.
        assert_eq!(found(Search::new(0, 5, 7, 50), |offset| NOW.filter(|_| offset == 7)), (8, 1));
    }

    #[test]
    fn a_search_that_is_given_up_begins_behind_the_last_message_known_to_have_a_time() {
        let mut search = Search::new(0, 5, 7, 1_000);
        search.give_up();
        assert_eq!((search.start, search.is_over), (8, true));
        // The window is read in part.
        let mut search = Search::new(0, 5, 7, 1_000);
        for (offset, ms) in [(936, SECONDS), (937, NOW), (938, SECONDS)] {
            search.take(offset, ms);
        }
        assert!(search.is_open());
        search.give_up();
        assert_eq!((search.start, search.is_over), (938, true));
        // Nothing of the first window has a time, and the second is not read.
        let mut search = Search::new(0, 5, 7, 1_000);
        (936..=1_000).for_each(|offset| search.take(offset, SECONDS));
        search.turn();
        assert_eq!((search.start, search.is_over), (936, false));
        search.give_up();
        assert_eq!(search.start, 8);
    }

    #[test]
    fn each_message_gives_the_next_one_time_until_the_end() {
        let (begun, moment) = (Instant::now(), Duration::from_millis(1));
        let mut deadline = Deadline::new(begun);
        assert!(!deadline.is_over(begun) && deadline.is_over(begun + ANSWER_TIMEOUT));
        assert!(!deadline.is_answered);
        deadline.answered(begun + ANSWER_TIMEOUT - moment);
        assert!(deadline.is_answered && !deadline.is_over(begun + ANSWER_TIMEOUT));
        deadline.answered(begun + SEARCH_TIMEOUT - moment);
        assert!(!deadline.is_over(begun + SEARCH_TIMEOUT - moment));
        assert!(deadline.is_over(begun + SEARCH_TIMEOUT));
    }

    #[test]
    fn many_partitions_are_searched_together() {
        const PARTITIONS: i32 = 30;
        const MESSAGES: i64 = 200;
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", PARTITIONS, 1).unwrap();
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .create()
            .unwrap();
        for partition in 0..PARTITIONS {
            for offset in 0..MESSAGES {
                let ms = if [0, 60].contains(&offset) { NOW } else { SECONDS };
                let record = BaseRecord::<(), str>::to("t").partition(partition).payload("x");
                producer.send(record.timestamp(ms.unwrap())).unwrap();
            }
        }
        producer.flush(Duration::from_secs(30)).unwrap();
        let options = SourceOptions {
            topic: "t".to_owned(),
            group: "g".to_owned(),
            max_batch: 1,
            max_batch_bytes: 1,
            max_unsettled: 1,
            max_unsettled_bytes: 1 << 20,
            acks: Acks::Explicit,
            start: Start::Earliest,
            publishes_to: Vec::new(),
            expired_queue: None,
        };
        let mut searches: Vec<Search> =
            (0..PARTITIONS).map(|partition| Search::new(partition, 0, 0, MESSAGES)).collect();
        search(&Config::at(cluster.bootstrap_servers()), &options, &mut searches).unwrap();
        assert!(searches.iter().all(|search| search.start == 61));
    }
}
