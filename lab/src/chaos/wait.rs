//! Waits with a limit.

use std::fmt::Display;
use std::time::Duration;

use dwell::clock;

use super::error::Error;

/// The interval between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The interval between two counts of what grows.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for this no longer than this time; `missed` says what did not happen.
pub(crate) async fn within<T>(
    limit: Duration,
    missed: impl Display,
    waited: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    // Boxed: a timeout has room for its future several times.
    clock::timeout(limit, Box::pin(waited))
        .await
        .unwrap_or_else(|| Err(Error::Unexpected(format!("{missed} within {limit:?}"))))
}

/// Waits until this holds, no longer than this time; `missed` says what did not happen.
pub(crate) async fn until(
    limit: Duration,
    missed: impl Display,
    mut holds: impl AsyncFnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    within(limit, missed, async {
        while !holds().await? {
            clock::sleep(CHECK_INTERVAL).await;
        }
        Ok(())
    })
    .await
}

/// Waits until there are so many; false if none is added for so long.
pub(crate) async fn grown(wanted: usize, patience: Duration, count: impl Fn() -> usize) -> bool {
    let (mut last, mut since) = (0, clock::now());
    loop {
        let now = count();
        if now >= wanted {
            return true;
        }
        if now > last {
            (last, since) = (now, clock::now());
        }
        if since.elapsed() > patience {
            return false;
        }
        clock::sleep(COUNT_INTERVAL).await;
    }
}
