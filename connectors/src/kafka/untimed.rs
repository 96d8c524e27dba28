//! The search for messages without a time before the start of a group.
//!
//! A producer that takes seconds for milliseconds stamps its messages January 1970, which is no
//! time ([`MIN_EPOCH_MS`]). By the broker's index of times such a message is older than any start.
//! So the messages before the start are read, backwards in windows, up to the last one with a time:
//! those behind that one may have been sent since the start, and the group begins with them.

use std::ops::Range;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Message, Offset, TopicPartitionList};
use tokio::time::Instant;
use tracing::warn;

use super::config::{ClientRole, Config};
use super::connection::{Context, failed};
use crate::{ConnectorError, ErrorKind, MIN_EPOCH_MS, SourceOptions};

/// The longest time of the search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(6);
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
    /// The first message with a time: the search ends there.
    timed: i64,
    /// The offsets that are read.
    window: Range<i64>,
    /// Whether the window was read to its end.
    is_read: bool,
    /// Whether a message of the window has a time.
    is_timed: bool,
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
            is_timed: false,
            untimed: None,
            is_over,
        }
    }

    /// Takes a message into account.
    fn take(&mut self, offset: i64, ms: Option<i64>) {
        if offset >= self.window.end {
            self.is_read = true;
        } else if ms.is_some_and(|ms| ms >= MIN_EPOCH_MS) {
            (self.is_timed, self.untimed) = (true, None);
        } else {
            self.untimed.get_or_insert(offset);
        }
    }

    /// Goes on with the window before this one, if no message of this one has a time.
    fn turn(&mut self) {
        self.start = self.untimed.take().unwrap_or(self.start);
        self.is_over = self.is_timed || self.window.start <= self.timed;
        let length = (self.window.end - self.window.start).saturating_mul(WINDOW_GROWTH);
        let before = self.window.start;
        self.window = before.saturating_sub(length).max(self.timed)..before;
        self.is_read = false;
    }
}

/// Searches in all partitions.
pub(super) fn search(
    config: &Config,
    options: &SourceOptions,
    searches: &mut [Search],
) -> Result<(), ConnectorError> {
    let deadline = Instant::now() + SEARCH_TIMEOUT;
    let mut is_first = true;
    while searches.iter().any(|search| !search.is_over) {
        let failure = read(config, options, searches, deadline)?;
        for search in searches.iter_mut().filter(|search| !search.is_over && search.is_read) {
            search.turn();
        }
        if let Some(error) = failure {
            if is_first {
                return Err(error);
            }
            // Whatever is behind the first message with a time may have been sent since the start.
            for search in searches.iter_mut().filter(|search| !search.is_over) {
                (search.start, search.is_over) = (search.timed + 1, true);
                warn!(
                    topic = options.topic,
                    partition = search.partition,
                    offset = search.start,
                    "too many messages have no time, beginning with all of them"
                );
            }
        }
        is_first = false;
    }
    Ok(())
}

/// Reads the windows of the searches that are not over; returns why it could not. A client of its
/// own reads them: nothing that it has prefetched can be taken for another window.
fn read(
    config: &Config,
    options: &SourceOptions,
    searches: &mut [Search],
    deadline: Instant,
) -> Result<Option<ConnectorError>, ConnectorError> {
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
    while searches.iter().any(|search| !search.is_over && !search.is_read) {
        if Instant::now() >= deadline {
            let error = match last {
                Some(error) => failed(config, &what, error),
                None => config.fail(ErrorKind::Disconnected, &format!("{what}: no answer")),
            };
            return Ok(Some(error));
        }
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
        let open = |search: &&mut Search| {
            search.partition == partition && !search.is_over && !search.is_read
        };
        let Some(search) = searches.iter_mut().find(open) else { continue };
        match message {
            Some((offset, ms)) => search.take(offset, ms),
            None => search.is_read = true,
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
