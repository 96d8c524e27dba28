//! The loop over the buckets of one master: when to look, and at which buckets.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Spawner;
use super::bucket::Bucket;
use super::zone_data::Renewal;
use crate::clock::{self, Instant};
use crate::store::error::StoreError;
use crate::store::schedules::heads::{Heads, Look};

/// The least time between two looks: what is due within shares a look. Half of the time by which
/// occurrences are made ahead.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// The least time between two looks because of schedules that this process put or resumed.
const PUT_PAUSE: Duration = Duration::from_millis(50);

/// Buckets that are looked at together.
pub(super) struct Group<'a> {
    spawner: &'a Spawner,
    buckets: Vec<Bucket<'a>>,
    renewal: Renewal<'a>,
}

impl<'a> Group<'a> {
    pub(super) fn new(spawner: &'a Spawner, buckets: &[u16]) -> Self {
        let of_numbers = buckets.iter().map(|number| Bucket::new(spawner, *number));
        let renewal = Renewal::new(&spawner.store, buckets);
        Group { spawner, buckets: of_numbers.collect(), renewal }
    }

    /// Makes what is due until told to stop.
    /// `puts` changes when this process puts or resumes a schedule: its time may come before all
    /// others.
    pub(super) async fn run(mut self, mut puts: watch::Receiver<()>, stop: &CancellationToken) {
        loop {
            let begun = clock::now();
            self.look(begun, stop).await;
            self.renewal.step().await;
            let next = self.buckets.iter().map(|bucket| bucket.look_at).min().unwrap_or(begun);
            let next = next.min(self.renewal.next_at()).max(begun + LOOK_PAUSE);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep_until(next) => {}
                Ok(()) = puts.changed() => {
                    // Many puts share a look. What is due meanwhile does not wait for it.
                    clock::sleep_until(next.min(begun + PUT_PAUSE)).await;
                    self.buckets.iter_mut().for_each(|bucket| bucket.look_at = clock::now());
                }
            }
            if stop.is_cancelled() {
                return;
            }
        }
    }

    /// Makes what is due in the buckets whose time for a look has come, side by side.
    async fn look(&mut self, now: Instant, stop: &CancellationToken) {
        let mut buckets: Vec<&mut Bucket<'a>> =
            self.buckets.iter_mut().filter(|bucket| bucket.look_at <= now).collect();
        let looks: Vec<Look> = buckets.iter_mut().map(|bucket| bucket.look(now)).collect();
        let heads = heads(self.spawner, &looks).await;
        let works = buckets.into_iter().zip(looks).zip(heads);
        join_all(works.map(|((bucket, look), heads)| bucket.work(look, heads, stop))).await;
    }
}

/// The due schedules of these buckets.
async fn heads(spawner: &Spawner, looks: &[Look]) -> Vec<Result<Heads, StoreError>> {
    let schedules = &spawner.store.schedules;
    match schedules.heads(looks).await {
        Ok(heads) => heads.into_iter().map(Ok).collect(),
        Err(error) if error.is_away() || looks.len() == 1 => {
            looks.iter().map(|_| Err(error.clone())).collect()
        }
        // A bucket is damaged or has moved: look at each by itself.
        Err(_) => {
            let each = looks.iter().map(|look| async move {
                let heads = schedules.heads(std::slice::from_ref(look)).await;
                heads.map(|mut heads| heads.pop().unwrap_or_default())
            });
            join_all(each).await
        }
    }
}
