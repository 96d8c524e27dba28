//! What requests of one id that debounce must become. Each request puts the delivery off by its
//! wait, but never beyond the longest wait after the first request of its burst; a request after
//! the delivery begins another burst. Pure.

use serde::Serialize;

use super::Wrongs;

/// A request may be received later than it was sent, and the next one at once, ms: the number of
/// deliveries is judged within this.
const JITTER_MS: i64 = 250;
/// The longest time from sending to receiving, ms.
const RECEIPT_MS: i64 = 2000;

/// The waits of each request, ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) wait_ms: i64,
    pub(crate) max_wait_ms: i64,
}

/// When the requests came.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Requests<'a> {
    /// While Dwell ran: when each was sent, epoch µs.
    Live(&'a [i64]),
    /// So many, before Dwell started at this time, epoch ms.
    Backlog { count: usize, started_ms: i64 },
}

/// A delivery, as its consumer saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// The number of the request whose body came, from 0.
    pub request: usize,
    /// `delayed-due`, epoch ms.
    pub due_ms: i64,
    /// `delayed-attempt`
    pub attempt: u32,
    /// When it was received, epoch µs.
    pub at_us: i64,
}

impl Rule {
    /// How many deliveries the rule makes of requests that are received at these times, epoch µs.
    fn deliveries(self, received_us: &[i64]) -> usize {
        let (wait_us, max_us) = (self.wait_ms.max(0) * 1000, self.max_wait_ms * 1000);
        let (mut count, mut burst) = (0, None::<(i64, i64)>);
        for at_us in received_us {
            let first_us = match burst {
                Some((first_us, due_us)) if *at_us < due_us => first_us,
                _ => {
                    count += 1;
                    *at_us
                }
            };
            burst = Some((first_us, (at_us + wait_us).min(first_us + max_us)));
        }
        count
    }

    /// The least and the most deliveries that are right.
    pub(crate) fn bounds(self, requests: Requests<'_>) -> [usize; 2] {
        let Requests::Live(sent_us) = requests else { return [1, 1] };
        let Rule { wait_ms, max_wait_ms } = self;
        let with = |wait_ms, max_wait_ms| Rule { wait_ms, max_wait_ms }.deliveries(sent_us);
        let counts = [
            with(wait_ms, max_wait_ms),
            with(wait_ms + JITTER_MS, max_wait_ms + JITTER_MS),
            with(wait_ms - JITTER_MS, max_wait_ms),
        ];
        [counts.into_iter().min().unwrap_or(0), counts.into_iter().max().unwrap_or(0)]
    }

    /// Judges the deliveries, in the order of their receipt.
    pub(crate) fn judge(
        self,
        requests: Requests<'_>,
        deliveries: &[Delivery],
        wrongs: &mut Wrongs,
    ) {
        let [least, most] = self.bounds(requests);
        if !(least..=most).contains(&deliveries.len()) {
            let right =
                if least == most { least.to_string() } else { format!("{least} to {most}") };
            wrongs.broken(format!("{} deliveries: {right} are right", deliveries.len()));
        }
        let count = match requests {
            Requests::Live(sent_us) => sent_us.len(),
            Requests::Backlog { count, .. } => count,
        };
        let mut first = 0;
        for delivery in deliveries {
            let Delivery { request, due_ms, attempt, at_us } = *delivery;
            if attempt != 1 {
                wrongs.broken(format!("request {request}: attempt {attempt}, and none failed"));
            }
            if at_us < due_ms * 1000 {
                wrongs.broken(format!("request {request}: came before its due time, {due_ms}"));
            }
            if request < first || request >= count {
                wrongs.broken(format!("request {request}: came, and {first} was the next"));
                continue;
            }
            let [earliest_ms, latest_ms] = self.due_bounds(requests, first, request);
            if !(earliest_ms..=latest_ms).contains(&due_ms) {
                wrongs.broken(format!(
                    "requests {first} to {request}: due {due_ms}, and {earliest_ms} to {latest_ms} is right"
                ));
            }
            first = request + 1;
        }
        if first != count {
            wrongs.broken(format!("requests {first} to {}: lost", count.saturating_sub(1)));
        }
    }

    /// The earliest and the latest due time of a burst of the requests from `first` to `last`,
    /// epoch ms.
    fn due_bounds(self, requests: Requests<'_>, first: usize, last: usize) -> [i64; 2] {
        let Rule { wait_ms, max_wait_ms } = self;
        match requests {
            Requests::Live(sent_us) => {
                let [first_ms, last_ms] = [first, last].map(|at| sent_us[at] / 1000);
                let due_ms = |late_ms: i64| {
                    (last_ms + late_ms + wait_ms).min(first_ms + late_ms + max_wait_ms)
                };
                [due_ms(0), due_ms(RECEIPT_MS)]
            }
            // Both waits count from the receipt: no time that passed before counts.
            Requests::Backlog { started_ms, .. } => {
                [started_ms + wait_ms.min(max_wait_ms), i64::MAX]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN_MS: i64 = 1_700_000_000_000;
    const RULE: Rule = Rule { wait_ms: 500, max_wait_ms: 3000 };

    fn sent(each_ms: i64, count: i64) -> Vec<i64> {
        (0..count).map(|number| (BEGIN_MS + number * each_ms) * 1000).collect()
    }

    /// A delivery of this request that was due after so long, 4 ms late.
    fn delivery(request: usize, due_ms: i64) -> Delivery {
        let due_ms = BEGIN_MS + due_ms;
        Delivery { request, due_ms, attempt: 1, at_us: (due_ms + 4) * 1000 }
    }

    /// The deliveries of a request each 10 ms for 10 s.
    fn storm() -> Vec<Delivery> {
        // Each burst begins with the first request after the delivery before.
        let ends = [(300, 3000), (601, 6010), (902, 9020), (999, 10_490)];
        ends.map(|(request, due_ms)| delivery(request, due_ms)).into()
    }

    fn refused(deliveries: &[Delivery]) -> Vec<String> {
        let mut wrongs = Wrongs::default();
        RULE.judge(Requests::Live(&sent(10, 1000)), deliveries, &mut wrongs);
        wrongs.wrong
    }

    #[test]
    fn a_storm_becomes_a_delivery_each_longest_wait_and_pauses_make_more() {
        let bounds = |each_ms, count| RULE.bounds(Requests::Live(&sent(each_ms, count)));
        assert_eq!((bounds(10, 1000), bounds(1, 10_000)), ([4, 4], [4, 4]));
        assert_eq!((bounds(10, 20), bounds(10, 1), bounds(2000, 5)), ([1, 1], [1, 1], [5, 5]));
        // Near the wait the way of the messages decides.
        assert_eq!(bounds(600, 4), [1, 4]);
        let backlog = Requests::Backlog { count: 1000, started_ms: BEGIN_MS };
        assert_eq!(RULE.bounds(backlog), [1, 1]);
    }

    #[test]
    fn what_the_rule_says_is_sound() {
        assert_eq!(refused(&storm()), Vec::<String>::new());
    }

    #[test]
    fn each_broken_rule_is_refused() {
        let with = |change: fn(&mut Vec<Delivery>)| {
            let mut deliveries = storm();
            change(&mut deliveries);
            refused(&deliveries)
        };
        let one = |what: &str, change: fn(&mut Vec<Delivery>)| {
            let wrong = with(change);
            assert!(wrong.len() == 1 && wrong[0].contains(what), "{what}: {wrong:?}");
        };
        one("5 deliveries", |all| {
            all.insert(1, delivery(301, 3510));
            all[2] = delivery(601, 6020);
        });
        one("999: lost", |all| all[3] = delivery(998, 10_480));
        one("attempt 2", |all| all[1].attempt = 2);
        one("before its due time", |all| all[2].at_us -= 5000);
        one("due", |all| all[0] = delivery(300, 2900));
        one("due", |all| all[0] = delivery(300, 5100));
        let twice = with(|all| all.insert(1, delivery(300, 3000)));
        assert!(twice.iter().any(|wrong| wrong.contains("301 was the next")), "{twice:?}");
        assert!(!with(Vec::clear).is_empty(), "all were lost");
    }

    #[test]
    fn a_backlog_is_one_delivery_that_counts_from_the_start() {
        let judged = |deliveries: &[Delivery]| {
            let mut wrongs = Wrongs::default();
            let backlog = Requests::Backlog { count: 1000, started_ms: BEGIN_MS };
            RULE.judge(backlog, deliveries, &mut wrongs);
            wrongs.wrongs
        };
        assert_eq!(judged(&[delivery(999, 500)]), 0);
        assert_eq!(judged(&[delivery(999, 400)]), 1, "a time that passed counted");
        assert_eq!(judged(&[delivery(500, 500), delivery(999, 900)]), 1, "two");
        assert_eq!(judged(&[delivery(998, 500)]), 1, "the last is lost");
    }
}
