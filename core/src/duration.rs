//! Parses and formats durations for people.

/// The units of a sum, largest first, with their length in ms.
const UNITS: [(&str, u64); 6] = [
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Fractions are counted in units of 10⁻⁹ ms, so that only the sum is rounded.
const PARTS_PER_MS: u128 = 1_000_000_000;

/// The longest duration: times are signed 64-bit ms.
const MAX_DURATION_MS: u64 = i64::MAX as u64;

const DURATION_FORMS: &str = "write 5000 (ms), 90s, 1h30m or PT15M";

/// A duration in ms: an integer is ms; or a sum of `ms s m h d w` (`1h30m`, each unit once); or ISO
/// 8601 of fixed length (`PT15M`, `P1D`; a day is 24 h). Units take decimal fractions (`1.5h`), ISO
/// 8601 only in its last part. Rounds up to a millisecond, so that no delay ends early.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let iso = trimmed.strip_prefix(['P', 'p']);
    if trimmed.starts_with('-') || iso.is_some_and(|rest| rest.contains('-')) {
        return Err(format!("{} is negative: {DURATION_FORMS}, or 0 for now", quote(text)));
    }
    let parts = if !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_digit()) {
        scaled(trimmed, 1)
    } else if let Some(rest) = iso {
        iso_parts(rest)
    } else {
        sum_parts(trimmed)
    };
    let total = parts.map_err(|flaw| match flaw {
        Flaw::Form => format!("{} is not a duration: {DURATION_FORMS}", quote(text)),
        Flaw::Twice => format!("{} names a unit twice: {DURATION_FORMS}", quote(text)),
        Flaw::Calendar => {
            format!(
                "{} has years or months, which differ in length: write days or hours (P30D, 720h)",
                quote(text)
            )
        }
        Flaw::TooLong => too_long(text),
    })?;
    match u64::try_from(total.div_ceil(PARTS_PER_MS)) {
        Ok(ms) if ms <= MAX_DURATION_MS => Ok(ms),
        _ => Err(too_long(text)),
    }
}

/// Durations in ms, separated by commas (`2m,10m,1h`); `none` is the empty list.
pub fn parse_durations_ms(text: &str) -> Result<Vec<u64>, String> {
    if text.trim() == "none" {
        return Ok(Vec::new());
    }
    if text.trim().is_empty() {
        return Err("an empty list of durations: write 2m,10m,1h, or none".to_owned());
    }
    text.split(',').map(parse_duration_ms).collect()
}

/// A duration for people: 90 000 ms is `1m30s`, and days are the largest unit.
/// [`parse_duration_ms`] reads it back.
#[must_use]
pub fn show_duration_ms(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut rest = ms;
    let mut text = String::new();
    for (name, length) in &UNITS[1..] {
        if rest >= *length {
            text.push_str(&format!("{}{name}", rest / length));
            rest %= length;
        }
    }
    text
}

/// A value from outside for a message: in backquotes, at most 48 characters, control characters
/// escaped.
#[must_use]
pub fn quote(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 48;
    let mut shown = String::new();
    for one in text.chars().take(MAX_SHOWN_CHARS) {
        match one {
            '"' | '\'' => shown.push(one),
            other => shown.extend(other.escape_debug()),
        }
    }
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// The defect of a text that is no duration.
enum Flaw {
    Form,
    Twice,
    Calendar,
    TooLong,
}

fn too_long(text: &str) -> String {
    format!("{} is longer than 2^63 milliseconds", quote(text))
}

/// `1h30m` in 10⁻⁹ ms.
fn sum_parts(text: &str) -> Result<u128, Flaw> {
    let mut seen = [false; UNITS.len()];
    let mut total = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) =
            rest.split_at(rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count());
        let (unit, after) =
            after.split_at(after.bytes().take_while(u8::is_ascii_alphabetic).count());
        let index = UNITS.iter().position(|(name, _)| *name == unit).ok_or(Flaw::Form)?;
        if std::mem::replace(&mut seen[index], true) {
            return Err(Flaw::Twice);
        }
        total += scaled(number, UNITS[index].1)?;
        rest = after;
    }
    if seen.contains(&true) { Ok(total) } else { Err(Flaw::Form) }
}

/// The part of an ISO 8601 duration behind the `P`, in 10⁻⁹ ms.
fn iso_parts(text: &str) -> Result<u128, Flaw> {
    let upper = text.to_ascii_uppercase();
    let (date, time) = match upper.split_once('T') {
        Some((_, "")) => return Err(Flaw::Form),
        Some((date, time)) => (date, time),
        None => (upper.as_str(), ""),
    };
    let mut total = 0;
    let mut fraction = false;
    let mut any = false;
    for (part, designators) in [(date, "YMWD"), (time, "HMS")] {
        let dated = designators.len() == 4;
        let mut left = designators;
        let mut rest = part;
        while !rest.is_empty() {
            let (number, after) = rest.split_at(
                rest.bytes().take_while(|b| matches!(b, b'0'..=b'9' | b'.' | b',')).count(),
            );
            let designator = after.chars().next().ok_or(Flaw::Form)?;
            // Each designator stands once, in their order, and none follows a fraction.
            let place = left.find(designator).ok_or(Flaw::Form)?;
            if fraction {
                return Err(Flaw::Form);
            }
            let unit_ms = match (designator, dated) {
                ('Y', _) | ('M', true) => return Err(Flaw::Calendar),
                ('W', _) => 604_800_000,
                ('D', _) => 86_400_000,
                ('H', _) => 3_600_000,
                ('M', false) => 60_000,
                _ => 1_000,
            };
            total += scaled(number, unit_ms)?;
            fraction = number.contains(['.', ',']);
            any = true;
            left = &left[place + 1..];
            rest = &after[1..];
        }
    }
    if any { Ok(total) } else { Err(Flaw::Form) }
}

/// A decimal number of units, in 10⁻⁹ ms. At most 2⁶⁴ weeks, so that a sum of every unit fits.
fn scaled(number: &str, unit_ms: u64) -> Result<u128, Flaw> {
    let (whole, fraction) = number.split_once(['.', ',']).unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return Err(Flaw::Form);
    }
    let whole: u64 = whole.parse().map_err(|_| Flaw::TooLong)?;
    let fraction: u64 = format!("{fraction:0<9}").parse().map_err(|_| Flaw::Form)?;
    Ok((u128::from(whole) * PARTS_PER_MS + u128::from(fraction)) * u128::from(unit_ms))
}
