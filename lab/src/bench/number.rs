//! Numbers for people: significant digits, thousands separators, unit.

use super::metric::Unit;

/// A value with its unit.
pub(super) fn show(value: f64, unit: Unit) -> String {
    let unit_word = match unit {
        Unit::PerSecond => "/s",
        Unit::Seconds => " s",
        Unit::Ms => " ms",
        Unit::Us => " µs",
        Unit::Bytes if value >= f64::from(10 << 20) => " MiB",
        Unit::Bytes => " B",
        Unit::Ratio => " ×",
        Unit::Percent => " %",
        Unit::Count => "",
    };
    format!("{}{unit_word}", number(value, unit))
}

/// About three significant digits, with thousands separators.
pub(super) fn number(value: f64, unit: Unit) -> String {
    let (value, unit) = match unit {
        Unit::Bytes if value >= f64::from(10 << 20) => (value / f64::from(1 << 20), Unit::Ms),
        unit => (value, unit),
    };
    let digits = match unit {
        Unit::PerSecond | Unit::Bytes | Unit::Count => 0,
        Unit::Ratio => 2,
        _ if value.abs() >= 100.0 => 0,
        _ if value.abs() >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        // Separators from five digits on, as is usual.
        if place > 0 && whole.len() > 4 && (whole.len() - place) % 3 == 0 && !grouped.ends_with('-')
        {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// A count with thousands separators.
pub(super) fn number_of(count: u64) -> String {
    number(count as f64, Unit::Count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        let shown = |value, unit| show(value, unit);
        assert_eq!(shown(1234.0, Unit::PerSecond), "1234/s");
        assert_eq!(shown(1_234_567.8, Unit::PerSecond), "1 234 568/s");
        assert_eq!(shown(1.234, Unit::Ms), "1.23 ms");
        assert_eq!(shown(123.4, Unit::Us), "123 µs");
        assert_eq!(shown(f64::from(30 << 20), Unit::Bytes), "30.0 MiB");
        assert_eq!(shown(-12_345.0, Unit::PerSecond), "-12 345/s");
    }
}
