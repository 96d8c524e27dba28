//! Names of queues by patterns in which `*` is any characters, as the scripts compare them.

use crate::job::Job;
use crate::request::OwnQueues;

/// Whether the name fits the pattern, or is the name in it.
pub(in crate::store) fn fits(name: &str, pattern: &str) -> bool {
    let (name, pattern) = (name.as_bytes(), pattern.as_bytes());
    let (mut at, mut in_pattern) = (0, 0);
    // The last `*`, and what of the name follows the characters that it stands for.
    let mut star: Option<(usize, usize)> = None;
    while at < name.len() {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                star = Some((in_pattern, at));
                in_pattern += 1;
            }
            Some(byte) if *byte == name[at] => {
                at += 1;
                in_pattern += 1;
            }
            _ => {
                let Some((of_pattern, of_name)) = star else { return false };
                star = Some((of_pattern, of_name + 1));
                (at, in_pattern) = (of_name + 1, of_pattern + 1);
            }
        }
    }
    pattern[in_pattern..].iter().all(|byte| *byte == b'*')
}

/// Whether the caller has the queue of this job; without own queues, every caller has every job.
pub(super) fn is_own(job: &Job, own: Option<&OwnQueues>) -> bool {
    own.is_none_or(|own| {
        job.queue().is_some_and(|queue| own.text().split(' ').any(|pattern| fits(queue, pattern)))
    })
}

#[cfg(test)]
mod tests {
    use dwell_core::Destination;

    use super::*;

    #[test]
    fn a_star_is_any_characters() {
        for (name, pattern) in [
            ("orders", "orders"),
            ("orders", "*"),
            ("orders.eu", "orders.*"),
            ("orders.eu", "*.eu"),
            ("orders.eu", "o*s*u"),
            ("aab", "a*ab"),
            ("abab", "*ab"),
            ("orders", "orders*"),
            ("", "*"),
        ] {
            assert!(fits(name, pattern), "{name} {pattern}");
        }
        for (name, pattern) in [
            ("orders", "order"),
            ("order", "orders"),
            ("orders", "*.eu"),
            ("ab", "ab*ab"),
            ("a", ""),
        ] {
            assert!(!fits(name, pattern), "{name} {pattern}");
        }
    }

    #[test]
    fn a_broker_is_no_queue_of_a_caller() {
        let own = OwnQueues::new(["emails", "orders.*"]);
        let of_queue = |queue: &str| is_own(&Job::for_queue(queue, ""), Some(&own));
        assert_eq!(["emails", "orders.eu", "other"].map(of_queue), [true, true, false]);
        let of_broker = Job::new("main", Destination::new("orders.eu"), "");
        assert!(!is_own(&of_broker, Some(&OwnQueues::any())));
        assert!(is_own(&of_broker, None));
    }
}
