//! Job ids as lmstfy makes them: a ULID, which sorts by time, with the delay in its last four
//! bytes; one with a version has the digit `1` in front.

use parking_lot::Mutex;

/// Crockford's base 32.
const BASE32_DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// The characters of a ULID.
const ULID_CHARS: usize = 26;
/// The version of jobs with attributes.
const ATTRIBUTES_VERSION: char = '1';
/// Bits of the number that tells the ids of one millisecond apart.
const NUMBER_BITS: u32 = 48;
/// Bits of the delay.
const DELAY_BITS: u32 = 32;

/// Makes ids. Each is greater than those before it from the same generator.
#[derive(Debug, Default)]
pub(super) struct Ids(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    ms: u64,
    number: u64,
}

impl Ids {
    /// The id of a job that is published now and due in so many seconds.
    pub(super) fn next(&self, now_ms: i64, delay_s: u32, has_version: bool) -> String {
        let now = u64::try_from(now_ms).unwrap_or(0);
        let mut last = self.0.lock();
        // A random step, so that nobody guesses the next id.
        let number = last.number + 1 + u64::from(rand::random::<u32>());
        *last = if now > last.ms {
            // The upper bit is free for the steps within the millisecond.
            Last { ms: now, number: rand::random::<u64>() >> (64 - NUMBER_BITS + 1) }
        } else if number >> NUMBER_BITS == 0 {
            Last { ms: last.ms, number }
        } else {
            Last { ms: last.ms + 1, number: 0 }
        };
        let value = u128::from(last.ms) << (NUMBER_BITS + DELAY_BITS)
            | u128::from(last.number) << DELAY_BITS
            | u128::from(delay_s.swap_bytes());
        let mut text = String::with_capacity(ULID_CHARS + 1);
        if has_version {
            text.push(ATTRIBUTES_VERSION);
        }
        for at in (0..ULID_CHARS).rev() {
            // Five bits are less than 32.
            let digit = usize::try_from(value >> (5 * at) & 31).unwrap_or(0);
            text.push(char::from(BASE32_DIGITS[digit]));
        }
        text
    }
}

/// Whether the id has a version: its job may have attributes.
pub(super) fn has_version(id: &str) -> bool {
    id.len() == ULID_CHARS + 1
}

/// When the job of this id was published, epoch ms; `None` for an id that is not of this form.
pub(super) fn published_ms(id: &str) -> Option<i64> {
    let ulid = if has_version(id) { id.get(1..)? } else { id };
    if ulid.len() != ULID_CHARS
        || !ulid.bytes().all(|byte| BASE32_DIGITS.contains(&byte.to_ascii_uppercase()))
    {
        return None;
    }
    // The first ten characters are the time, in 50 bits of which the first two are not used.
    let digit = |byte: u8| {
        BASE32_DIGITS.iter().position(|digit| *digit == byte.to_ascii_uppercase()).unwrap_or(0)
    };
    let ms = ulid
        .bytes()
        .take(10)
        .fold(0_i64, |ms, byte| ms << 5 | i64::try_from(digit(byte)).unwrap_or(0));
    (ms >> 48 == 0).then_some(ms)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_also_within_a_millisecond() {
        let ids = Ids::default();
        let made: Vec<String> =
            (0..200_000).map(|n| ids.next(1_795_522_858_000 + n / 100_000, 0, false)).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]));
        // A clock that goes back changes nothing.
        assert!(ids.next(0, 0, false) > made[199_999]);
    }

    #[test]
    fn an_id_tells_when_it_was_made_and_the_delay() {
        let (plain, versioned) = (
            Ids::default().next(1_795_522_858_123, 10, false),
            Ids::default().next(1_795_522_858_123, 0, true),
        );
        assert_eq!((plain.len(), versioned.len(), &versioned[..1]), (26, 27, "1"));
        assert_eq!(
            (published_ms(&plain), published_ms(&versioned)),
            (Some(1_795_522_858_123), Some(1_795_522_858_123))
        );
        // Ten seconds, the least byte first.
        assert!(plain.ends_with("500000") && versioned.ends_with("000000"), "{plain} {versioned}");
        // An id that lmstfy made.
        assert_eq!(published_ms("01M86QW907T952QGD30W000000"), Some(1_795_522_700_295));
        for other in
            ["", "foo", "81M86QW907T952QGD30W000000", "01M86QW907T952QGD30W00000U", "15702398321"]
        {
            assert_eq!(published_ms(other), None, "{other}");
        }
    }
}
