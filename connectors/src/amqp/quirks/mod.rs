//! Workarounds for behaviour of lapin and its parser. Each file names the behaviour and when the file may go.

pub(super) mod frame_sanitizer;
pub(super) mod ready;
pub(super) mod return_matcher;
pub(super) mod sanitize;
