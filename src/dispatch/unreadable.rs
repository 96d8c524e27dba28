//! Limits the warnings about jobs that this version cannot read: each claim from their bucket finds
//! them again.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Instant;

/// An unchanged count is logged again after this time.
const LOG_REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// By bucket: the count that was logged last, and when.
#[derive(Debug, Default)]
pub(super) struct UnreadableJobs(HashMap<u16, (u32, Instant)>);

impl UnreadableJobs {
    /// Whether to log this count of a bucket: it rose, or the last log line is older than
    /// [`LOG_REPEAT_INTERVAL`].
    pub(super) fn should_log(&mut self, bucket: u16, count: u32, now: Instant) -> bool {
        if count == 0 {
            return false;
        }
        let should_log = self
            .0
            .get(&bucket)
            .is_none_or(|(logged, at)| count > *logged || now >= *at + LOG_REPEAT_INTERVAL);
        if should_log {
            self.0.insert(bucket, (count, now));
        }
        should_log
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_same_count_is_logged_once_a_minute() {
        let (mut unreadable, now) = (UnreadableJobs::default(), clock::now());
        let later = now + LOG_REPEAT_INTERVAL;
        let counts = [
            (1, 0, now),
            (1, 2, now),
            (1, 2, now),
            (1, 1, now),
            (2, 1, now),
            (1, 3, now),
            (1, 3, later),
            (1, 3, later),
        ];
        let logged = counts.map(|(bucket, count, at)| unreadable.should_log(bucket, count, at));
        assert_eq!(logged, [false, true, false, false, true, true, true, false]);
    }
}
