//! Tables and times for people: as wide as the terminal, free of what would steer it.

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::units::show_duration_ms;

/// A table of these rows, as text. In a pipe its rows are as wide as they are.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(head);
    for row in rows {
        table.add_row(row.map(|cell| clean(&cell)));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Text from messages without what could steer the terminal: control characters, and those that turn the direction of what follows.
pub(super) fn clean(text: &str) -> String {
    if !text.chars().any(steers) {
        return text.to_owned();
    }
    text.chars().map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Whether a character would steer a terminal.
pub(super) fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A time, epoch ms, in the zone of this machine, to the second: `--from` and `--to` read it back.
pub(super) fn local(ms: i64) -> String {
    let Ok(time) = Timestamp::from_millisecond(ms) else { return ms.to_string() };
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S%:z").to_string()
}

/// How far it is from now, in its two largest units: `in 1h30m`, `5s ago`, `now`.
pub(super) fn relative(ms: i64, now_ms: i64) -> String {
    let distance = ms.abs_diff(now_ms);
    let short = short(distance);
    match ms.cmp(&now_ms) {
        _ if distance == 0 => "now".to_owned(),
        std::cmp::Ordering::Greater => format!("in {short}"),
        _ => format!("{short} ago"),
    }
}

/// A duration in its two largest units.
fn short(ms: u64) -> String {
    const UNITS: [u64; 4] = [86_400_000, 3_600_000, 60_000, 1_000];
    // What is behind the second unit is cut off, and so are milliseconds of anything longer than a second.
    let least = UNITS.iter().position(|unit| ms >= *unit).map_or(1, |largest| UNITS[(largest + 1).min(UNITS.len() - 1)]);
    show_duration_ms(ms - ms % least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_short() {
        for (ms, text) in [
            (0, "now"),
            (250, "in 250ms"),
            (5_250, "in 5s"),
            (-90_000, "1m30s ago"),
            (3_661_001, "in 1h1m"),
            (90_061_000, "in 1d1h"),
            (-86_400_000, "1d ago"),
        ] {
            assert_eq!(relative(1_000_000_000 + ms, 1_000_000_000), text);
        }
        assert_eq!(relative(i64::MAX, 0), relative(i64::MAX, 1));
    }

    #[test]
    fn a_local_time_can_be_read_back() {
        let ms = 1_800_000_000_000;
        assert_eq!(crate::units::parse_time_ms(&local(ms)), Ok(ms));
    }

    #[test]
    fn what_would_steer_a_terminal_is_shown_instead() {
        assert_eq!(clean("a\u{1b}[2Jb\nü"), "a\\u{1b}[2Jb\\nü");
        assert_eq!(clean("gpj\u{202e}exe.\u{9b}2J"), "gpj\\u{202e}exe.\\u{9b}2J");
        assert_eq!(table(["id", "n"], [["a\tb".to_owned(), "1".to_owned()]]), " id    n\n a\\tb  1");
    }
}
