//! The heartbeat: tells the fleet that this instance lives, and follows the fleet.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::fleet::Fleet;
use crate::store::Store;

/// The interval of the heartbeat of an instance: well under the 10 s after which the instance
/// counts as dead.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// Sends heartbeats and follows the fleet until told to stop, then leaves it.
pub async fn heartbeat(store: Arc<Store>, fleet: watch::Sender<Fleet>, stop: CancellationToken) {
    let me = fleet.borrow().me().to_owned();
    loop {
        match store.beat(&me).await {
            Ok(living) => {
                let instances = living.len();
                if fleet.send_if_modified(|fleet| fleet.set_living(living)) {
                    tracing::info!(instances, "the number of living instances changed");
                }
            }
            Err(error) => tracing::debug!(%error, "no heartbeat"),
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = clock::sleep(HEARTBEAT_INTERVAL) => {}
        }
    }
    if let Err(error) = store.leave(&me).await {
        tracing::debug!(%error, "could not leave the fleet; this instance counts as alive for 10 s more");
    }
}
