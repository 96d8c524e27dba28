//! Workarounds for behaviour of lapin, its parser and `FuturesUnordered`. Each file says what the
//! library does and where, what Dwell does about it, and when the workaround may go.

pub(super) mod frame_sanitizer;
pub(super) mod ready;
pub(super) mod return_matcher;
pub(super) mod sanitize;
