//! Tables and times for terminals: at most as wide, and without control sequences.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::units::show_duration_ms;

/// Spaces between two columns.
const COLUMN_GAP_SPACES: usize = 2;

/// A column, and how it adapts to a narrow terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    head: &'static str,
    /// The least width that it may be cut to; `None`: it is never cut.
    least: Option<usize>,
    /// The rank for leaving it out, the highest first. 0: it is never left out.
    spare: u8,
}

impl Column {
    /// Never cut.
    pub(super) const fn whole(head: &'static str) -> Self {
        Column { head, least: None, spare: 0 }
    }

    /// Cut, to no less than this width.
    pub(super) const fn cut(head: &'static str, least: usize) -> Self {
        Column { head, least: Some(least), spare: 0 }
    }

    /// Left out if cutting is not enough; the highest rank first.
    pub(super) const fn spare(self, rank: u8) -> Self {
        Column { spare: rank, ..self }
    }
}

/// The width of tables: `COLUMNS`, else that of the terminal on stdout; unlimited in a pipe.
pub(super) fn width() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    asked
        .or_else(|| terminal().map(|(columns, _)| columns))
        .filter(|columns| *columns > 0)
        .unwrap_or(usize::MAX)
}

/// Columns and rows of the terminal on stdout; `None` if it is not a terminal.
pub(super) fn terminal() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some((size.ws_col.into(), size.ws_row.into()))
}

/// A table of these rows, one a line, no wider than `width`.
pub(super) fn table<const N: usize>(
    columns: [Column; N],
    rows: impl IntoIterator<Item = [String; N]>,
    width: usize,
) -> String {
    let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(|cell| clean(&cell))).collect();
    let natural: [usize; N] = std::array::from_fn(|at| {
        rows.iter()
            .map(|row| row[at].width())
            .chain([columns[at].head.width()])
            .max()
            .unwrap_or_default()
    });
    let widths = fit(&columns, natural, width);
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for (cell, width) in
            cells.iter().zip(widths).filter_map(|(cell, width)| Some((cell, width?)))
        {
            let cell = cut(cell, width);
            line.push_str(&cell);
            line.push_str(&" ".repeat(width + COLUMN_GAP_SPACES - cell.width()));
        }
        cut(line.trim_end(), width)
    };
    let head = line(columns.map(|column| column.head));
    let body = rows.iter().map(|row| line(std::array::from_fn(|at| row[at].as_str())));
    std::iter::once(head).chain(body).collect::<Vec<_>>().join("\n")
}

/// The width of each column; `None` if it is left out.
fn fit<const N: usize>(
    columns: &[Column; N],
    natural: [usize; N],
    width: usize,
) -> [Option<usize>; N] {
    let mut widths = natural.map(Some);
    let least = |at: usize| {
        columns[at]
            .least
            .map_or(natural[at], |least| natural[at].min(least.max(columns[at].head.width())))
    };
    let total = |widths: &[Option<usize>; N]| {
        let shown = widths.iter().flatten();
        shown.clone().sum::<usize>() + COLUMN_GAP_SPACES * shown.count().saturating_sub(1)
    };
    // Leaves out columns while even the least widths are too wide.
    let mut spare: Vec<usize> = (0..N).filter(|at| columns[*at].spare > 0).collect();
    spare.sort_by_key(|at| columns[*at].spare);
    while let Some(at) = spare.pop() {
        if total(&std::array::from_fn(|at| widths[at].map(|_| least(at)))) <= width {
            break;
        }
        widths[at] = None;
    }
    while total(&widths) > width {
        // Cuts the widest column that can be cut by one.
        let widest = (0..N)
            .filter(|at| widths[*at].is_some_and(|width| width > least(*at)))
            .max_by_key(|at| widths[*at]);
        let Some(at) = widest else { break };
        widths[at] = widths[at].map(|width| width - 1);
    }
    widths
}

/// The text in at most `width` terminal columns; `…` replaces a cut end.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used >= width {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// Escapes control characters, and characters that change the direction of text.
pub(super) fn clean(text: &str) -> String {
    if !text.chars().any(steers) {
        return text.to_owned();
    }
    text.chars()
        .map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// Whether a character controls a terminal.
pub(super) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A time (epoch ms) in the local zone, to the second: `--from` and `--to` read it.
pub(super) fn local(ms: i64) -> String {
    let Ok(time) = Timestamp::from_millisecond(ms) else { return ms.to_string() };
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S%:z").to_string()
}

/// The distance from now in its two largest units: `in 1h30m`, `5s ago`, `now`.
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
    const UNITS_MS: [u64; 4] = [86_400_000, 3_600_000, 60_000, 1_000];
    // Cuts off everything after the second unit, and milliseconds of durations over a second.
    let least = UNITS_MS
        .iter()
        .position(|unit| ms >= *unit)
        .map_or(1, |largest| UNITS_MS[(largest + 1).min(UNITS_MS.len() - 1)]);
    show_duration_ms(ms - ms % least)
}

/// The most bytes of a body that are printed as text.
const MAX_PREVIEW_BYTES: usize = 2048;

/// The beginning of a body: as text if it is text, else as hexadecimal.
pub(super) fn preview(body: &[u8]) -> String {
    let start = &body[..body.len().min(MAX_PREVIEW_BYTES)];
    let cut = body.len() > start.len();
    let shown = match std::str::from_utf8(start) {
        Ok(text) => Some(text),
        // The cut is inside a character.
        Err(error) if cut && error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let more = if cut {
        format!("\n… {} more bytes, all of them with -o json", body.len() - start.len())
    } else {
        String::new()
    };
    match shown {
        Some(text) => format!("\n{}{more}", text.lines().map(clean).collect::<Vec<_>>().join("\n")),
        None => {
            let lines = start.chunks(32).map(|chunk| {
                chunk.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
            });
            format!("\n{}{more}", lines.collect::<Vec<_>>().join("\n"))
        }
    }
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
        let columns = [Column::whole("id"), Column::whole("n")];
        assert_eq!(
            table(columns, [["a\tb".to_owned(), "1".to_owned()]], usize::MAX),
            "id    n\na\\tb  1"
        );
    }

    const JOB_COLUMNS: [Column; 4] = [
        Column::whole("DUE"),
        Column::cut("ID", 8),
        Column::cut("ERROR", 6).spare(1),
        Column::whole("SIZE").spare(2),
    ];

    fn jobs(width: usize) -> String {
        let row = |id: &str, error: &str| {
            ["10:00:00".to_owned(), id.to_owned(), error.to_owned(), "6 B".to_owned()]
        };
        table(
            JOB_COLUMNS,
            [row("order-2026-0001", "no answer within 15s"), row("注文-二千二十年", "")],
            width,
        )
    }

    #[test]
    fn a_table_fits_its_terminal_the_widest_cut_first() {
        let whole = jobs(usize::MAX);
        assert_eq!(
            whole.lines().nth(1),
            Some("10:00:00  order-2026-0001  no answer within 15s  6 B")
        );
        assert_eq!(jobs(53), whole);
        assert_eq!(jobs(47).lines().nth(1), Some("10:00:00  order-2026-0001  no answer wit…  6 B"));
        assert_eq!(jobs(41).lines().nth(1), Some("10:00:00  order-2026-…  no answer …  6 B"));
        assert_eq!(
            jobs(41).lines().nth(2),
            Some("10:00:00  注文-二千二…               6 B"),
            "two columns a character"
        );
        // Too narrow for all columns: some are left out.
        assert_eq!(jobs(28).lines().next(), Some("DUE       ID        ERROR"));
        assert_eq!(jobs(20), "DUE       ID\n10:00:00  order-202…\n10:00:00  注文-二千…");
        for width in 1..60 {
            assert!(
                jobs(width).lines().all(|line| line.width() <= width.max(1)),
                "{width}: {}",
                jobs(width)
            );
        }
    }

    #[test]
    fn a_preview_is_text_where_it_can_be() {
        assert_eq!(preview("one\ntwo\u{7}".as_bytes()), "\none\ntwo\\u{7}");
        assert_eq!(preview(&[0, 255]), "\n00 ff");
        let long = "ü".repeat(MAX_PREVIEW_BYTES);
        let shown = preview(long[..].as_bytes());
        assert!(
            shown.ends_with("… 2048 more bytes, all of them with -o json") && shown.contains('ü'),
            "{shown}"
        );
        let odd = format!("a{long}");
        assert!(preview(odd.as_bytes()).starts_with("\naü"));
    }
}
