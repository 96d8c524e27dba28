//! Waits with a limit.

use std::fmt::Display;
use std::time::Duration;

use dwell::clock;

use super::error::Error;

/// The interval between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

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
