//! Faults on real servers: every job arrives after each heal.

#![allow(clippy::unwrap_used, reason = "tests")]

mod load;

use std::time::Duration;

use dwell::config::Durability;
use dwell_lab::chaos::fault::FaultKind;
use dwell_lab::chaos::system::{System, SystemOptions};
use dwell_testkit::servers::BrokerKind;
use load::Load;
use rand::SeedableRng;
use rand::rngs::StdRng;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_for_arrives_after_faults_of_dwell_redis_and_the_link() {
    let system =
        System::start(SystemOptions { instances: 2, ..SystemOptions::default() }).await.unwrap();
    let load = Load::start(&system).await;
    let mut rng = StdRng::seed_from_u64(1);
    for kind in [FaultKind::DwellKill, FaultKind::RedisKill, FaultKind::LinkDropAnswersBroker] {
        let came = load.inject(kind, &mut rng, Duration::from_millis(500)).await;
        println!("{came}");
        if kind == FaultKind::LinkDropAnswersBroker {
            assert!(came.counted("unknown") > 0, "no confirm was lost: {came}");
        }
    }
    load.end().await;
    system.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_while_kafka_is_away_stops_nothing() {
    let system =
        System::start(SystemOptions { broker: BrokerKind::Kafka, ..SystemOptions::default() })
            .await
            .unwrap();
    let load = Load::start(&system).await;
    for kind in [FaultKind::LinkCutBroker, FaultKind::BrokerFreeze] {
        println!("{}", load.set_back_during(kind, Duration::from_secs(6)).await);
    }
    load.end().await;
    system.stop().await.unwrap();
}

/// Every fault of one broker in turn, with a line for each: `DWELL_CHAOS_BROKER=kafka
/// DWELL_CHAOS_FAULTS=broker-kill,link-cut-redis DWELL_CHAOS_HOLD=2000 DWELL_CHAOS_SEED=1
/// DWELL_CHAOS_DURABILITY=fsync+replica`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes: run by name"]
async fn what_was_asked_for_arrives_after_every_fault() {
    let named = |name: &str| std::env::var(name).unwrap_or_default();
    let broker = BrokerKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == named("DWELL_CHAOS_BROKER"))
        .unwrap_or(BrokerKind::Nats);
    let faults = named("DWELL_CHAOS_FAULTS");
    let durability = serde_json::from_value(named("DWELL_CHAOS_DURABILITY").into())
        .unwrap_or(Durability::Replica);
    let options = SystemOptions { broker, instances: 2, durability, ..SystemOptions::default() };
    let kinds: Vec<FaultKind> = match faults.as_str() {
        "" => FaultKind::all().iter().copied().filter(|kind| kind.applies(&options)).collect(),
        list => list.split(',').map(|name| name.parse().unwrap()).collect(),
    };
    let system = System::start(options).await.unwrap();
    let load = Load::start(&system).await;
    let number = |name: &str, default| named(name).parse().unwrap_or(default);
    let (hold, mut rng) = (
        Duration::from_millis(number("DWELL_CHAOS_HOLD", 2000)),
        StdRng::seed_from_u64(number("DWELL_CHAOS_SEED", 1)),
    );
    for kind in kinds {
        println!("{}", load.inject(kind, &mut rng, hold).await);
    }
    load.end().await;
    system.stop().await.unwrap();
}
