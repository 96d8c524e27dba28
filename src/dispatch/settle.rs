//! Outcomes on their way to the store: gathered by bucket, one call a bucket and kind, sent again until the store took them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::reconnect::Backoff;
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::store::inbound::CALL_JOBS;
use crate::store::settle::{Bury, Held, Over, Release, Retry, Stood};

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

/// The kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Complete,
    Drop,
    Hold,
    Release,
    Retry,
    Bury,
}

impl Settle {
    fn kind(&self) -> Kind {
        match self {
            Settle::Complete(Over::Fired, _) => Kind::Complete,
            Settle::Complete(Over::Dropped, _) => Kind::Drop,
            Settle::Hold(_) => Kind::Hold,
            Settle::Release(_) => Kind::Release,
            Settle::Retry(_) => Kind::Retry,
            Settle::Bury(_) => Kind::Bury,
        }
    }

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

    async fn call(&self, store: &Store, bucket: u16, broker: &str) -> Result<Vec<Stood>, StoreError> {
        match self {
            Settle::Complete(over, jobs) => store.complete(bucket, jobs, *over).await,
            Settle::Hold(jobs) => store.hold(bucket, jobs).await,
            Settle::Release(jobs) => store.release(bucket, broker, jobs).await,
            Settle::Retry(jobs) => store.retry(bucket, broker, jobs).await,
            Settle::Bury(jobs) => store.bury(bucket, jobs).await,
        }
    }

    /// Settles, calling again until the store answers or `give_up`; where the bucket is damaged, until the leases are over, since time does not heal
    /// it. What became of each job; `None` when given up, and then the leases run out by themselves. A call that failed may have settled them all the same: then no lease stands for the next one, which says
    /// so of the whole batch.
    async fn run(&self, bucket: u16, Settler { store, broker, lease, give_up }: &Settler) -> Option<Vec<Stood>> {
        let (begun, mut backoff) = (clock::now(), Backoff::link());
        let broker = &**broker;
        let mut failed = false;
        loop {
            match self.call(store, bucket, broker).await {
                Ok(stood) if failed && !stood.contains(&Stood::Settled) => return Some(vec![Stood::Settled; stood.len()]),
                Ok(stood) => return Some(stood),
                Err(error) if error.class == Class::Script && begun.elapsed() >= *lease => {
                    let hint = "run `dwell fsck --repair`; what was delivered will be delivered again";
                    tracing::error!(broker, bucket, %error, hint, jobs = self.len(), "settling failed until the leases were over");
                    return None;
                }
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
    /// Calls that are not answered: one a bucket and kind, so that a bucket that takes nothing holds up no other, no kind waits behind another,
    /// and batches grow meanwhile.
    out: BTreeSet<(Kind, u16)>,
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

    /// A call to make, of a bucket and kind that has none out: it is out until `answered`.
    pub(super) fn next(&mut self) -> Option<(u16, Settle)> {
        let out = &self.out;
        let next = take(&mut self.complete, Kind::Complete, out)
            .map(|(bucket, jobs)| (bucket, Settle::Complete(Over::Fired, jobs)))
            .or_else(|| take(&mut self.hold, Kind::Hold, out).map(|(bucket, jobs)| (bucket, Settle::Hold(jobs))))
            .or_else(|| take(&mut self.retry, Kind::Retry, out).map(|(bucket, jobs)| (bucket, Settle::Retry(jobs))))
            .or_else(|| take(&mut self.release, Kind::Release, out).map(|(bucket, jobs)| (bucket, Settle::Release(jobs))))
            .or_else(|| take(&mut self.bury, Kind::Bury, out).map(|(bucket, jobs)| (bucket, Settle::Bury(jobs))))
            .or_else(|| take(&mut self.dropped, Kind::Drop, out).map(|(bucket, jobs)| (bucket, Settle::Complete(Over::Dropped, jobs))))?;
        self.out.insert((next.1.kind(), next.0));
        Some(next)
    }

    /// This call was answered, or given up.
    pub(super) fn answered(&mut self, bucket: u16, settle: &Settle) {
        self.out.remove(&(settle.kind(), bucket));
    }
}

/// At most one call's worth of one bucket that has no call of this kind out.
fn take<T>(lists: &mut BTreeMap<u16, Vec<T>>, kind: Kind, out: &BTreeSet<(Kind, u16)>) -> Option<(u16, Vec<T>)> {
    let (&bucket, jobs) = lists.iter_mut().find(|(bucket, _)| !out.contains(&(kind, **bucket)))?;
    let rest = if jobs.len() > CALL_JOBS { jobs.split_off(CALL_JOBS) } else { Vec::new() };
    let jobs = std::mem::replace(jobs, rest);
    if lists.get(&bucket).is_some_and(Vec::is_empty) {
        lists.remove(&bucket);
    }
    Some((bucket, jobs))
}

/// What a settling task needs, shared.
#[derive(Clone)]
pub(super) struct Settler {
    /// The store.
    pub(super) store: Arc<Store>,
    /// The broker whose `due` the jobs go back to.
    pub(super) broker: Arc<str>,
    /// How long a claim holds.
    pub(super) lease: Duration,
    /// Ends settling where the store stays away.
    pub(super) give_up: CancellationToken,
}

impl Settler {
    /// Settles; answers what was settled, and what became of each job.
    pub(super) async fn run(self, bucket: u16, settle: Settle) -> (u16, Settle, Option<Vec<Stood>>) {
        let stood = settle.run(bucket, &self).await;
        (bucket, settle, stood)
    }
}
