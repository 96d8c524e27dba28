//! Two instances of one group, of which one is cut off from Redis.

use std::time::{Duration, Instant};

use dwell::bridge::Bridge;
use dwell::job::JobId;
use dwell::store::Store;
use dwell::telemetry::Metrics;
use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use dwell_testkit::servers::RedisOptions;

use super::rig::{ALL, Rig, instance, request};
use crate::support::{metric, wait_until, wait_within};

const PAUSED: &str = r#"dwell_ingest_paused{reason="redis"}"#;

/// Another instance, which reaches Redis straight; that of `rig` does through the proxy.
struct Other {
    metrics: Metrics,
    _bridge: Bridge,
}

async fn pair(set: &[(&str, &str)]) -> (Rig, Other, Proxy) {
    let mut rig = Rig::idle(RedisOptions::default(), set).await;
    let (bridge, metrics) = instance(&rig.settings, ALL).await;
    let link = Proxy::start(format!("127.0.0.1:{}", rig.redis.port())).await.unwrap();
    rig.settings.redis.urls = vec![format!("redis://{}", link.address())];
    rig.run(ALL).await;
    (rig, Other { metrics, _bridge: bridge }, link)
}

/// Whether an instance holds nothing and reads nothing because of Redis.
fn is_cut_off(metrics: &Metrics) -> bool {
    metric(&metrics.encode(), PAUSED) == 1.0 && !metrics.ingest("main").unwrap().reading().get().0
}

#[tokio::test]
async fn an_instance_that_is_cut_off_from_redis_gives_back_what_it_holds_and_reads_no_more() {
    let (rig, other, link) = pair(&[("ingest.main.hold", "2s")]).await;
    // It hangs: nothing is refused.
    link.set(Direction::Up, Flow::Drop);
    for n in 0..3000 {
        rig.send(request(&format!("job-{n}"), "0"));
    }
    wait_within(Duration::from_secs(20), "the other instance has stored all", async || {
        (rig.broker.unacked("delay.in", "dwell") == 0).then_some(())
    })
    .await;
    wait_until("the first reads nothing", async || is_cut_off(&rig.metrics).then_some(())).await;
    assert_eq!(metric(&other.metrics.encode(), PAUSED), 0.0);
    let read = rig.broker.delivered("delay.in", "dwell");
    for n in 3000..3100 {
        rig.send(request(&format!("job-{n}"), "0"));
    }
    rig.taken().await;
    assert_eq!(rig.broker.delivered("delay.in", "dwell"), read + 100, "each came to the other instance at once");
    link.heal();
    wait_until("it reads again", async || rig.metrics.ingest("main").unwrap().reading().get().0.then_some(())).await;
    rig.until_metric(PAUSED, 0.0).await;
    rig.arrived("orders.a", 3100).await;
}

#[tokio::test]
async fn where_no_instance_reaches_redis_each_gives_back_once_also_one_that_had_nothing_to_store() {
    let (mut rig, other, _link) = pair(&[("ingest.main.hold", "1s")]).await;
    rig.redis.kill().unwrap();
    for n in 0..100 {
        rig.send(request(&format!("job-{n}"), "0"));
    }
    for metrics in [&rig.metrics, &other.metrics] {
        wait_until("it is cut off", async || is_cut_off(metrics).then_some(())).await;
    }
    let read = rig.broker.delivered("delay.in", "dwell");
    assert!(read <= 200, "given back at most once by each: {read} deliveries of 100 messages");
    let begun = Instant::now();
    let again = async || (begun.elapsed() > Duration::from_secs(3)).then_some(());
    wait_until("three times its bound", again).await;
    assert_eq!((rig.broker.delivered("delay.in", "dwell"), rig.broker.unacked("delay.in", "dwell")), (read, 100));
    rig.redis.restart().await.unwrap();
    rig.arrived("orders.a", 100).await;
    rig.taken().await;
}

#[tokio::test]
async fn a_full_redis_is_no_reason_to_give_back() {
    let full =
        RedisOptions { maxmemory: Some("5mb".to_owned()), maxmemory_policy: Some("noeviction".to_owned()), ..RedisOptions::default() };
    let mut rig = Rig::idle(full, &[("ingest.main.hold", "1s")]).await;
    rig.run(ALL).await;
    let body = "x".repeat(8 << 10);
    for n in 0..1000 {
        let request = dwell_connectors::Message::new(body.clone()).with_header("delay-id", format!("job-{n}"));
        rig.send(request.with_header("delay-for", "5s").with_header("delay-target", "orders.a"));
    }
    rig.until_metric(r#"dwell_ingest_paused{reason="redis_full"}"#, 1.0).await;
    rig.arrived("orders.a", 1000).await;
    rig.taken().await;
    assert_eq!(rig.broker.delivered("delay.in", "dwell"), 1000, "each was read once");
}

/// The bytes that lie unread at this port, as the system says.
fn unread(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let queued = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _, _, queues) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let at = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        u64::from_str_radix(queues.rsplit_once(':')?.1, 16).ok().filter(|_| at == port)
    };
    table.lines().filter_map(queued).sum()
}

#[tokio::test]
async fn what_is_given_back_behind_a_link_that_was_reset_is_not_carried_out_any_more() {
    let mut rig = Rig::idle(RedisOptions::default(), &[("ingest.main.hold", "1s")]).await;
    let straight = rig.settings.redis.clone();
    let link = Proxy::start(format!("127.0.0.1:{}", rig.redis.port())).await.unwrap();
    rig.settings.redis.urls = vec![format!("redis://{}", link.address())];
    rig.run(ALL).await;
    let straight = Store::attach(&straight).await.unwrap();
    // Redis knows the script.
    rig.send(request("first", "1h"));
    rig.taken().await;
    rig.redis.freeze().unwrap();
    let large = dwell_connectors::Message::new("x".repeat(50_000)).with_header("delay-id", "a");
    rig.send(large.with_header("delay-for", "1h").with_header("delay-target", "orders.a"));
    wait_until("Redis has the request, and does not read it", async || (unread(rig.redis.port()) > 50_000).then_some(())).await;
    // The client alone is told: Redis still has what came before.
    drop(link.strand());
    link.cut();
    wait_until("it was given back", async || is_cut_off(&rig.metrics).then_some(())).await;
    rig.redis.thaw().unwrap();
    wait_until("Redis has read all", async || (unread(rig.redis.port()) == 0).then_some(())).await;
    // The message may be over elsewhere.
    assert!(straight.find(&JobId::new("a").unwrap()).await.unwrap().is_none());
    link.heal();
    rig.taken().await;
    assert!(straight.find(&JobId::new("a").unwrap()).await.unwrap().is_some());
}
