//! A single time without an offset, in a zone.

use dwell_core::quote;
use jiff::civil::DateTime;

use crate::civil::{Month, SECONDS_PER_DAY};
use crate::error::ParseError;
use crate::segment::Segment;
use crate::zone::Zone;

const FORMS: &str = "write 2027-01-31T12:00:00";

/// The epoch ms of a time like `2027-01-31T12:00:00`, in RFC 3339 but without an offset, on the
/// clock of this zone: where the clock skips it, the end of the gap; where it comes twice, the
/// first. Parts of a millisecond are rounded up, so that nothing is early.
pub fn local_time_ms(text: &str, zone: &Zone) -> Result<i64, ParseError> {
    let wrong = || ParseError::new(format!("{} is not a local time: {FORMS}", quote(text)));
    let trimmed = text.trim();
    if !has_form(trimmed) {
        return Err(wrong());
    }
    let time: DateTime = trimmed.parse().map_err(|_| wrong())?;
    // At most the twelfth month, by the parser.
    let month = Month { year: time.year().into(), month: time.month() as u8 };
    let day = month.first_day() + i64::from(time.day()) - 1;
    let second =
        i64::from(time.hour()) * 3_600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    // jiff reads the leap second :60 as :59, which is early.
    let is_leap = trimmed.get(17..19) == Some("60");
    let local = day * SECONDS_PER_DAY + second + i64::from(is_leap);
    let at = Segment::time_of_local(zone, local);
    // The end of a gap has no parts of a second.
    let is_skipped = !Segment::shows(zone, at, local);
    let nanos = if is_skipped { 0 } else { i64::from(time.subsec_nanosecond()) };
    Ok(at * 1_000 + nanos.div_euclid(1_000_000) + i64::from(nanos.rem_euclid(1_000_000) > 0))
}

/// Whether the text has the form of RFC 3339 up to the offset. jiff reads more.
fn has_form(text: &str) -> bool {
    const PATTERN: &[u8; 19] = b"dddd-dd-ddTdd:dd:dd";
    let Some((head, rest)) = text.as_bytes().split_at_checked(PATTERN.len()) else { return false };
    let fits = PATTERN.iter().zip(head).all(|(shape, byte)| match shape {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        _ => shape == byte,
    });
    let fraction = rest.strip_prefix(b".");
    fits && (rest.is_empty()
        || fraction
            .is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, zone: &str) -> String {
        let ms = local_time_ms(text, &Zone::parse(zone).unwrap()).unwrap();
        jiff::Timestamp::from_millisecond(ms).unwrap().to_string()
    }

    #[test]
    fn a_local_time_is_read_in_its_zone() {
        for (text, zone, time) in [
            ("2027-01-31T12:00:00", "UTC", "2027-01-31T12:00:00Z"),
            ("2027-01-31 12:00:00", "Europe/Berlin", "2027-01-31T11:00:00Z"),
            ("2027-07-31t12:00:00.5", "Europe/Berlin", "2027-07-31T10:00:00.5Z"),
            ("2027-07-31T12:00:00.0000001", "Europe/Berlin", "2027-07-31T10:00:00.001Z"),
            // In a gap at its end, in an overlap at the first pass.
            ("2027-03-28T02:30:00", "Europe/Berlin", "2027-03-28T01:00:00Z"),
            ("2027-03-28T02:30:00.75", "Europe/Berlin", "2027-03-28T01:00:00Z"),
            ("2027-03-28T03:00:00.75", "Europe/Berlin", "2027-03-28T01:00:00.75Z"),
            ("2027-10-31T02:30:00", "Europe/Berlin", "2027-10-31T00:30:00Z"),
            ("2011-12-30T12:00:00", "Pacific/Apia", "2011-12-30T10:00:00Z"),
            ("2016-12-31T23:59:60", "UTC", "2017-01-01T00:00:00Z"),
        ] {
            assert_eq!(read(text, zone), time, "{text} {zone}");
        }
    }

    #[test]
    fn what_is_no_local_time_is_refused() {
        for text in [
            "",
            "2027-01-31",
            "2027-01-31T12:00",
            "2027-02-30T12:00:00",
            "2027-01-31T24:00:00",
            "2027-01-31T12:00:00Z",
            "2027-01-31T12:00:00+01:00",
            "2027-01-31T12:00:00.",
            "2027-01-31T12:00:00[Europe/Berlin]",
            "1798762500000",
            "2027-01-31T12:00:00ü",
        ] {
            assert!(local_time_ms(text, &Zone::utc()).is_err(), "{text}");
        }
    }
}
