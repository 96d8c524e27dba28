//! Watches whether the store answers, and tells where it does not: ingests pause by themselves, and
//! an instance without an ingest would say nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::StartError;
use crate::clock;
use crate::readiness::{Outage, Readiness, Waiting};
use crate::reconnect::jitter;
use crate::store::Store;
use crate::store::error::{Class, StoreError};

/// The interval between checks of a store that answers.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The interval between checks of a store that does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// An answer may take this long: with `appendfsync everysec` a healthy one takes a second.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Watches until told to stop.
pub(super) async fn watch(store: Arc<Store>, readiness: Readiness, stop: CancellationToken) {
    let mut outage = Outage::new(&readiness, Waiting::Store);
    loop {
        let asked = tokio::select! {
            () = stop.cancelled() => return,
            asked = clock::timeout(TIMEOUT, store.jobs.takes_requests()) => asked,
        };
        let late =
            || Err(StoreError::new(Class::Timeout, format!("redis: no answer within {TIMEOUT:?}")));
        let pause = match asked.unwrap_or_else(late) {
            Ok(()) => {
                outage.is_over(true);
                CHECK_INTERVAL
            }
            // It answers, and its refusals are told for all connections.
            Err(error) if error.is_told() => {
                outage.is_over(false);
                RETRY_INTERVAL
            }
            Err(error) => {
                let error = StartError::from(error);
                outage.tell(error.cause.kind(), &error, &error.hint);
                RETRY_INTERVAL
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock::sleep(jitter(pause)) => {}
        }
    }
}
