//! Limits concurrent claims for each Redis master, so that a master that hangs delays only its own
//! buckets.

use std::collections::HashMap;

use crate::store::Store;
use crate::store::client::SlotLayout;
use crate::store::error::Class;

/// Concurrent claims on a single server: Redis works on the next while the dispatcher publishes the
/// last.
const MAX_CLAIMS: usize = 4;
/// Concurrent claims on each master of a cluster.
const MAX_CLAIMS_PER_MASTER: usize = 2;

/// The running claims of each master.
#[derive(Debug)]
pub(super) struct ClaimConcurrency {
    /// The index in `masters` of each bucket. Index 0 is the single server, or an unknown master.
    by_bucket: Vec<usize>,
    masters: Vec<Master>,
    by_address: HashMap<String, usize>,
    layout: Option<SlotLayout>,
}

#[derive(Debug, Default)]
struct Master {
    running: usize,
    /// The last claim was not answered: one claim at a time probes the master.
    unreachable: bool,
}

impl ClaimConcurrency {
    #[must_use]
    pub(super) fn new(buckets: u16) -> Self {
        ClaimConcurrency {
            by_bucket: vec![0; usize::from(buckets)],
            masters: vec![Master::default()],
            by_address: HashMap::new(),
            layout: None,
        }
    }

    /// Maps buckets to their masters again where the slot layout of the cluster changed.
    pub(super) fn follow(&mut self, store: &Store) {
        let Some(layout) = store.layout() else { return };
        if self.layout.as_ref().is_some_and(|known| known.is(&layout)) {
            return;
        }
        self.learn((0..store.keys().buckets()).map(|bucket| store.master_of(&layout, bucket)));
        self.layout = Some(layout);
    }

    fn learn(&mut self, homes: impl Iterator<Item = Option<String>>) {
        for (index, home) in self.by_bucket.iter_mut().zip(homes) {
            *index = home.map_or(0, |address| {
                *self.by_address.entry(address).or_insert_with(|| {
                    self.masters.push(Master::default());
                    self.masters.len() - 1
                })
            });
        }
    }

    /// Whether this bucket may be claimed from now.
    #[must_use]
    pub(super) fn is_free(&self, bucket: usize) -> bool {
        let index = self.by_bucket.get(bucket).copied().unwrap_or(0);
        let master = &self.masters[index];
        let max = match (index, master.unreachable) {
            (0, _) => MAX_CLAIMS,
            (_, false) => MAX_CLAIMS_PER_MASTER,
            (_, true) => 1,
        };
        master.running < max
    }

    /// Starts a claim. Returns the index of its master, and whether the claim is a probe.
    pub(super) fn begin(&mut self, bucket: u16) -> (usize, bool) {
        let index = self.by_bucket.get(usize::from(bucket)).copied().unwrap_or(0);
        self.masters[index].running += 1;
        (index, self.masters[index].unreachable)
    }

    /// Ends a claim on this master.
    pub(super) fn end(&mut self, index: usize, failed: Option<Class>) {
        let master = &mut self.masters[index];
        master.running -= 1;
        master.unreachable = index > 0 && matches!(failed, Some(Class::Io | Class::Timeout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(limits: &mut ClaimConcurrency, bucket: u16) -> Option<(usize, bool)> {
        limits.is_free(bucket.into()).then(|| limits.begin(bucket))
    }

    #[test]
    fn a_master_that_hangs_takes_no_claims_from_the_others() {
        let mut limits = ClaimConcurrency::new(9);
        limits.learn(
            (0..9).map(|bucket| Some(if bucket < 6 { "hangs" } else { "serves" }.to_owned())),
        );
        assert_eq!(
            [0, 1, 2].map(|bucket| begun(&mut limits, bucket)),
            [Some((1, false)), Some((1, false)), None]
        );
        assert_eq!(
            [6, 7, 8].map(|bucket| begun(&mut limits, bucket)),
            [Some((2, false)), Some((2, false)), None]
        );
        limits.end(1, Some(Class::Timeout));
        limits.end(1, Some(Class::Timeout));
        limits.end(2, None);
        assert_eq!(
            [3, 4, 8].map(|bucket| begun(&mut limits, bucket)),
            [Some((1, true)), None, Some((2, false))]
        );
        // Its slots move to the other master; a running claim ends on the master where it began.
        limits.learn((0..9).map(|_| Some("serves".to_owned())));
        assert_eq!(begun(&mut limits, 5), None);
        limits.end(2, None);
        assert_eq!(begun(&mut limits, 5), Some((2, false)));
        // The master answers again: its full limit applies.
        limits.end(1, None);
        limits.learn((0..9).map(|_| Some("hangs".to_owned())));
        assert_eq!(
            [0, 1, 2].map(|bucket| begun(&mut limits, bucket)),
            [Some((1, false)), Some((1, false)), None]
        );
    }

    #[test]
    fn damage_in_a_bucket_slows_no_other_and_one_server_has_all_the_claims() {
        let mut limits = ClaimConcurrency::new(9);
        assert!(
            (0..4).all(|bucket| begun(&mut limits, bucket) == Some((0, false)))
                && !limits.is_free(4)
        );
        limits.end(0, Some(Class::Timeout));
        assert_eq!(begun(&mut limits, 4), Some((0, false)));
        limits.learn((0..9).map(|_| Some("serves".to_owned())));
        let (master, _) = limits.begin(0);
        limits.end(master, Some(Class::Script));
        assert_eq!(
            [0, 1].map(|bucket| begun(&mut limits, bucket)),
            [Some((1, false)), Some((1, false))]
        );
    }
}
