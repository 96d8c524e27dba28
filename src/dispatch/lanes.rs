//! How many claims are out at once: of each master of a cluster, so that one that hangs keeps nobody waiting but its own buckets.

use std::collections::HashMap;

use crate::store::Store;
use crate::store::error::Class;
use crate::store::link::Layout;

/// Claims that are out at once: Redis works on the next while the dispatcher publishes the last.
const CLAIMS_MAX: usize = 4;
/// The same of each master of a cluster: there are several.
const CLAIMS_OF_MASTER: usize = 2;

/// The claims that are out, by who is asked.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Of each bucket. The first lane is that of the only server, and of buckets whose master is not known.
    of: Vec<usize>,
    lanes: Vec<Lane>,
    by_place: HashMap<String, usize>,
    layout: Option<Layout>,
}

#[derive(Debug, Default)]
struct Lane {
    out: usize,
    /// The last claim there was not answered: one at a time tries whether it is back.
    away: bool,
}

impl Lanes {
    /// Nobody is asked for anything yet.
    #[must_use]
    pub(super) fn new(buckets: u16) -> Self {
        Lanes { of: vec![0; usize::from(buckets)], lanes: vec![Lane::default()], by_place: HashMap::new(), layout: None }
    }

    /// Follows the slots of a cluster to other masters.
    pub(super) fn follow(&mut self, store: &Store) {
        let Some(layout) = store.layout() else { return };
        if self.layout.as_ref().is_some_and(|known| known.is(&layout)) {
            return;
        }
        self.learn((0..store.keys().buckets()).map(|bucket| store.home(&layout, bucket)));
        self.layout = Some(layout);
    }

    fn learn(&mut self, homes: impl Iterator<Item = Option<String>>) {
        for (of, home) in self.of.iter_mut().zip(homes) {
            *of = home.map_or(0, |place| {
                *self.by_place.entry(place).or_insert_with(|| {
                    self.lanes.push(Lane::default());
                    self.lanes.len() - 1
                })
            });
        }
    }

    /// Whether this bucket may be claimed from now.
    #[must_use]
    pub(super) fn is_free(&self, bucket: usize) -> bool {
        let at = self.of.get(bucket).copied().unwrap_or(0);
        let lane = &self.lanes[at];
        let most = match (at, lane.away) {
            (0, _) => CLAIMS_MAX,
            (_, false) => CLAIMS_OF_MASTER,
            (_, true) => 1,
        };
        lane.out < most
    }

    /// A claim goes out: its lane, and whether it only tries whether somebody is there.
    pub(super) fn begin(&mut self, bucket: u16) -> (usize, bool) {
        let at = self.of.get(usize::from(bucket)).copied().unwrap_or(0);
        self.lanes[at].out += 1;
        (at, self.lanes[at].away)
    }

    /// It came back.
    pub(super) fn end(&mut self, at: usize, failed: Option<Class>) {
        let lane = &mut self.lanes[at];
        lane.out -= 1;
        lane.away = at > 0 && matches!(failed, Some(Class::Io | Class::Timeout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(lanes: &mut Lanes, bucket: u16) -> Option<(usize, bool)> {
        lanes.is_free(bucket.into()).then(|| lanes.begin(bucket))
    }

    #[test]
    fn a_master_that_hangs_takes_no_claims_from_the_others() {
        let mut lanes = Lanes::new(9);
        lanes.learn((0..9).map(|bucket| Some(if bucket < 6 { "hangs" } else { "serves" }.to_owned())));
        assert_eq!([0, 1, 2].map(|bucket| begun(&mut lanes, bucket)), [Some((1, false)), Some((1, false)), None]);
        assert_eq!([6, 7, 8].map(|bucket| begun(&mut lanes, bucket)), [Some((2, false)), Some((2, false)), None]);
        lanes.end(1, Some(Class::Timeout));
        lanes.end(1, Some(Class::Timeout));
        lanes.end(2, None);
        assert_eq!([3, 4, 8].map(|bucket| begun(&mut lanes, bucket)), [Some((1, true)), None, Some((2, false))]);
        // Its slots went to the other one; what is out still ends where it began.
        lanes.learn((0..9).map(|_| Some("serves".to_owned())));
        assert_eq!(begun(&mut lanes, 5), None);
        lanes.end(2, None);
        assert_eq!(begun(&mut lanes, 5), Some((2, false)));
        // It answers again: as many as ever.
        lanes.end(1, None);
        lanes.learn((0..9).map(|_| Some("hangs".to_owned())));
        assert_eq!([0, 1, 2].map(|bucket| begun(&mut lanes, bucket)), [Some((1, false)), Some((1, false)), None]);
    }

    #[test]
    fn damage_in_a_bucket_slows_no_other_and_one_server_has_all_the_claims() {
        let mut lanes = Lanes::new(9);
        assert!((0..4).all(|bucket| begun(&mut lanes, bucket) == Some((0, false))) && !lanes.is_free(4));
        lanes.end(0, Some(Class::Timeout));
        assert_eq!(begun(&mut lanes, 4), Some((0, false)));
        lanes.learn((0..9).map(|_| Some("serves".to_owned())));
        let (lane, _) = lanes.begin(0);
        lanes.end(lane, Some(Class::Script));
        assert_eq!([0, 1].map(|bucket| begun(&mut lanes, bucket)), [Some((1, false)), Some((1, false))]);
    }
}
