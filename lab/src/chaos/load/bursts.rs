//! Bursts: several requests for one id with `delay-on-conflict: debounce`, each with a body of its
//! own.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::draw::{NOTE_HEADER, message};
use super::request::Request;
use crate::chaos::history::{Debounce, Job, digest};

/// From one burst to the next, ms.
const INTERVAL_MS: i64 = 1500;
/// The requests of a burst, and the time between two of them, ms.
const REQUESTS: std::ops::Range<u64> = 2..9;
const GAP_MS: std::ops::Range<i64> = 200..500;
/// `delay-for`, and by how much `delay-max-wait` is longer, ms: bursts end before it and after it.
const DELAY_MS: std::ops::Range<i64> = 300..1200;
const LONGER_MS: std::ops::Range<i64> = 0..1500;

/// Draws bursts.
pub(super) struct Bursts {
    rng: StdRng,
    targets: Vec<String>,
    /// The prefix of this run's ids.
    run: String,
    next: u32,
    /// The requests to come, by time (epoch ms), id and number.
    waiting: BTreeMap<(i64, String, u64), Request>,
}

impl Bursts {
    pub(super) fn new(seed: u64, targets: Vec<String>) -> Bursts {
        let run = format!("burst-{seed:x}");
        Bursts {
            rng: StdRng::seed_from_u64(!seed),
            targets,
            run,
            next: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// The requests until now, of a load that began at this time.
    pub(super) fn until(
        &mut self,
        now_ms: i64,
        began_ms: i64,
        instances: usize,
    ) -> impl Iterator<Item = Request> + use<> {
        while began_ms + INTERVAL_MS * i64::from(self.next) < now_ms {
            self.draw(now_ms, instances);
        }
        let later = self.waiting.split_off(&(now_ms, String::new(), 0));
        std::mem::replace(&mut self.waiting, later).into_values()
    }

    fn draw(&mut self, now_ms: i64, instances: usize) {
        self.next += 1;
        let id = format!("{}-{}", self.run, self.next);
        let delay_ms = self.rng.random_range(DELAY_MS);
        let max_wait_ms = delay_ms + self.rng.random_range(LONGER_MS);
        let target = self.targets[self.rng.random_range(0..self.targets.len())].clone();
        // The requests of one instance have an order that is known.
        let is_by_http = instances > 0 && self.rng.random();
        let door = is_by_http.then(|| self.rng.random_range(0..instances));
        let mut at_ms = now_ms;
        for number in 0..self.rng.random_range(REQUESTS) {
            let (body, note) = (format!("{id} {number}"), number.to_string());
            let job = Job {
                due_ms: at_ms + delay_ms,
                target: target.clone(),
                digest: digest(body.as_bytes(), [(NOTE_HEADER, &*note)]),
                debounce: Some(Debounce { delay_ms, max_wait_ms }),
                ..Job::default()
            };
            let message = message(&id, &job, body, note);
            let request = Request::of_burst((&*id, number), job, message, door);
            self.waiting.insert((at_ms, id.clone(), number), request);
            at_ms += self.rng.random_range(GAP_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::load::request::Way;

    #[test]
    fn one_seed_is_one_series_of_bursts_by_both_doors() {
        let drawn = |seed| {
            let mut bursts = Bursts::new(seed, vec!["a".to_owned()]);
            (0..600).flat_map(|at| bursts.until(at * 100, 0, 2)).collect::<Vec<_>>()
        };
        let ops = |requests: &[Request]| -> Vec<_> {
            requests.iter().map(|request| request.op.clone()).collect()
        };
        let (one, same, other) = (drawn(7), drawn(7), drawn(8));
        assert_eq!(ops(&one), ops(&same));
        assert_ne!(ops(&one), ops(&other));
        for by_http in [false, true] {
            assert!(one.iter().any(|of| matches!(of.way, Way::Http { .. }) == by_http));
        }
        for request in &one {
            if let Way::Message { message, .. } = &request.way {
                let text = |name| message.headers.text(name);
                assert_eq!(text("delay-on-conflict"), Some("debounce"));
                assert!(text("delay-for").is_some() && text("delay-until").is_none());
            }
        }
    }
}
