//! `fsck --repair`, over and over, beside instances under load: no false finding, nothing lost,
//! nothing repeated. And over 100 000 jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dwell::config::Settings;
use dwell::dispatch::lease_of;
use dwell::store::admin::fsck::{self, Finding, FsckRules};
use dwell::store::meta::SweepRules;
use dwell_testkit::servers::RedisOptions;
use tokio_util::sync::CancellationToken;

use super::environment::{Environment, SETTLE, published};
use crate::support::wait_within;

fn rules(settings: &Settings) -> FsckRules {
    let delivery = &settings.delivery;
    FsckRules {
        lease_ms: u64::try_from(lease_of(delivery).as_millis()).unwrap(),
        retry_ms: delivery.retry.to_vec(),
        sweep: SweepRules::from(delivery),
        repair: true,
    }
}

/// Runs fsck again and again until told to stop, and counts the passes. Returns the findings.
async fn over_and_over(
    settings: Settings,
    passes: Arc<AtomicUsize>,
    stop: CancellationToken,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    while !stop.is_cancelled() {
        fsck::run(&settings.redis, rules(&settings), &mut |finding| findings.push(finding))
            .await
            .unwrap();
        passes.fetch_add(1, Ordering::Relaxed);
    }
    findings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_two_instances_under_load_it_finds_nothing_and_changes_nothing() {
    let env = Environment::new("fsck", RedisOptions::default(), "").await;
    let (one, two) = (env.dwell().await, env.dwell().await);
    let (passes, stop) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
    let repairs = tokio::spawn(over_and_over(env.settings.clone(), passes.clone(), stop.clone()));
    let load = env.load(60);
    env.until_arrived(4000).await;
    // A pass over many claimed jobs takes long where the machine is busy.
    wait_within(SETTLE, "three passes under load", async || {
        (passes.load(Ordering::Relaxed) >= 3).then_some(())
    })
    .await;
    load.finish().await;
    let left = env.settled().await;
    stop.cancel();

    assert_eq!(repairs.await.unwrap(), []);
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    assert_eq!(published(&one, "unknown").await + published(&two, "unknown").await, 0);
    let ledger = env.ledger.lock();
    assert_eq!((ledger.sound().len(), ledger.attempts_burned(), ledger.uncertain()), (0, 0, 0));
}

#[tokio::test]
async fn a_hundred_thousand_jobs_take_seconds_and_redis_answers_meanwhile() {
    use crate::store::fixture::{FAR, Fixture, MAIN, request};
    const JOBS: u64 = 100_000;
    let fixture = Fixture::with(16, &[MAIN]).await;
    for from in (0..JOBS).step_by(2000) {
        let requests: Vec<_> =
            (from..from + 2000).map(|n| request(&format!("job-{n}"), n, FAR)).collect();
        fixture.store.jobs.schedule(&requests).await.unwrap();
    }
    let rules = FsckRules {
        lease_ms: 20_000,
        retry_ms: Vec::new(),
        sweep: crate::store::fixture::KEEP,
        repair: true,
    };
    let settings = fixture.settings.clone();
    let began = Instant::now();
    let checking = tokio::spawn(async move {
        fsck::run(&settings, rules, &mut |finding| panic!("{finding:?}")).await.unwrap()
    });
    let mut answers = Vec::new();
    while !checking.is_finished() {
        let asked = Instant::now();
        fixture.redis(&["PING"]).await;
        answers.push(asked.elapsed());
    }
    assert_eq!(checking.await.unwrap(), JOBS);
    answers.sort_unstable();
    // A busy machine may stand still for a second: a few answers come late then.
    let (slow, slowest) = (answers[answers.len() * 9 / 10], answers.last().unwrap());
    println!("{JOBS} jobs in {:?}, slowest answer meanwhile {slowest:?}", began.elapsed());
    // Far more than it takes (a second or two, and a few milliseconds), for machines that are busy.
    assert!(
        began.elapsed() < Duration::from_secs(60) && slow < Duration::from_millis(300),
        "{:?}, {} answers, one in ten later than {slow:?}",
        began.elapsed(),
        answers.len()
    );
}
