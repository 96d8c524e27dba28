//! Outcomes on their way to the store: gathered by bucket, one call a bucket and kind, sent again until the store took them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::reconnect::Backoff;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::inbound::CALL_JOBS;
use crate::store::lease::{Bury, Held, Over, Release, Retry};

/// One call to the store.
#[derive(Debug, Clone)]
pub(super) enum Settle {
    /// Over.
    Complete(Over, Vec<Held>),
    /// Until the consumer's word, ttr in ms.
    Hold(Vec<(Held, u32)>),
    /// Back, nothing burned.
    Release(Vec<Release>),
    /// The next step, or the way to the dead letters.
    Retry(Vec<Retry>),
    /// Dead.
    Bury(Vec<Bury>),
}

impl Settle {
    /// How many jobs it settles.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        match self {
            Settle::Complete(_, jobs) => jobs.len(),
            Settle::Hold(jobs) => jobs.len(),
            Settle::Release(jobs) => jobs.len(),
            Settle::Retry(jobs) => jobs.len(),
            Settle::Bury(jobs) => jobs.len(),
        }
    }

    async fn call(&self, store: &Store, bucket: u16, broker: &str) -> Result<Vec<bool>, StoreError> {
        match self {
            Settle::Complete(over, jobs) => store.complete(bucket, jobs, *over).await,
            Settle::Hold(jobs) => store.hold(bucket, jobs).await,
            Settle::Release(jobs) => store.release(bucket, broker, jobs).await,
            Settle::Retry(jobs) => store.retry(bucket, broker, jobs).await,
            Settle::Bury(jobs) => store.bury(bucket, jobs).await,
        }
    }

    /// Settles, calling again until the store answers or `give_up`. Per job whether its lease still stood; `None` when given up, and then
    /// the leases run out by themselves. A call that failed may have settled them all the same: then no lease stands for the next one, which says
    /// so of the whole batch.
    pub(super) async fn run(&self, store: &Store, bucket: u16, broker: &str, give_up: &CancellationToken) -> Option<Vec<bool>> {
        let mut backoff = Backoff::link();
        let mut failed = false;
        loop {
            match self.call(store, bucket, broker).await {
                Ok(stood) if failed && !stood.contains(&true) => return Some(vec![true; stood.len()]),
                Ok(stood) => return Some(stood),
                Err(error) => tracing::warn!(broker, bucket, %error, "settling failed, trying again"),
            }
            failed = true;
            tokio::select! {
                () = give_up.cancelled() => return None,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
    }
}

/// Outcomes that are not on their way yet, by bucket.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    complete: BTreeMap<u16, Vec<Held>>,
    dropped: BTreeMap<u16, Vec<Held>>,
    hold: BTreeMap<u16, Vec<(Held, u32)>>,
    release: BTreeMap<u16, Vec<Release>>,
    retry: BTreeMap<u16, Vec<Retry>>,
    bury: BTreeMap<u16, Vec<Bury>>,
}

impl Gathered {
    /// The job is over.
    pub(super) fn complete(&mut self, bucket: u16, job: Held) {
        self.complete.entry(bucket).or_default().push(job);
    }

    /// The job was too late.
    pub(super) fn drop_late(&mut self, bucket: u16, job: Held) {
        self.dropped.entry(bucket).or_default().push(job);
    }

    /// The job waits for its consumer.
    pub(super) fn hold(&mut self, bucket: u16, job: Held, ttr_ms: u32) {
        self.hold.entry(bucket).or_default().push((job, ttr_ms));
    }

    /// The job goes back.
    pub(super) fn release(&mut self, bucket: u16, release: Release) {
        self.release.entry(bucket).or_default().push(release);
    }

    /// The attempt failed.
    pub(super) fn retry(&mut self, bucket: u16, retry: Retry) {
        self.retry.entry(bucket).or_default().push(retry);
    }

    /// The job is dead.
    pub(super) fn bury(&mut self, bucket: u16, bury: Bury) {
        self.bury.entry(bucket).or_default().push(bury);
    }

    /// The next call to make: the fullest lists are not preferred, the lowest bucket is; every list is reached as long as calls are made.
    pub(super) fn next(&mut self) -> Option<(u16, Settle)> {
        take(&mut self.complete)
            .map(|(bucket, jobs)| (bucket, Settle::Complete(Over::Fired, jobs)))
            .or_else(|| take(&mut self.hold).map(|(bucket, jobs)| (bucket, Settle::Hold(jobs))))
            .or_else(|| take(&mut self.retry).map(|(bucket, jobs)| (bucket, Settle::Retry(jobs))))
            .or_else(|| take(&mut self.release).map(|(bucket, jobs)| (bucket, Settle::Release(jobs))))
            .or_else(|| take(&mut self.bury).map(|(bucket, jobs)| (bucket, Settle::Bury(jobs))))
            .or_else(|| take(&mut self.dropped).map(|(bucket, jobs)| (bucket, Settle::Complete(Over::Dropped, jobs))))
    }
}

/// At most one call's worth of one bucket.
fn take<T>(lists: &mut BTreeMap<u16, Vec<T>>) -> Option<(u16, Vec<T>)> {
    let mut entry = lists.first_entry()?;
    let bucket = *entry.key();
    if entry.get().len() <= CALL_JOBS {
        return Some((bucket, entry.remove()));
    }
    let rest = entry.get_mut().split_off(CALL_JOBS);
    Some((bucket, std::mem::replace(entry.get_mut(), rest)))
}

/// What a settling task needs, shared.
#[derive(Clone)]
pub(super) struct Settler {
    /// The store.
    pub(super) store: Arc<Store>,
    /// The broker whose `due` the jobs go back to.
    pub(super) broker: Arc<str>,
    /// Ends settling where the store stays away.
    pub(super) give_up: CancellationToken,
}

impl Settler {
    /// Settles; answers what was settled and per job whether its lease still stood.
    pub(super) async fn run(self, bucket: u16, settle: Settle) -> (u16, Settle, Option<Vec<bool>>) {
        let stood = settle.run(&self.store, bucket, &self.broker, &self.give_up).await;
        (bucket, settle, stood)
    }
}
