//! The exposition: names, series from the start, and the counts of the handles.

use super::*;
use crate::config::QueueRules;
use crate::telemetry::labels::Label;
use std::collections::BTreeSet;

/// The metrics of two brokers, an ingest, a queue and a pattern of queues.
pub(super) fn metrics() -> Metrics {
    let rules = |name: &str| QueueRules { name: name.to_owned(), ..QueueRules::default() };
    let queues = Arc::new(config::Queues::new(["emails", "orders.*"].map(rules)));
    Metrics::new(["main", "other"], ["in"]).with_queues(queues)
}

#[test]
fn a_scrape_has_exactly_the_families_of_the_contract() {
    let text = metrics().encode();
    let families: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned).collect();
    let expected = [
        "dwell_broker_connected gauge",
        "dwell_build info",
        "dwell_cancelled counter",
        "dwell_confirm_seconds histogram",
        "dwell_dead counter",
        "dwell_due_within_jobs gauge",
        "dwell_events_dropped counter",
        "dwell_ingest counter",
        "dwell_ingest_paused gauge",
        "dwell_jobs gauge",
        "dwell_late_dropped counter",
        "dwell_lateness_seconds histogram",
        "dwell_lease_ends counter",
        "dwell_leases_lost counter",
        "dwell_oldest_overdue_seconds gauge",
        "dwell_pop counter",
        "dwell_pop_lateness_seconds histogram",
        "dwell_popped_jobs counter",
        "dwell_possible_duplicates counter",
        "dwell_publish counter",
        "dwell_queue_jobs gauge",
        "dwell_queue_limited gauge",
        "dwell_queue_oldest_ready_seconds gauge",
        "dwell_redis_errors counter",
        "dwell_redis_seconds histogram",
        "dwell_replies counter",
        "dwell_schedule_occurrences counter",
        "dwell_schedules gauge",
        "dwell_stranded_jobs gauge",
        "dwell_target_limited gauge",
        "dwell_target_paused gauge",
    ];
    assert_eq!(families, expected.into_iter().map(str::to_owned).collect());
    let page = include_str!("../../../docs/reference/metrics.md");
    for family in families.iter().filter_map(|family| family.split(' ').next()) {
        assert!(page.contains(&format!("`{family}")), "metrics.md lacks {family}");
    }
}

#[test]
fn every_series_is_there_at_zero_before_anything_happened() {
    let text = metrics().encode();
    for line in [
        "dwell_jobs{state=\"scheduled\"} 0",
        "dwell_oldest_overdue_seconds 0.0",
        "dwell_ingest_total{ingest=\"in\",result=\"action\"} 0",
        "dwell_publish_total{broker=\"other\",outcome=\"unknown\"} 0",
        "dwell_lateness_seconds_count 0",
        "dwell_confirm_seconds_count 0",
        "dwell_dead_total{reason=\"crashed\"} 0",
        "dwell_dead_total{reason=\"expired\"} 0",
        "dwell_late_dropped_total 0",
        "dwell_possible_duplicates_total{cause=\"rescued\"} 0",
        "dwell_leases_lost_total 0",
        "dwell_events_dropped_total 0",
        "dwell_cancelled_total{verdict=\"cancelled_after_attempt\"} 0",
        "dwell_schedule_occurrences_total{result=\"made\"} 0",
        "dwell_schedule_occurrences_total{result=\"caught_up\"} 0",
        "dwell_schedule_occurrences_total{result=\"missed\"} 0",
        "dwell_redis_seconds_count{script=\"sweep\"} 0",
        "dwell_redis_errors_total{class=\"readonly\"} 0",
        "dwell_broker_connected{broker=\"main\"} 0",
        "dwell_stranded_jobs{broker=\"main\"} 0",
        "dwell_target_limited{broker=\"main\"} 0",
        "dwell_target_paused{broker=\"main\"} 0",
        "dwell_ingest_paused{reason=\"redis_full\"} 0",
        "dwell_due_within_jobs{seconds=\"3600\"} 0",
        "dwell_jobs{state=\"ready\"} 0",
        "dwell_schedules{state=\"active\"} 0",
        "dwell_schedules{state=\"paused\"} 0",
        "dwell_queue_jobs{queue=\"orders.*\",state=\"ready\"} 0",
        "dwell_queue_limited{queue=\"emails\"} 0",
        "dwell_queue_oldest_ready_seconds{queue=\"emails\"} 0.0",
        "dwell_pop_total{queue=\"orders.*\"} 0",
        "dwell_popped_jobs_total{queue=\"emails\"} 0",
        "dwell_lease_ends_total{queue=\"emails\",end=\"timeout\"} 0",
        "dwell_pop_lateness_seconds_count 0",
        concat!("dwell_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(text.lines().any(|there| there == line), "no line {line} in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn handles_count_into_the_scrape() {
    let metrics = metrics();
    metrics.broker("main").unwrap().connected(true);
    metrics.called(Name::Claim, Duration::from_micros(80));
    let _paused = metrics.ingest_paused(PauseReason::Redis, None);
    drop(metrics.ingest_paused(PauseReason::Redis, None));
    metrics.oldest_overdue(Duration::from_millis(1500));
    let text = metrics.encode();
    for line in [
        "dwell_broker_connected{broker=\"main\"} 1",
        "dwell_redis_seconds_bucket{le=\"0.0001\",script=\"claim\"} 1",
        "dwell_ingest_paused{reason=\"redis\"} 1",
        "dwell_oldest_overdue_seconds 1.5",
    ] {
        assert!(text.lines().any(|there| there == line), "no line {line} in:\n{text}");
    }
    assert!(metrics.broker("nobody").is_none());
}

#[test]
fn what_was_given_back_is_overdue_but_never_more_than_is_there() {
    let metrics = metrics();
    let jobs = [(1_000, 9_000), (2_000, 9_000)];
    metrics.broker("main").unwrap().given_back().add(5_000, jobs.into_iter());
    let counted = |(scheduled, overdue): (u64, u64)| {
        let mut counts = Counts {
            brokers: vec![("other".to_owned(), 9), ("main".to_owned(), scheduled)],
            overdue: overdue + 9,
            overdue_of: vec![9, overdue],
            next_due_ms: Some(14_000),
            now_ms: 5_000,
            ..Counts::default()
        };
        metrics.add_given_back(&mut counts);
        (counts.overdue - 9, counts.next_due_ms)
    };
    let (ahead, oldest) = (Some(14_000), Some(1_000));
    assert_eq!([(0, 0), (1, 0), (3, 0)].map(counted), [(0, ahead), (1, oldest), (2, oldest)]);
    // The store has these as overdue already.
    assert_eq!([(2, 2), (2, 1), (4, 1)].map(counted), [(2, ahead), (2, oldest), (3, oldest)]);
}

#[test]
fn every_label_has_its_own_place() {
    fn places<L: Label>() -> Vec<usize> {
        L::ALL.iter().map(|value| value.index()).collect()
    }
    assert_eq!(places::<Name>(), (0..Name::ALL.len()).collect::<Vec<_>>());
    assert_eq!(places::<PublishOutcome>(), (0..6).collect::<Vec<_>>());
    for horizon in DueWithin::HORIZONS {
        assert_eq!(horizon.word(), (horizon.ms() / 1000).to_string());
    }
}
