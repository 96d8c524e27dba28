//! Parses and formats durations, sizes and times for people.

#[cfg(test)]
mod tests;

pub use dwell_connectors::{
    MIN_EPOCH_MS, parse_duration_ms, parse_durations_ms, quote, show_duration_ms,
};

/// The units of a size, largest first within each family.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// An address from outside for a message: [`quote`] without the secrets of a URL. Also for names
/// that a URL may be given for by mistake.
#[must_use]
pub fn quote_address(text: &str) -> String {
    quote(&dwell_connectors::shown_address(text))
}

const TIME_FORMS: &str =
    "write 2026-01-31T12:00:00Z, 2026-01-31T12:00:00+02:00 or epoch milliseconds";

/// A size in bytes: an integer, or with `B KiB MiB GiB` (1024) or `kB MB GB` (1000).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let unit = unit.trim_start();
    let factor = if unit.is_empty() {
        Some(1)
    } else {
        SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes)
    };
    let (Some(factor), false) = (factor, number.is_empty()) else {
        return Err(format!(
            "{} is not a size: write 1048576, 1MiB or 64KiB (B, KiB, MiB, GiB, kB, MB, GB)",
            quote(text)
        ));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| format!("{} is larger than 2^64 bytes", quote(text)))
}

/// A time in epoch ms: RFC 3339 with an offset (rounded up to a millisecond; negative before 1970),
/// or epoch milliseconds. An integer below 10^11 is an error: it is probably in seconds.
pub fn parse_time_ms(text: &str) -> Result<i64, String> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix('-').unwrap_or(trimmed);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return epoch_ms(text, trimmed);
    }
    if !has_offset(trimmed) && has_offset(&format!("{trimmed}Z")) {
        return Err(format!(
            "{} has no offset: add Z for UTC, or an offset as +02:00",
            quote(text)
        ));
    }
    let wrong = || format!("{} is not a time: {TIME_FORMS}", quote(text));
    if !has_offset(trimmed) {
        return Err(wrong());
    }
    let time: jiff::Timestamp = trimmed.parse().map_err(|_| wrong())?;
    let nanos = time.as_nanosecond();
    let ms = nanos.div_euclid(1_000_000) + i128::from(nanos.rem_euclid(1_000_000) > 0);
    // jiff reads the leap second :60 as :59, which is early.
    let leap = if trimmed.get(17..19) == Some("60") { 1_000 } else { 0 };
    i64::try_from(ms + leap).map_err(|_| wrong())
}

/// A size for people, in the largest unit of 1024 that divides it: `1MiB`, `1000B`. [`parse_size`]
/// reads it back.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let (name, unit) = SIZE_UNITS[..3]
        .iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
        .unwrap_or(&("B", 1));
    format!("{}{name}", bytes / unit)
}

/// A time, epoch ms, as RFC 3339 in UTC: `2026-01-31T12:00:00.000Z`. Times past the year 9999 stay
/// milliseconds.
#[must_use]
pub fn show_time_ms(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms)
        .map_or_else(|_| format!("{ms}"), |time| format!("{time:.3}"))
}

/// An integer time. `shown`: the text as received.
fn epoch_ms(shown: &str, digits: &str) -> Result<i64, String> {
    if digits.starts_with('-') {
        return Err(format!("{} is negative: {TIME_FORMS}", quote(shown)));
    }
    let ms: i64 =
        digits.parse().map_err(|_| format!("{} is too large: {TIME_FORMS}", quote(shown)))?;
    if ms < MIN_EPOCH_MS {
        return Err(format!(
            "{} looks like seconds: an integer is epoch milliseconds, of 12 digits or more",
            quote(shown)
        ));
    }
    Ok(ms)
}

/// Whether the text has the form of an RFC 3339 time with an offset. jiff accepts more: dates
/// alone, zone names in brackets.
fn has_offset(text: &str) -> bool {
    const TIME_PATTERN: &[u8; 19] = b"dddd-dd-ddTdd:dd:dd";
    let bytes = text.as_bytes();
    let Some((head, mut rest)) = bytes.split_at_checked(TIME_PATTERN.len()) else {
        return false;
    };
    let fits = TIME_PATTERN.iter().zip(head).all(|(shape, byte)| match shape {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        _ => shape == byte,
    });
    if let Some(after) = rest.strip_prefix(b".") {
        let digits = after.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return false;
        }
        rest = &after[digits..];
    }
    let offset = match rest {
        b"Z" | b"z" => true,
        // To 23:59, as in RFC 3339: jiff reads more.
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit())
                && [*h1, *h2] < [b'2', b'4']
                && *m1 < b'6'
        }
        _ => false,
    };
    fits && offset
}
