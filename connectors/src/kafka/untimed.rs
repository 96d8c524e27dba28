//! The search for messages without a time before the start of a group.
//!
//! A producer that takes seconds for milliseconds stamps its messages January 1970, which is no
//! time ([`MIN_EPOCH_MS`]). By the broker's index of times such a message is older than any start.
//! So the messages before the start are read, backwards in windows, up to the last one with a time:
//! those behind that one may have been sent since the start, and the group begins with them.
//!
//! If the search takes too long, the group begins behind the last message that is known to have a
//! time, and may read requests that are older than the start: none is lost. If no message of a
//! partition came at all, the search fails, and is tried again: mostly all messages have a time,
//! and the old requests of the whole partition would be carried out again.

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
/// The offsets of the first window: where its message has a time, the search is over.
const FIRST_WINDOW: i64 = 1;
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
    /// Whether a message of any window was read.
    has_answered: bool,
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
            has_answered: false,
            is_over,
        }
    }

    /// Takes a message into account.
    fn take(&mut self, offset: i64, ms: Option<i64>) {
        self.is_read = offset + 1 >= self.window.end;
        if offset >= self.window.end {
            return;
        }
        self.has_answered = true;
        if ms.is_some_and(|ms| ms >= MIN_EPOCH_MS) {
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
}

impl Deadline {
    fn new(now: Instant) -> Self {
        Deadline { next: now + ANSWER_TIMEOUT, end: now + SEARCH_TIMEOUT }
    }

    /// Gives the next message its time.
    fn renew(&mut self, now: Instant) {
        self.next = self.end.min(now + ANSWER_TIMEOUT);
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.next
    }
}

/// A partition, and the offset and time of its next message; no message: the end of the partition.
type Answer = (i32, Option<(i64, Option<i64>)>);

/// The reader of the windows.
trait Reader {
    /// The next answer, if it comes soon.
    fn poll(&mut self) -> Option<Result<Answer, KafkaError>>;

    /// Stops reading a partition: the others get its share.
    fn leave(&mut self, partition: i32);
}

/// The result of a search.
#[derive(Default)]
struct Outcome {
    /// The partitions whose search was given up, and where they begin.
    given_up: Vec<(i32, i64)>,
    /// The partitions of which no message came.
    silent: Vec<i32>,
    /// The last error of the reader.
    last: Option<KafkaError>,
}

impl Outcome {
    /// Fails if no message of a partition came: all that it has may be older than the start.
    fn into_result(self, config: &Config, options: &SourceOptions) -> Result<(), ConnectorError> {
        let (topic, last) = (&options.topic, self.last);
        if let Some(first) = self.silent.first() {
            let what = format!(
                "{}: none came from {} partitions, such as {first}",
                unreadable(topic),
                self.silent.len()
            );
            return Err(match last {
                Some(error) => failed(config, &what, error),
                None => config.fail(ErrorKind::Disconnected, &what),
            });
        }
        if !self.given_up.is_empty() {
            warn!(
                topic,
                group = options.group,
                partitions = self.given_up.len(),
                error = last.as_ref().map(tracing::field::display),
                "the messages before the start were not all read in time: the group begins \
                 further back, and may read requests that are older than `start`; `max_age` \
                 rejects those that have a time, and one without a time is carried out whatever \
                 `max_age` says"
            );
            debug!(topic, given_up = ?self.given_up, "where partitions begin further back");
        }
        Ok(())
    }
}

fn unreadable(topic: &str) -> String {
    format!("cannot read the messages before the start in `{topic}`")
}

/// Searches in all partitions. Fails if no message of one came.
pub(super) fn search(
    config: &Config,
    options: &SourceOptions,
    searches: &mut [Search],
) -> Result<(), ConnectorError> {
    search_with(searches, |windows| WindowClient::open(config, options, windows))?
        .into_result(config, options)
}

/// Searches with the readers that `open` makes, one for the next windows of all partitions: for
/// each partition the offset where its window begins.
fn search_with<R: Reader>(
    searches: &mut [Search],
    mut open: impl FnMut(&[(i32, i64)]) -> Result<R, ConnectorError>,
) -> Result<Outcome, ConnectorError> {
    let (mut outcome, mut deadline) = (Outcome::default(), Deadline::new(Instant::now()));
    while outcome.silent.is_empty() && searches.iter().any(|search| !search.is_over) {
        if !deadline.is_over(Instant::now()) {
            let windows: Vec<(i32, i64)> = searches
                .iter()
                .filter(|search| !search.is_over)
                .map(|search| (search.partition, search.window.start))
                .collect();
            let last = read(&mut open(&windows)?, searches, &mut deadline);
            outcome.last = last.or(outcome.last);
        }
        for search in searches.iter_mut().filter(|search| !search.is_over) {
            if search.is_read {
                search.turn();
            } else if search.has_answered {
                search.give_up();
                outcome.given_up.push((search.partition, search.start));
            } else {
                outcome.silent.push(search.partition);
            }
        }
        // The silence of one partition takes no time from the others.
        deadline.renew(Instant::now());
    }
    Ok(outcome)
}

/// Reads the windows of the searches that are not over, as far as the time allows. Returns the last
/// error of the reader.
fn read(
    reader: &mut impl Reader,
    searches: &mut [Search],
    deadline: &mut Deadline,
) -> Option<KafkaError> {
    let mut last = None;
    while searches.iter().any(Search::is_open) && !deadline.is_over(Instant::now()) {
        let (partition, message) = match reader.poll() {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                last = Some(error);
                continue;
            }
            None => continue,
        };
        let open = |search: &&mut Search| search.partition == partition && search.is_open();
        let Some(search) = searches.iter_mut().find(open) else { continue };
        deadline.renew(Instant::now());
        match message {
            Some((offset, ms)) => search.take(offset, ms),
            None => search.is_read = true,
        }
        if search.is_read {
            reader.leave(partition);
        }
    }
    last
}

/// A client of its own for some windows: nothing that it has prefetched can be taken for another
/// window.
struct WindowClient<'a> {
    consumer: BaseConsumer<Context<()>>,
    topic: &'a str,
}

impl<'a> WindowClient<'a> {
    fn open(
        config: &Config,
        options: &'a SourceOptions,
        windows: &[(i32, i64)],
    ) -> Result<Self, ConnectorError> {
        let topic = options.topic.as_str();
        let wrong = |error| failed(config, &unreadable(topic), error);
        let role = ClientRole::Reader { group: &options.group, bytes: options.max_unsettled_bytes };
        let consumer: BaseConsumer<Context<()>> = config
            .client(role)?
            .create_with_context(Context::new(config, role, ()))
            .map_err(|error| failed(config, "cannot create a client", error))?;
        let mut list = TopicPartitionList::with_capacity(windows.len());
        for (partition, start) in windows {
            list.add_partition_offset(topic, *partition, Offset::Offset(*start)).map_err(wrong)?;
        }
        consumer.assign(&list).map_err(wrong)?;
        Ok(WindowClient { consumer, topic })
    }
}

impl Reader for WindowClient<'_> {
    fn poll(&mut self) -> Option<Result<Answer, KafkaError>> {
        Some(match self.consumer.poll(POLL_TIMEOUT)? {
            Ok(message) => {
                let ms = message.timestamp().to_millis();
                Ok((message.partition(), Some((message.offset(), ms))))
            }
            Err(KafkaError::PartitionEOF(partition)) => Ok((partition, None)),
            Err(error) => Err(error),
        })
    }

    fn leave(&mut self, partition: i32) {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition(self.topic, partition);
        if let Err(error) = self.consumer.pause(&list) {
            let topic = self.topic;
            debug!(%error, topic, partition, "cannot pause a partition whose window is read");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::VecDeque;

    use futures_util::FutureExt;
    use rdkafka::ClientConfig;
    use rdkafka::error::RDKafkaErrorCode as Code;
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
        assert_eq!(found(Search::new(0, 5, 5, 1_000), timed(&[5, 997])), (998, 2));
        assert_eq!(found(Search::new(0, 5, 5, 1_000), timed(&[5, 935])), (936, 3));
        assert_eq!(found(Search::new(0, 5, 7, 100_000), timed(&[7])), (8, 7));
        // No time at all is none too.
        assert_eq!(found(Search::new(0, 5, 7, 50), |offset| NOW.filter(|_| offset == 7)), (8, 3));
    }

    #[test]
    fn a_search_that_is_given_up_begins_behind_the_last_message_known_to_have_a_time() {
        let mut search = Search::new(0, 5, 7, 1_000);
        search.give_up();
        assert_eq!((search.start, search.is_over), (8, true));
        // Nothing of the first window has a time, and the second is read in part or not at all.
        for (read, start) in [(&[(991, SECONDS), (992, NOW), (993, SECONDS)][..], 993), (&[], 8)] {
            let mut search = Search::new(0, 5, 7, 1_000);
            search.take(999, SECONDS);
            search.turn();
            assert_eq!((search.start, search.is_over), (999, false));
            read.iter().for_each(|(offset, ms)| search.take(*offset, *ms));
            assert!(search.is_open());
            search.give_up();
            assert_eq!((search.start, search.is_over), (start, true));
        }
    }

    #[test]
    fn each_message_gives_the_next_one_time_until_the_end() {
        let (begun, moment) = (Instant::now(), Duration::from_millis(1));
        let mut deadline = Deadline::new(begun);
        assert!(!deadline.is_over(begun) && deadline.is_over(begun + ANSWER_TIMEOUT));
        deadline.renew(begun + ANSWER_TIMEOUT - moment);
        assert!(!deadline.is_over(begun + ANSWER_TIMEOUT));
        deadline.renew(begun + SEARCH_TIMEOUT - moment);
        assert!(!deadline.is_over(begun + SEARCH_TIMEOUT - moment));
        assert!(deadline.is_over(begun + SEARCH_TIMEOUT));
    }

    /// The time of a message that comes; `None` if it does not come.
    type Stamp = fn(i32, i64) -> Option<Option<i64>>;

    /// Invented answers: each message that comes takes its time.
    struct Invented {
        pace: Duration,
        stamp: Stamp,
        /// The next offset of each partition.
        next: VecDeque<(i32, i64)>,
    }

    impl Reader for Invented {
        fn poll(&mut self) -> Option<Result<Answer, KafkaError>> {
            let comes = |at: &(i32, i64)| (self.stamp)(at.0, at.1).is_some();
            let Some(place) = self.next.iter().position(comes) else {
                pass(POLL_TIMEOUT);
                return Some(Err(KafkaError::MessageConsumption(Code::LeaderNotAvailable)));
            };
            pass(self.pace);
            let (partition, offset) = self.next.remove(place)?;
            self.next.push_back((partition, offset + 1));
            Some(Ok((partition, Some((offset, (self.stamp)(partition, offset)?)))))
        }

        fn leave(&mut self, partition: i32) {
            self.next.retain(|(other, _)| *other != partition);
        }
    }

    /// Lets time pass that tests control.
    fn pass(time: Duration) {
        let _ = tokio::time::advance(time).now_or_never();
    }

    /// Searches partitions of 1000 messages. Returns the outcome and the starts.
    fn invented(partitions: i32, pace: Duration, stamp: Stamp) -> (Outcome, Vec<i64>) {
        let mut searches: Vec<Search> =
            (0..partitions).map(|partition| Search::new(partition, 0, 0, 1_000)).collect();
        let outcome = search_with(&mut searches, |windows| {
            Ok(Invented { pace, stamp, next: windows.iter().copied().collect() })
        });
        (outcome.unwrap(), searches.iter().map(|search| search.start).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_partition_takes_no_time_from_the_others() {
        // The first falls silent in its second window, the other has a time in its third.
        let (outcome, starts) = invented(2, POLL_TIMEOUT, |partition, offset| {
            let time = if offset == 935 { NOW } else { SECONDS };
            (partition == 1 || offset == 999).then_some(time)
        });
        assert_eq!((outcome.given_up, outcome.silent), (vec![(0, 1)], vec![]));
        assert_eq!(starts, [1, 936]);
        assert!(outcome.last.is_some(), "the error is kept for the warning");
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_fails_where_no_message_of_a_partition_came() {
        let begun = Instant::now();
        let (outcome, _) = invented(2, POLL_TIMEOUT, |_, _| None);
        assert!(outcome.given_up.is_empty());
        assert_eq!(outcome.silent, [0, 1]);
        assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
        let error = outcome.into_result(&Config::at("h:1"), &options()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Disconnected);
        for part in ["none came from 2 partitions, such as 0", "Message consumption error"] {
            assert!(error.message.contains(part), "{error}");
        }
        let (outcome, _) =
            invented(2, POLL_TIMEOUT, |partition, _| (partition == 1).then_some(NOW));
        assert_eq!((outcome.given_up, outcome.silent), (vec![], vec![0]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_broker_makes_no_partition_begin_at_its_second_message() {
        // Within its time the search reads the messages of 12 partitions.
        let pace = SEARCH_TIMEOUT / 12;
        let (outcome, starts) = invented(30, pace, |_, _| Some(NOW));
        assert_eq!((outcome.given_up, outcome.silent), (vec![], (12..30).collect::<Vec<_>>()));
        assert_eq!(starts, [1_000; 30], "nothing before the start is read");
        assert_eq!(invented(12, pace, |_, _| Some(NOW)).1, [1_000; 12]);
        // Some messages were read, none of them with a time.
        let (outcome, starts) = invented(1, pace, |_, _| Some(SECONDS));
        assert_eq!((outcome.given_up, outcome.silent), (vec![(0, 1)], vec![]));
        assert_eq!(starts, [1]);
    }

    fn options() -> SourceOptions {
        SourceOptions {
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
        }
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
        let mut searches: Vec<Search> =
            (0..PARTITIONS).map(|partition| Search::new(partition, 0, 0, MESSAGES)).collect();
        search(&Config::at(cluster.bootstrap_servers()), &options(), &mut searches).unwrap();
        assert!(searches.iter().all(|search| search.start == 61));
    }
}
