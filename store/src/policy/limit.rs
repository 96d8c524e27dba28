//! The turns of a limited target. A limit keeps one time in Redis: until then its turns are taken
//! (GCRA). Turns are a fixed span apart; a burst may be ahead of its time.

use std::fmt;

/// So long after its turn a job may still use the turn, or until the next turn of a lower rate, at
/// most for [`MAX_TURN_TTL_MS`]. Later it takes another one, at the end of the line: after an outage
/// the turns that passed meanwhile do not come all at once.
const TURN_TTL_MS: i64 = 2_000;
const MAX_TURN_TTL_MS: i64 = 3_600_000;
/// A turn further ahead is none: a clock was wrong, or the bytes are not a turn. The turns of a long
/// backlog with a low rate lie years ahead, and a job that loses one makes the line longer.
const MAX_AHEAD_MS: i64 = 36_525 * 86_400_000;
/// The burst of a limit without one of its own is worth this much time, µs.
const BURST_US: u64 = 100_000;

/// How many turns a limit has in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: u64,
    per_us: u64,
    burst: u64,
}

impl Rate {
    /// So many turns (at least one) in so many µs. `burst`: how many of them may come at once; by
    /// default 100 ms worth, and at least one.
    #[must_use]
    pub fn new(count: u64, per_us: u64, burst: Option<u64>) -> Self {
        let (count, per_us) = (count.max(1), per_us.max(1));
        let worth = u128::from(count) * u128::from(BURST_US) / u128::from(per_us);
        let burst = burst.unwrap_or(u64::try_from(worth).unwrap_or(u64::MAX));
        Rate { count, per_us, burst: burst.max(1) }
    }

    /// A rate as it is written; `None` for another text.
    #[must_use]
    pub fn read(text: &str) -> Option<Rate> {
        let mut numbers =
            text.split('/').map(|number| number.parse::<u64>().ok().filter(|n| *n > 0));
        let (count, per_us, burst) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(Rate { count, per_us, burst })
    }

    /// How many turns may come at once.
    #[must_use]
    pub fn burst(self) -> u64 {
        self.burst
    }

    /// The time that so many turns take, µs, rounded up: the rate is never exceeded.
    #[must_use]
    pub fn span_us(self, turns: u64) -> i64 {
        let us = (u128::from(turns) * u128::from(self.per_us)).div_ceil(u128::from(self.count));
        i64::try_from(us).unwrap_or(i64::MAX)
    }

    /// How far the end of the turns may be ahead while no turn lies ahead, µs.
    #[must_use]
    pub fn ahead_us(self) -> i64 {
        self.span_us(self.burst)
    }

    /// How long after its turn a job may still use the turn, ms.
    #[must_use]
    pub fn turn_ttl_ms(self) -> i64 {
        (self.span_us(1) / 1000).clamp(TURN_TTL_MS, MAX_TURN_TTL_MS)
    }

    /// When the turn of this index comes, of those that were taken at `now_us` from `from_us` on;
    /// epoch µs.
    #[must_use]
    pub fn turn_us(self, now_us: i64, from_us: i64, index: u64) -> i64 {
        let at_us = from_us.saturating_add(self.span_us(index));
        now_us.max(at_us.saturating_sub(self.span_us(self.burst - 1)))
    }

    /// How many turns that are taken lie ahead at `now_us`. `until_us`: until when turns are taken.
    #[must_use]
    pub fn waiting(self, now_us: i64, until_us: i64) -> u64 {
        let ahead_us = until_us.saturating_sub(self.ahead_us()).saturating_sub(now_us);
        let turns = (u128::from(u64::try_from(ahead_us).unwrap_or(0)) * u128::from(self.count))
            .div_ceil(u128::from(self.per_us));
        u64::try_from(turns).unwrap_or(u64::MAX)
    }
}

/// As [`Rate::read`] reads it: turns, the time that they take in µs, burst.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate { count, per_us, burst } = self;
        write!(f, "{count}/{per_us}/{burst}")
    }
}

/// The turn of a job at its limited target, kept in its state: whoever claims the job then need not
/// take another one. The upper 48 bits are the time, epoch ms, the others the mark of the limit.
/// All bits zero: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn(u64);

impl Turn {
    /// No turn.
    pub const NONE: Turn = Turn(0);

    /// A turn of the limit with this mark at this time, epoch µs. A turn that is still to come is
    /// rounded up to a whole ms, so that nothing is early.
    #[must_use]
    pub fn new(at_us: i64, now_us: i64, mark: u16) -> Turn {
        let ms = if at_us > now_us { at_us.saturating_add(999) / 1000 } else { at_us / 1000 };
        let ms = u64::try_from(ms).unwrap_or(0).min((1 << 48) - 1);
        Turn((ms << 16) | u64::from(mark))
    }

    /// The turn in the bytes of a state.
    #[must_use]
    pub fn of_bytes(bytes: [u8; 8]) -> Turn {
        Turn(u64::from_be_bytes(bytes))
    }

    /// The bytes in a state.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// When the turn comes, epoch ms; 0 without a turn.
    #[must_use]
    pub fn at_ms(self) -> i64 {
        // 48 bits.
        i64::try_from(self.0 >> 16).unwrap_or(i64::MAX)
    }

    /// Whether this is a turn of the limit with this mark that may be used at `now_ms` or later.
    /// `ttl_ms`: how long after its time.
    #[must_use]
    pub fn is_good(self, mark: u16, ttl_ms: i64, now_ms: i64) -> bool {
        let [.., high, low] = self.to_bytes();
        self != Turn::NONE
            && [high, low] == mark.to_be_bytes()
            && now_ms <= self.at_ms() + ttl_ms
            && self.at_ms() <= now_ms.saturating_add(MAX_AHEAD_MS)
    }
}

/// The mark of a limit in the turns of its jobs.
#[must_use]
pub fn mark_of(limit: &str) -> u16 {
    let hash = blake3::hash(limit.as_bytes());
    u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOW: i64 = 1_800_000_000_000_000;

    /// The turns of a limit whose calls ask for so many at these times, as `limit.lua` keeps them.
    fn turns(rate: Rate, calls: &[(i64, u64)]) -> Vec<i64> {
        let (mut until, mut all) = (0, Vec::new());
        for (at, count) in calls {
            let (now, from) = (NOW + at, i64::max(until, NOW + at));
            all.extend((0..*count).map(|index| rate.turn_us(now, from, index) - NOW));
            until = from + rate.span_us(*count);
        }
        all
    }

    #[test]
    fn turns_are_apart_and_a_burst_comes_at_once() {
        let rate = |count, burst| Rate::new(count, SECOND, burst);
        for (rate, calls, expected) in [
            (rate(100, Some(1)), &[(0, 3)][..], &[0, 10_000, 20_000][..]),
            (rate(100, Some(2)), &[(0, 4)], &[0, 0, 10_000, 20_000]),
            // The calls of two instances.
            (rate(100, Some(1)), &[(0, 2), (500, 1)], &[0, 10_000, 20_000]),
            // A pause fills the burst again, and no more.
            (
                rate(100, Some(2)),
                &[(0, 2), (1_000_000, 3)],
                &[0, 0, 1_000_000, 1_000_000, 1_010_000],
            ),
            (rate(3, Some(1)), &[(0, 4)], &[0, 333_334, 666_667, 1_000_000]),
            (Rate::new(1, 3600 * SECOND, None), &[(0, 2)], &[0, 3_600_000_000]),
        ] {
            assert_eq!(turns(rate, calls), expected, "{rate:?} {calls:?}");
        }
    }

    #[test]
    fn no_window_has_more_turns_than_rate_and_burst() {
        for (count, burst) in [(1, 1), (7, 3), (100, 10), (333, 1), (5_000, 500)] {
            let rate = Rate::new(count, SECOND, Some(burst));
            let mut calls: Vec<(i64, u64)> = (0_i64..200)
                .map(|n| (n * 13_007 % 400_000 + n * 2_000, 1 + n.unsigned_abs() % 9))
                .collect();
            calls.sort_unstable();
            let mut all = turns(rate, &calls);
            all.sort_unstable();
            for (at, first) in all.iter().enumerate() {
                let within = all[at..].iter().take_while(|turn| **turn < first + 1_000_000).count();
                assert!(within as u64 <= count + burst, "{count} {burst}: {within} from {first}");
            }
        }
    }

    #[test]
    fn a_burst_is_100_ms_worth_by_default() {
        for (count, per_us, burst) in [
            (100, SECOND, 10),
            (1, SECOND, 1),
            (9, SECOND, 1),
            (6_000, 60 * SECOND, 10),
            (0, 0, 100_000),
        ] {
            assert_eq!(Rate::new(count, per_us, None).burst(), burst, "{count} in {per_us}");
        }
        assert_eq!(Rate::new(100, SECOND, Some(0)).burst(), 1);
    }

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        let rate = Rate::new(100, SECOND, Some(3));
        assert_eq!(
            (rate.to_string().as_str(), Rate::read("100/1000000/3")),
            ("100/1000000/3", Some(rate))
        );
        for text in ["", "1", "1/1", "1/0/1", "0/1/1", "1/1/0", "1/1/1/1", "a/1/1", "-1/1/1"] {
            assert_eq!(Rate::read(text), None, "{text}");
        }
    }

    #[test]
    fn turns_that_lie_ahead_are_counted() {
        let rate = Rate::new(100, SECOND, Some(2));
        for taken in [0, 1, 2, 3, 4, 500] {
            let until = NOW + rate.span_us(taken);
            let ahead =
                (0..taken).filter(|index| rate.turn_us(NOW, NOW, *index) > NOW).count() as u64;
            assert_eq!(rate.waiting(NOW, until), ahead, "{taken}");
        }
        assert_eq!(rate.waiting(NOW, 0), 0);
    }

    #[test]
    fn a_turn_is_used_at_its_limit_and_not_long_after() {
        let turn = Turn::new(NOW + 1, NOW, 7);
        assert_eq!(Turn::of_bytes(turn.to_bytes()), turn);
        assert_eq!(turn.at_ms(), NOW / 1000 + 1, "rounded up");
        assert_eq!(Turn::new(NOW + 1, NOW + 1, 7).at_ms(), NOW / 1000, "now");
        let at = turn.at_ms();
        assert!(turn.is_good(7, 5, at - 50_000) && turn.is_good(7, 5, at + 5));
        assert!(!turn.is_good(7, 5, at + 6) && !turn.is_good(8, 5, at));
        assert!(!turn.is_good(7, 5, at - MAX_AHEAD_MS - 1));
        assert!(!Turn::NONE.is_good(0, 5, 0) && Turn::default().at_ms() == 0);
        let ttl_ms = |count, per_us| Rate::new(count, per_us, None).turn_ttl_ms();
        assert_eq!(ttl_ms(100, SECOND), 2_000);
        assert_eq!(ttl_ms(20, 3600 * SECOND), 180_000);
        assert_eq!(ttl_ms(1, 7200 * SECOND), MAX_TURN_TTL_MS);
        assert_ne!(mark_of("main a.*"), mark_of("main b.*"));
    }
}
