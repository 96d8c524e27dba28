//! The critical errors of librdkafka in the log: those of one kind once a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, warn};

/// The interval of log lines about critical errors of one kind.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The most kinds of critical errors that are remembered. The text of one has up to 2 kB.
const MAX_LOGGED_KINDS: usize = 128;

/// The critical errors that were logged, of all clients: a client that is opened again and again
/// repeats its own.
static LOGGED: Mutex<Logged> = Mutex::new(Logged(BTreeMap::new()));

/// When a critical error of each kind was last logged, and how many were left out since.
struct Logged(BTreeMap<String, (Instant, u64)>);

impl Logged {
    /// The number of errors left out before this one; `None` if this one is left out too.
    fn take(&mut self, kind: String, now: Instant) -> Option<u64> {
        if let Some((last, left_out)) = self.0.get_mut(&kind)
            && now.duration_since(*last) < LOG_INTERVAL
        {
            *left_out += 1;
            return None;
        }
        let before = self.0.insert(kind, (now, 0));
        if self.0.len() > MAX_LOGGED_KINDS {
            let oldest = self.0.iter().min_by_key(|(_, (last, _))| *last);
            if let Some(oldest) = oldest.map(|(kind, _)| kind.clone()) {
                self.0.remove(&oldest);
            }
        }
        Some(before.map_or(0, |(_, left_out)| left_out))
    }
}

/// Logs a critical error of this client.
pub(super) fn report(client: &str, facility: &str, message: &str) {
    let logged = LOGGED.lock().take(kind_of(client, facility, message), Instant::now());
    match logged {
        Some(left_out) => {
            warn!(client, facility, message, left_out, "librdkafka reports a critical error");
        }
        None => debug!(client, facility, message, "librdkafka repeats a critical error"),
    }
}

/// The kind of a critical error: its client, its facility, and its text without the numbers, which
/// may count.
fn kind_of(client: &str, facility: &str, message: &str) -> String {
    let mut kind = format!("{client} {facility} ");
    for sign in message.chars() {
        let sign = if sign.is_ascii_digit() { '#' } else { sign };
        if sign != '#' || !kind.ends_with('#') {
            kind.push(sign);
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_errors_of_one_kind_are_logged_once_a_minute() {
        let (mut logged, begun) = (Logged(BTreeMap::new()), Instant::now());
        for (second, kind, expected) in [
            (0, "FATAL", Some(0)),
            (1, "FATAL", None),
            (2, "OTHER", Some(0)),
            (59, "FATAL", None),
            (60, "FATAL", Some(2)),
            (61, "FATAL", None),
        ] {
            let now = begun + Duration::from_secs(second);
            assert_eq!(logged.take(kind.to_owned(), now), expected, "{kind} after {second} s");
        }
    }

    #[test]
    fn critical_errors_are_of_one_kind_by_client_facility_and_text_without_numbers() {
        let kind = kind_of("writer at a:1", "FATAL", "PID{Id:17,Epoch:9}: out of order");
        assert_eq!(kind, kind_of("writer at a:1", "FATAL", "PID{Id:8,Epoch:10}: out of order"));
        for (client, facility, message) in [
            ("writer at a:2", "FATAL", "PID{Id:17,Epoch:9}: out of order"),
            ("writer at a:1", "TXNERR", "PID{Id:17,Epoch:9}: out of order"),
            ("writer at a:1", "FATAL", "PID{Id:17,Epoch:9}: fenced"),
        ] {
            assert_ne!(kind, kind_of(client, facility, message));
        }
    }

    #[test]
    fn a_bounded_number_of_kinds_is_remembered_the_latest() {
        let (mut logged, mut now) = (Logged(BTreeMap::new()), Instant::now());
        for number in 0..=MAX_LOGGED_KINDS {
            now += Duration::from_millis(1);
            assert_eq!(logged.take(format!("kind {number}"), now), Some(0));
        }
        assert_eq!(logged.0.len(), MAX_LOGGED_KINDS);
        assert_eq!(logged.take(format!("kind {MAX_LOGGED_KINDS}"), now), None);
        assert_eq!(logged.take("kind 0".to_owned(), now), Some(0), "the oldest is forgotten");
    }
}
