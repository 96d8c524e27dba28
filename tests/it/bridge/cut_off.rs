//! Two instances of one group, of which one is cut off from Redis.

use std::time::{Duration, Instant};

use dwell::job::JobId;
use dwell::runtime::Runtime;
use dwell::store::Store;
use dwell::telemetry::Metrics;
use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use dwell_testkit::servers::RedisOptions;

use super::environment::{ALL, Environment, instance, request};
use crate::support::{metric, wait_until, wait_within};

const PAUSED: &str = r#"dwell_ingest_paused{reason="redis"}"#;

/// Another instance, which reaches Redis straight; that of `env` does through the proxy.
struct Other {
    metrics: Metrics,
    _bridge: Runtime,
}

async fn pair(set: &[(&str, &str)]) -> (Environment, Other, Proxy) {
    let mut env = Environment::idle(RedisOptions::default(), set).await;
    let (runtime, metrics) = instance(&env.settings, ALL).await;
    let link = Proxy::start(format!("127.0.0.1:{}", env.redis.port())).await.unwrap();
    env.settings.redis.urls = vec![format!("redis://{}", link.address())];
    env.run(ALL).await;
    (env, Other { metrics, _bridge: runtime }, link)
}

/// Whether an instance holds nothing and reads nothing because of Redis.
fn is_cut_off(metrics: &Metrics) -> bool {
    metric(&metrics.encode(), PAUSED) == 1.0 && !metrics.ingest("main").unwrap().reading().get().0
}

#[tokio::test]
async fn an_instance_that_is_cut_off_from_redis_gives_back_what_it_holds_and_reads_no_more() {
    let (env, other, link) = pair(&[("ingest.main.hold", "2s")]).await;
    // It hangs: nothing is refused.
    link.set(Direction::Up, Flow::Drop);
    for n in 0..3000 {
        env.send(request(&format!("job-{n}"), "0"));
    }
    wait_within(Duration::from_secs(20), "the other instance has stored all", async || {
        (env.broker.unacked("delay.in", "dwell") == 0).then_some(())
    })
    .await;
    wait_until("the first reads nothing", async || is_cut_off(&env.metrics).then_some(())).await;
    assert_eq!(metric(&other.metrics.encode(), PAUSED), 0.0);
    let read = env.broker.delivered("delay.in", "dwell");
    for n in 3000..3100 {
        env.send(request(&format!("job-{n}"), "0"));
    }
    env.taken().await;
    assert_eq!(
        env.broker.delivered("delay.in", "dwell"),
        read + 100,
        "each came to the other instance at once"
    );
    link.heal();
    wait_until("it reads again", async || {
        env.metrics.ingest("main").unwrap().reading().get().0.then_some(())
    })
    .await;
    env.until_metric(PAUSED, 0.0).await;
    env.arrived("orders.a", 3100).await;
}

#[tokio::test]
async fn where_no_instance_reaches_redis_each_gives_back_once_also_one_that_had_nothing_to_store() {
    let (mut env, other, _link) = pair(&[("ingest.main.hold", "1s")]).await;
    env.redis.kill().unwrap();
    for n in 0..100 {
        env.send(request(&format!("job-{n}"), "0"));
    }
    for metrics in [&env.metrics, &other.metrics] {
        wait_until("it is cut off", async || is_cut_off(metrics).then_some(())).await;
    }
    let read = env.broker.delivered("delay.in", "dwell");
    assert!(read <= 200, "given back at most once by each: {read} deliveries of 100 messages");
    let begun = Instant::now();
    let again = async || (begun.elapsed() > Duration::from_secs(3)).then_some(());
    wait_until("three times its bound", again).await;
    assert_eq!(
        (env.broker.delivered("delay.in", "dwell"), env.broker.unacked("delay.in", "dwell")),
        (read, 100)
    );
    env.redis.restart().await.unwrap();
    env.arrived("orders.a", 100).await;
    env.taken().await;
}

#[tokio::test]
async fn a_full_redis_is_no_reason_to_give_back() {
    let full = RedisOptions {
        maxmemory: Some("5mb".to_owned()),
        maxmemory_policy: Some("noeviction".to_owned()),
        ..RedisOptions::default()
    };
    let mut env = Environment::idle(full, &[("ingest.main.hold", "1s")]).await;
    env.run(ALL).await;
    let body = "x".repeat(8 << 10);
    for n in 0..1000 {
        let request = dwell_connectors::Message::new(body.clone())
            .with_header("delay-id", format!("job-{n}"));
        env.send(request.with_header("delay-for", "5s").with_header("delay-target", "orders.a"));
    }
    env.until_metric(r#"dwell_ingest_paused{reason="redis_full"}"#, 1.0).await;
    env.arrived("orders.a", 1000).await;
    env.taken().await;
    assert_eq!(env.broker.delivered("delay.in", "dwell"), 1000, "each was read once");
}

/// The bytes that lie unread at this port, as the system says.
fn unread(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let queued = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _, _, queues) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let at = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        u64::from_str_radix(queues.rsplit_once(':')?.1, 16).ok().filter(|_| at == port)
    };
    table.lines().filter_map(queued).sum()
}

#[tokio::test]
async fn what_is_given_back_behind_a_link_that_was_reset_is_not_carried_out_any_more() {
    let mut env = Environment::idle(RedisOptions::default(), &[("ingest.main.hold", "1s")]).await;
    let straight = env.settings.redis.clone();
    let link = Proxy::start(format!("127.0.0.1:{}", env.redis.port())).await.unwrap();
    env.settings.redis.urls = vec![format!("redis://{}", link.address())];
    env.run(ALL).await;
    let straight = Store::attach(&straight).await.unwrap();
    // Redis knows the script.
    env.send(request("first", "1h"));
    env.taken().await;
    env.redis.freeze().unwrap();
    let large = dwell_connectors::Message::new("x".repeat(50_000)).with_header("delay-id", "a");
    env.send(large.with_header("delay-for", "1h").with_header("delay-target", "orders.a"));
    wait_until("Redis has the request, and does not read it", async || {
        (unread(env.redis.port()) > 50_000).then_some(())
    })
    .await;
    // The client alone is told: Redis still has what came before.
    drop(link.strand());
    link.cut();
    wait_until("it was given back", async || is_cut_off(&env.metrics).then_some(())).await;
    env.redis.thaw().unwrap();
    wait_until("Redis has read all", async || (unread(env.redis.port()) == 0).then_some(())).await;
    // The message may be over elsewhere.
    assert!(straight.reader.find(&JobId::new("a").unwrap()).await.unwrap().is_none());
    link.heal();
    env.taken().await;
    assert!(straight.reader.find(&JobId::new("a").unwrap()).await.unwrap().is_some());
}
