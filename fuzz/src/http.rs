//! The input over HTTP: the body of `POST /v1/jobs`, and the query of a list with its cursor.

use crate::promises;
use crate::rules::{NOW, rules};

/// The first byte tells which; the rest is it.
pub(crate) fn target(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    if which & 1 == 0 {
        let rules = rules("", false, false);
        if let Some(schedule) = dwell::fuzz::new_job(rest, &rules, NOW) {
            promises::kept(&schedule, &rules, "");
        }
    } else if let Ok(text) = std::str::from_utf8(rest)
        && let Some(query) = dwell::fuzz::query(text)
    {
        assert!((1..=1000).contains(&query.limit));
    }
}
