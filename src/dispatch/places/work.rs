//! The calls to the store for places, beside the loop.

use std::collections::BTreeMap;

use super::line::Parked;
use crate::job::JobId;
use crate::policy::limit::Turn;
use crate::store::Store;
use crate::store::call::CALL_JOBS;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::places::{PlaceAnswer, PlaceCall, PlaceLimit};
use crate::store::wake_up::WakeUp;

/// A call that is to be made. A limit is named by its place among the limits of the broker.
pub(super) enum Work {
    /// Takes and gives back places.
    Change(Vec<(usize, PlaceCall)>),
    /// Gives back the places of what is not out any more.
    Judge(usize, PlaceLimit),
    /// Has jobs of these buckets be due.
    Hasten(BTreeMap<u16, Vec<(JobId, Turn)>>),
}

/// A call that was answered.
pub(in crate::dispatch) enum PlaceWork {
    Changed(Vec<(usize, PlaceCall)>, Result<Vec<PlaceAnswer>, StoreError>),
    /// So many places of the limit were given back.
    Judged(usize, usize),
    /// These buckets have jobs that are due.
    Hastened(Vec<u16>),
}

impl Work {
    /// Has these jobs be due now.
    pub(super) fn hasten(jobs: Vec<Parked>) -> Work {
        let mut buckets: BTreeMap<u16, Vec<(JobId, Turn)>> = BTreeMap::new();
        for Parked { bucket, id, turn, .. } in jobs {
            buckets.entry(bucket).or_default().push((id, turn));
        }
        Work::Hasten(buckets)
    }

    pub(super) async fn run(self, store: &Store, broker: &str) -> PlaceWork {
        match self {
            Work::Change(mut calls) => {
                let changes: Vec<PlaceCall> = calls.iter().map(|(_, call)| call.clone()).collect();
                let answers = store.places(&changes).await;
                if answers.is_ok() {
                    // Only what was taken is needed again.
                    calls.iter_mut().for_each(|(_, call)| call.back = Vec::new());
                }
                PlaceWork::Changed(calls, answers)
            }
            Work::Judge(limit, of) => {
                let judged = store.verify_places(&of).await.unwrap_or_else(|error| {
                    tracing::debug!(broker, %error, "places could not be judged");
                    0
                });
                PlaceWork::Judged(limit, judged)
            }
            Work::Hasten(buckets) => PlaceWork::Hastened(hasten(store, broker, buckets).await),
        }
    }
}

/// The buckets with jobs that are due now. An error leaves its jobs to come back by themselves.
async fn hasten(
    store: &Store,
    broker: &str,
    buckets: BTreeMap<u16, Vec<(JobId, Turn)>>,
) -> Vec<u16> {
    let mut calls = Vec::new();
    for (bucket, jobs) in &buckets {
        calls.extend(jobs.chunks(CALL_JOBS).map(|jobs| hasten_some(store, broker, *bucket, jobs)));
    }
    let mut due: Vec<u16> =
        futures_util::future::join_all(calls).await.into_iter().flatten().collect();
    due.dedup();
    let due_ms = store.now_ms();
    let head = |bucket: &u16| WakeUp {
        bucket: *bucket,
        broker: DueSet::Broker(broker).to_string(),
        due_ms,
    };
    let wake_ups: Vec<WakeUp> = due.iter().map(head).collect();
    if let Err(error) = store.wake_others(&wake_ups).await {
        tracing::debug!(%error, "wake-ups were not sent, this instance claims the jobs");
    }
    due
}

/// One call for jobs of this bucket. The bucket, if any of them is due now.
async fn hasten_some(
    store: &Store,
    broker: &str,
    bucket: u16,
    jobs: &[(JobId, Turn)],
) -> Option<u16> {
    match store.hasten(bucket, broker, jobs).await {
        Ok(count) => (count > 0).then_some(bucket),
        Err(error) => {
            tracing::debug!(broker, bucket, %error, "jobs that wait for places were not called");
            None
        }
    }
}

#[cfg(test)]
mod tests;
