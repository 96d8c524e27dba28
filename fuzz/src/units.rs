//! Durations, sizes and times as people write them.

use dwell::units::{
    parse_duration_ms, parse_durations_ms, parse_size, parse_time_ms, show_duration_ms,
    show_time_ms,
};

/// The text; a value that is understood is understood again as it is shown.
pub(crate) fn target(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(ms) = parse_duration_ms(text) {
        assert_eq!(parse_duration_ms(&show_duration_ms(ms)), Ok(ms), "{text:?}");
    }
    if let Ok(ms) = parse_time_ms(text) {
        let shown = show_time_ms(ms);
        // Years beyond 9999 are shown for people only.
        if let Ok(again) = parse_time_ms(&shown) {
            assert_eq!(again, ms, "{text:?} {shown}");
        }
    }
    let _ = parse_size(text);
    let _ = parse_durations_ms(text);
}
