//! A short campaign with a fixed seed: no promise is broken, and the checker would find a
//! violation. `make chaos` is the long form.

use std::path::Path;
use std::time::Duration;

use dwell::config::{Durability, RedisMode};
use dwell_lab::chaos::campaign::{self, Options};
use dwell_lab::chaos::checker::check;
use dwell_lab::chaos::checker::verdict::Wrong;
use dwell_lab::chaos::fault::FaultKind;
use dwell_lab::chaos::history::{History, Op};
use dwell_lab::chaos::plan::Pace;
use dwell_lab::chaos::system::SystemOptions;

/// A short campaign of these faults, at least this many.
fn options(system: SystemOptions, only: Vec<FaultKind>, least: usize, out: &Path) -> Options {
    Options {
        system: SystemOptions {
            instances: 2,
            program: env!("CARGO_BIN_EXE_dwell-instance").into(),
            ..system
        },
        seed: 1,
        duration: Duration::from_secs(15),
        least,
        rate: 60,
        pace: Pace::Dense,
        only,
        out: out.to_owned(),
        repeat: String::new(),
        say: |line| println!("{line}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_breaks_while_a_cluster_changes_its_masters() {
    let out = tempfile::tempdir().unwrap();
    let system = SystemOptions {
        redis: RedisMode::Cluster,
        durability: Durability::Replica,
        ..SystemOptions::default()
    };
    let only = vec![
        FaultKind::RedisSlotsMoved,
        FaultKind::RedisFailoverOrdered,
        FaultKind::RedisMasterKilled,
    ];
    let outcome = Box::pin(campaign::run(options(system, only.clone(), only.len(), out.path())))
        .await
        .unwrap();
    println!("{}", outcome.report);
    assert!(outcome.verdict.is_sound(), "{}", outcome.verdict);
    assert!(outcome.verdict.impacts.len() >= only.len(), "{:?}", outcome.verdict.impacts);
    let counts = outcome.verdict.counts;
    assert!(
        counts.finished > 0 && counts.held > counts.finished,
        "no consumer finished, or each did: {counts}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_breaks_while_the_host_of_urls_fails() {
    let out = tempfile::tempdir().unwrap();
    let system = SystemOptions { http: true, ..SystemOptions::default() };
    let only = vec![
        FaultKind::HostDown,
        FaultKind::HostSilent,
        FaultKind::HostRefuses,
        FaultKind::HostDropsAnswers,
    ];
    let outcome = Box::pin(campaign::run(options(system, only, 2, out.path()))).await.unwrap();
    println!("{}", outcome.report);
    assert!(outcome.verdict.is_sound(), "{}", outcome.verdict);
    // A host that was silent is calm again only after the pauses that it caused.
    assert!(outcome.verdict.impacts.len() >= 2, "{:?}", outcome.verdict.impacts);
    assert!(outcome.verdict.counts.delivered > 0, "{}", outcome.verdict.counts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_breaks_in_a_campaign_and_a_job_that_is_taken_out_of_its_record_is_lost() {
    let out = tempfile::tempdir().unwrap();
    let only = vec![
        FaultKind::DwellKill,
        FaultKind::RedisKill,
        FaultKind::LinkCutBroker,
        FaultKind::LinkDropAnswersRedis,
    ];
    let options = options(SystemOptions::default(), only, 1, out.path());
    let outcome = Box::pin(campaign::run(options)).await.unwrap();
    println!("{}", outcome.report);
    assert!(outcome.verdict.is_sound(), "{}", outcome.verdict);
    let counts = outcome.verdict.counts;
    assert!(!outcome.verdict.impacts.is_empty(), "nothing was broken");
    assert!(
        counts.delivered > 0 && counts.dead > 0 && counts.rejected > 0 && counts.answered > 0,
        "{counts}"
    );

    // The same history with a gap.
    let mut history = History::read(&outcome.history).unwrap();
    let asked: std::collections::HashSet<String> = history
        .events
        .iter()
        .filter_map(|event| match &event.op {
            Op::Cancel(ask) | Op::Reschedule(ask) | Op::Fire(ask) => Some(ask.id.clone()),
            _ => None,
        })
        .collect();
    let taken = |event: &dwell_lab::chaos::history::Event| match &event.op {
        Op::Deliver(arrival) if !asked.contains(&arrival.id) => Some(arrival.id.clone()),
        _ => None,
    };
    let lost = history.events.iter().find_map(taken).unwrap();
    history.events.retain(|event| taken(event).as_ref() != Some(&lost));
    assert_eq!(check(&history).findings.keys().copied().collect::<Vec<_>>(), [Wrong::Lost]);
}
