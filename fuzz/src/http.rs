//! The input over HTTP: the bodies of `POST /v1/jobs` and of `PUT /v1/schedules/{id}`, and the query
//! of a list with its cursor.

use crate::promises;
use crate::rules::{NOW, rules};

/// The first byte tells which; the rest is it.
pub(crate) fn target(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let rules = rules("", false, false);
    match which & 3 {
        0 => {
            if let Some(new_job) = dwell::fuzz::new_job(rest, &rules, NOW) {
                promises::kept(&new_job, &rules, "");
            }
        }
        2 => {
            if let Some(new) = dwell::fuzz::new_schedule(rest, &rules, NOW) {
                promises::kept_by_schedule(&new, &rules, "");
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(rest)
                && let Some(query) = dwell::fuzz::query(text)
            {
                assert!((1..=1000).contains(&query.limit));
            }
        }
    }
}
