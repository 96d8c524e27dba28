//! What was said of jobs that this version cannot read: each look at their bucket finds them again.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Instant;

/// How often it is said again while nothing changes.
const AGAIN: Duration = Duration::from_secs(60);

/// By bucket: how many there were, and when that was said.
#[derive(Debug, Default)]
pub(super) struct Unread(HashMap<u16, (u32, Instant)>);

impl Unread {
    /// Whether so many in this bucket are to be told of: more than were told of, or as many as long ago.
    pub(super) fn is_news(&mut self, bucket: u16, count: u32, now: Instant) -> bool {
        if count == 0 {
            return false;
        }
        let is_news = self.0.get(&bucket).is_none_or(|(told, at)| count > *told || now >= *at + AGAIN);
        if is_news {
            self.0.insert(bucket, (count, now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_same_is_told_once_a_minute() {
        let (mut unread, now) = (Unread::default(), clock::now());
        let later = now + AGAIN;
        let told = [(1, 0, now), (1, 2, now), (1, 2, now), (1, 1, now), (2, 1, now), (1, 3, now), (1, 3, later), (1, 3, later)];
        let news = told.map(|(bucket, count, at)| unread.is_news(bucket, count, at));
        assert_eq!(news, [false, true, false, false, true, true, true, false]);
    }
}
