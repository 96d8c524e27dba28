//! What the tests share: a fresh namespace, and waiting for a condition with a deadline. Servers come from `dwell::servers`.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

/// How long a test waits for what must come. Far more than it takes, so that only a broken build meets it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A namespace that no other test has, so that tests may share a Redis.
pub(crate) fn namespace(test: &str) -> String {
    format!("{test}-{:08x}", rand::random::<u32>())
}

/// Asks until the condition gives a value. Panics after [`DEADLINE`], with what was waited for.
pub(crate) async fn wait_until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let waited = timeout(DEADLINE, async {
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
        Err(_) => panic!("waited {} s for: {what}", DEADLINE.as_secs()),
    }
}
