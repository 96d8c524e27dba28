//! Shared by the tests: a fresh namespace, waiting with a deadline, verdicts, JetStream. Servers
//! come from `dwell_testkit::servers`.
#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod jetstream;
pub(crate) mod verdicts;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

/// The longest wait of a test for a result that must come. The time is far more than the result
/// takes, so that only a broken build meets it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A namespace that no other test has, so that tests may share a Redis.
pub(crate) fn namespace(test: &str) -> String {
    format!("{test}-{:08x}", rand::random::<u32>())
}

/// A link of the test's own to a Redis. The client's own patience, half a second, is too little on
/// a busy machine.
pub(crate) async fn redis_link(url: impl AsRef<str>) -> redis::aio::MultiplexedConnection {
    let patient = redis::AsyncConnectionConfig::new()
        .set_response_timeout(Some(DEADLINE))
        .set_connection_timeout(Some(DEADLINE));
    redis::Client::open(url.as_ref())
        .unwrap()
        .get_multiplexed_async_connection_with_config(&patient)
        .await
        .unwrap()
}

/// Asks until the condition gives a value. Panics after [`DEADLINE`], with the name of the missing
/// condition.
pub(crate) async fn wait_until<T>(what: &str, condition: impl AsyncFnMut() -> Option<T>) -> T {
    wait_within(DEADLINE, what, condition).await
}

/// As [`wait_until`], with a deadline of its own.
pub(crate) async fn wait_within<T>(
    deadline: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> T {
    let waited = timeout(deadline, async {
        let mut ticks = interval(Duration::from_millis(5));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(value) = condition().await {
                return value;
            }
        }
    });
    match waited.await {
        Ok(value) => value,
        Err(_) => panic!("waited {} s for: {what}", deadline.as_secs()),
    }
}

/// The value of one series in a scrape, by its whole name with labels.
pub(crate) fn metric(scrape: &str, series: &str) -> f64 {
    let found = scrape.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {series} in:\n{scrape}")).parse().unwrap()
}

/// Where `make clients` put what tests run in Python.
pub(crate) fn python_libraries() -> PathBuf {
    let named = std::env::var_os("DWELL_CLIENTS").map(PathBuf::from);
    let folder =
        named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers/clients"));
    assert!(folder.is_dir(), "no clients at {}: run `make clients`", folder.display());
    folder
}

/// The consumers of a store: of no queue.
pub(crate) fn consumers(
    store: &std::sync::Arc<dwell::store::Store>,
) -> dwell::consumers::Consumers {
    use dwell::consumers::Consumers;
    Consumers::new(store.clone(), Default::default(), std::sync::Arc::new(()), Default::default())
}
