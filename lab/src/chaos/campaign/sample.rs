//! A sample of an instance: its memory, and its count of possible duplicates.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::usage::Usage;

use crate::chaos::history::Sample;
use crate::chaos::system::System;
use crate::client::Link;

/// The timeout of an answer: a frozen instance gives none.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The metric that counts possible duplicates.
const POSSIBLE: &str = "dwell_possible_duplicates_total{";

/// Of those, the jobs of an owner whose lease ended.
const RESCUED: &str = "dwell_possible_duplicates_total{cause=\"rescued\"}";
/// The calls of the script that gives a claim back.
const RECLAIMED: &str = "dwell_redis_seconds_count{script=\"reclaim\"}";
/// The metric that counts leases that ended before their jobs were settled.
const LOST: &str = "dwell_leases_lost_total";

/// Samples an instance; `None` while a fault acts on it, or if it is down.
pub(super) async fn sample(system: &System, instance: usize) -> Option<Sample> {
    let pid = system.instances[instance].server.try_lock().ok()?.pid()?;
    let rss = Usage::of([pid])?.rss;
    let mut link = Link::at(system.probes(instance));
    let answer = clock::timeout(TIMEOUT, link.get("/metrics")).await;
    // The metric is exposed even if it is zero: an answer without it is incomplete.
    let scrape = answer
        .and_then(|answer| String::from_utf8(answer.ok()?.1.into()).ok())
        .filter(|text| text.contains(POSSIBLE));
    let of = |series| scrape.as_ref().map(|text| sum(text, series));
    Some(Sample {
        instance,
        pid,
        rss,
        possible_duplicates: of(POSSIBLE),
        rescued: of(RESCUED),
        reclaimed: of(RECLAIMED),
        leases_lost: of(LOST),
    })
}

/// The sum of all series with this prefix.
fn sum(scrape: &str, begin: &str) -> u64 {
    let values = scrape
        .lines()
        .filter(|line| line.starts_with(begin))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_causes_are_summed() {
        let scrape = "# TYPE d_total counter\nd_total{a=\"x\"} 2\nd_total{a=\"y\"} 3\nd_totals 9\n";
        assert_eq!((sum(scrape, "d_total{"), sum(scrape, "e{")), (5, 0));
    }
}
