//! Jobs and recurring schedules of brokers and queues that no instance serves. This is the only
//! metric whose label values are not in the settings: they were when the namespace first saw the
//! broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Labels;
use super::family::{gauge_value, one};
use crate::store::due_set::DueSet;

/// The number of stranded jobs and schedules, by broker.
#[derive(Debug, Clone)]
pub struct Stranded {
    gauges: Family<Labels, Gauge>,
    counts: Arc<Mutex<Counts>>,
}

/// The counts by the name of their sets: of the broker, or `=` and the queue.
#[derive(Debug, Default)]
struct Counts {
    brokers: BTreeMap<String, u64>,
    queues: BTreeMap<String, u64>,
    schedules: BTreeMap<String, u64>,
}

impl Counts {
    fn all(&self) -> [&BTreeMap<String, u64>; 3] {
        [&self.brokers, &self.queues, &self.schedules]
    }
}

impl Stranded {
    /// Zero for these brokers.
    pub(super) fn new(gauges: Family<Labels, Gauge>, brokers: &[&str]) -> Self {
        for name in brokers {
            gauges.get_or_create_owned(&one("broker", name));
        }
        Stranded { gauges, counts: Arc::default() }
    }

    /// Sets the counts of the jobs of brokers; other brokers have none.
    pub fn set(&self, counts: BTreeMap<String, u64>) {
        self.replace(|now| &mut now.brokers, counts);
    }

    /// Sets the counts of queues that the settings do not declare; their label is `=` and the name.
    pub fn set_queues(&self, counts: BTreeMap<String, u64>) {
        let named = |(queue, count): (String, u64)| (DueSet::Queue(&queue).to_string(), count);
        self.replace(|now| &mut now.queues, counts.into_iter().map(named).collect());
    }

    /// Sets the counts of the schedules of brokers, and of queues by `=` and their names.
    pub fn set_schedules(&self, counts: BTreeMap<String, u64>) {
        self.replace(|now| &mut now.schedules, counts);
    }

    fn replace(
        &self,
        part: fn(&mut Counts) -> &mut BTreeMap<String, u64>,
        counts: BTreeMap<String, u64>,
    ) {
        let mut now = self.counts.lock();
        let before = std::mem::replace(part(&mut now), counts);
        let changed: BTreeSet<&String> =
            before.keys().chain(now.all().into_iter().flat_map(BTreeMap::keys)).collect();
        for name in changed {
            let count = now.all().iter().filter_map(|counts| counts.get(name)).sum::<u64>();
            self.gauges.get_or_create_owned(&one("broker", name)).set(gauge_value(count));
        }
    }

    /// The counts of jobs by broker.
    #[must_use]
    pub fn get(&self) -> BTreeMap<String, u64> {
        self.counts.lock().brokers.clone()
    }

    /// The counts of schedules by broker, or `=` and the queue.
    #[must_use]
    pub fn schedules(&self) -> BTreeMap<String, u64> {
        self.counts.lock().schedules.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_schedules_of_a_broker_add_up() {
        let gauges = Family::<Labels, Gauge>::default();
        let stranded = Stranded::new(gauges.clone(), &["main"]);
        let of = |name: &str| gauges.get_or_create_owned(&one("broker", name)).get();
        let counts = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
        stranded.set(counts("old", 3));
        stranded.set_schedules(counts("old", 2));
        stranded.set_queues(counts("q", 1));
        assert_eq!((of("main"), of("old"), of("=q")), (0, 5, 1));
        stranded.set_schedules(counts("=q", 4));
        assert_eq!((of("old"), of("=q")), (3, 5));
        stranded.set(BTreeMap::new());
        stranded.set_queues(BTreeMap::new());
        assert_eq!((of("old"), of("=q")), (0, 4));
        assert_eq!((stranded.get().len(), stranded.schedules()), (0, counts("=q", 4)));
    }
}
