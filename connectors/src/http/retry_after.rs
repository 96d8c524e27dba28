use std::time::{Duration, SystemTime};
pub(super) fn retry_after(headers: &http::HeaderMap, _now: SystemTime) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}
