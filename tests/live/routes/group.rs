//! A backlog on a Kafka topic of three partitions, read by a group whose instances are killed and
//! stopped under load.

use std::collections::HashMap;
use std::sync::Arc;

use dwell::clock;
use dwell::config::{self, Overrides};
use dwell::store::Store;
use dwell_connectors::{Acks, Destination, Message, Role};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::servers::{DwellServer, KafkaOptions, KafkaServer, RedisOptions, RedisServer};
use parking_lot::Mutex;

use super::environment::{Seen, program, text};
use crate::support::{DEADLINE, wait_within};

/// Requests in the backlog; `DWELL_BACKLOG_JOBS` names another number.
const JOBS: usize = 6000;
const DELAY_MS: i64 = 4000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_loses_instances_and_no_request() {
    let jobs = std::env::var("DWELL_BACKLOG_JOBS")
        .map_or(JOBS, |text| text.parse().expect("DWELL_BACKLOG_JOBS is a number"));
    let kafka = KafkaServer::start(KafkaOptions {
        config: "num.partitions=3".to_owned(),
        ..KafkaOptions::default()
    })
    .await
    .unwrap();
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let settings_text = format!(
        "[redis]\nurls = [\"{}\"]\n\n[brokers.main]\ntype = \"kafka\"\nbootstrap = \"{}\"\nallow = [\"orders.*\"]\n\n[ingest.main]\nbroker = \"main\"\ndeclare = true\n",
        redis.url(),
        kafka.bootstrap()
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    std::fs::write(&file, &settings_text).unwrap();
    let settings = config::load_from(Some(&file), &[], &Overrides::default()).unwrap();
    let broker = &settings.brokers["main"].connector;
    for (topic, role) in [("delay.in", Role::Ingest), ("orders.close", Role::Letters)] {
        broker.declare(&Destination::new(topic), role).await.unwrap();
    }
    let seen: Arc<Mutex<HashMap<String, Vec<Seen>>>> = Arc::default();
    let into = seen.clone();
    let consumer =
        Consumer::open(broker, "orders.close", Acks::Explicit, move |at_us, messages| {
            let mut seen = into.lock();
            for message in messages {
                seen.entry(String::from_utf8_lossy(&message.body).into_owned())
                    .or_default()
                    .push((at_us, message));
            }
        });
    let mut consumer = consumer.await.unwrap();

    // The backlog stands before anybody reads.
    let began_ms = clock::wall_ms();
    let mut producer = Producer::open(broker).await.unwrap();
    let requests = (0..jobs).map(|number| {
        let mut request =
            Message::new(format!("body {number}")).with_header("delay-target", "orders.close");
        request = request
            .with_header("delay-for", DELAY_MS.to_string())
            .with_header("delay-id", format!("job-{number}"));
        request.key = Some(format!("key {number}").into());
        request
    });
    producer.send(&Destination::new("delay.in"), requests).await.unwrap();
    producer.flush().await.unwrap();
    let sent_ms = clock::wall_ms();

    let start = async || DwellServer::start(program(), &settings_text).await.unwrap();
    let (mut killed, mut stopped) = tokio::join!(start(), start());
    let store = Store::attach(&settings.redis).await.unwrap();
    let came = || seen.lock().len() as u64;
    let stored = async |share: u64| {
        let least = jobs as u64 * share / 10;
        wait_within(
            DEADLINE * 4,
            &format!("{least} of {jobs} requests to be stored"),
            async || {
                let waiting: u64 = store.reader.counts(&[]).await.unwrap().scheduled.iter().sum();
                (waiting + came() >= least).then_some(())
            },
        )
        .await;
    };
    stored(2).await;
    killed.kill().unwrap();
    stored(5).await;
    let status = stopped.stop().await.unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    let mut last = start().await;

    wait_within(DEADLINE * 8, "every job to arrive", async || {
        consumer.check().await.unwrap();
        (seen.lock().len() == jobs).then_some(())
    })
    .await;
    last.stop().await.unwrap();
    let seen = seen.lock();
    for number in 0..jobs {
        let copies =
            seen.get(&format!("body {number}")).unwrap_or_else(|| panic!("job {number} is lost"));
        let mut attempts = Vec::new();
        for (at_us, message) in copies {
            let due_ms: i64 = text(message, "delayed-due").unwrap().parse().unwrap();
            assert!(*at_us >= due_ms * 1000, "job {number} is early");
            // From when it was sent, not from when somebody read it.
            assert!(
                (began_ms..=sent_ms).contains(&(due_ms - DELAY_MS)),
                "job {number} is due {due_ms}"
            );
            assert_eq!(message.key.as_deref(), Some(format!("key {number}").as_bytes()));
            attempts.push(text(message, "delayed-attempt").unwrap().parse::<u32>().unwrap());
        }
        attempts.sort_unstable();
        attempts.dedup();
        assert_eq!(
            attempts.len(),
            copies.len(),
            "each copy of job {number} has an attempt of its own"
        );
    }
}
