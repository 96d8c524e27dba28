//! Durations as Go spells them: `1h30m0s`, `1.5h`, `300ms`.

use dwell_core::quote;

/// The units, with their length in ns.
const UNITS: [(&str, u128); 8] = [
    ("h", 3_600_000_000_000),
    ("ms", 1_000_000),
    ("m", 60_000_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ns", 1),
    ("s", 1_000_000_000),
];

const FORMS: &str = "write 1h30m0s, with the units h, m, s, ms, us and ns";

/// A duration of Go's `time.ParseDuration` in ms, rounded up.
pub(crate) fn go_duration_ms(text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err(format!("{} is negative: {FORMS}", quote(text)));
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if unsigned == "0" {
        return Ok(0);
    }
    let nanos = nanos(unsigned)
        .ok_or_else(|| format!("{} is not a duration of Go: {FORMS}", quote(text)))?;
    // Go's own bound.
    if nanos > i64::MAX as u128 {
        return Err(format!("{} is longer than 292 years: {FORMS}", quote(text)));
    }
    u64::try_from(nanos.div_ceil(1_000_000)).map_err(|error| error.to_string())
}

/// The sum of `1h30m` in ns; a unit may come again.
fn nanos(text: &str) -> Option<u128> {
    let mut total: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, after) = rest.split_at(digits);
        let (unit, length) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !is_number(fraction) {
            return None;
        }
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        // Digits beyond those are less than a nanosecond of any unit.
        let fraction: String = fraction.chars().chain("0".repeat(15).chars()).take(15).collect();
        let fraction: u128 = fraction.parse().ok()?;
        let part = fraction * length / 1_000_000_000_000_000;
        total = total.checked_add(whole.checked_mul(*length)?)?.checked_add(part)?;
        rest = &after[unit.len()..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        for (text, ms) in [
            ("1h30m0s", 5_400_000),
            ("1.5h", 5_400_000),
            ("+2s", 2_000),
            ("1m1m", 120_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("300ms", 300),
            ("1500us", 2),
            ("1µs", 1),
            ("1ns", 1),
            ("0", 0),
            ("2562047h47m16.854775807s", 9_223_372_036_855),
        ] {
            assert_eq!(go_duration_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "", "1", "1d", "1w", "-1s", "1h 30m", "h", ".", ".s", "1.2.3s", "1H", "PT1H",
            "3000000h",
        ] {
            assert!(go_duration_ms(text).is_err(), "{text}");
        }
    }
}
