//! The highest number of jobs, and of leases in each state, during a fault.

use std::time::Duration;

use dwell::clock;

use crate::chaos::history::Leases;
use crate::chaos::system::{Error, System};

/// The interval between two queries of Redis.
const QUERY_INTERVAL: Duration = Duration::from_millis(2);
/// Long enough for a query during it.
const VISIBLE_DURATION: Duration = Duration::from_millis(30);

/// Waits after a freeze before a kill, so that the jobs in flight are counted.
pub(crate) async fn let_it_be_seen() {
    clock::sleep(VISIBLE_DURATION).await;
}

/// The result of this future, and the most jobs and leases in flight just before it and during it,
/// as far as Redis answered.
pub(super) async fn counted<T>(
    system: &System,
    doing: impl Future<Output = Result<T, Error>>,
) -> Result<(T, Leases), Error> {
    let mut most = system.redis.census.count(i64::MAX).await.leases;
    let done = {
        let watching = async {
            loop {
                most = most.most(system.redis.census.count(i64::MAX).await.leases);
                clock::sleep(QUERY_INTERVAL).await;
            }
        };
        tokio::select! {
            done = doing => done,
            never = watching => never,
        }
    };
    Ok((done?, most))
}
