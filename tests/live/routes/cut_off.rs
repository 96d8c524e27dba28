//! Two instances on each broker, one of them without Redis: the other one gets its requests.

use std::time::{Duration, Instant};

use dwell::config::{self, Overrides};
use dwell::store::Store;
use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use dwell_connectors::{Destination, Message};
use dwell_testkit::environment::traffic::Producer;
use dwell_testkit::servers::{BrokerKind, BrokerServer, DwellServer, RedisOptions, RedisServer};

use super::environment::program;
use crate::support::wait_within;

/// `DWELL_CUT_OFF_JOBS` names another number.
const JOBS: usize = 600;
/// More than `hold`, the calls to Redis that are under way, and a Kafka group that shares out anew.
const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_on_nats_that_is_cut_off_gives_its_share_away() {
    gives_its_share_away(BrokerKind::Nats).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_on_rabbitmq_that_is_cut_off_gives_its_share_away() {
    gives_its_share_away(BrokerKind::Amqp).await;
}

/// Its partition is all that there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_on_kafka_that_is_cut_off_gives_its_partitions_away() {
    gives_its_share_away(BrokerKind::Kafka).await;
}

async fn gives_its_share_away(kind: BrokerKind) {
    let jobs = std::env::var("DWELL_CUT_OFF_JOBS")
        .map_or(JOBS, |text| text.parse().expect("DWELL_CUT_OFF_JOBS is a number"));
    let hold = std::env::var("DWELL_CUT_OFF_HOLD").unwrap_or_else(|_| "3s".to_owned());
    let (broker, redis) =
        tokio::join!(BrokerServer::start(kind), RedisServer::start(RedisOptions::default()));
    let (broker, redis) = (broker.unwrap(), redis.unwrap());
    let link = Proxy::start(format!("127.0.0.1:{}", redis.port())).await.unwrap();
    let allow = kind.pattern(if kind == BrokerKind::Nats { "out.>" } else { "out.*" });
    let text = |url: &str| {
        let broker = format!("[brokers.main]\n{}allow = [\"{allow}\"]\n", broker.settings());
        format!(
            "[redis]\nurls = [\"{url}\"]\n\n{broker}\n[ingest.main]\nbroker = \"main\"\ndeclare = true\nhold = \"{hold}\"\n"
        )
    };
    let straight = text(&redis.url());
    // It is there first, so that on Kafka it has the partition.
    let cut =
        DwellServer::start(program(), &text(&format!("redis://{}", link.address()))).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    std::fs::write(&file, &straight).unwrap();
    let settings = config::load_from(Some(&file), &[], &Overrides::default()).unwrap();
    let store = Store::attach(&settings.redis).await.unwrap();
    let mut producer = Producer::open(&settings.brokers["main"].connector).await.unwrap();
    let mut send = async |from: usize, count: usize| {
        let requests = (from..from + count).map(|number| {
            let request = Message::new("x")
                .with_header("delay-id", format!("job-{number}"))
                .with_header("delay-for", "1h");
            let request = request.with_header("delay-target", "out.a");
            if kind == BrokerKind::Amqp {
                request.with_header("delay-exchange", "")
            } else {
                request
            }
        });
        producer.send(&Destination::new("delay.in"), requests).await.unwrap();
        producer.flush().await.unwrap();
    };
    let stored = async |count: usize| {
        wait_within(TIMEOUT, &format!("{count} requests to be stored"), async || {
            (store.reader.counts(&[]).await.unwrap().scheduled.iter().sum::<u64>() == count as u64)
                .then_some(())
        })
        .await;
    };
    send(0, 1).await;
    stored(1).await;
    let other = DwellServer::start(program(), &straight).await.unwrap();
    link.set(Direction::Up, Flow::Drop);
    let begun = Instant::now();
    send(1, jobs).await;
    stored(jobs + 1).await;
    eprintln!(
        "{jobs} requests on {} were stored within {:?} of the cut",
        kind.as_str(),
        begun.elapsed()
    );
    drop((cut, other));
}
