//! Jobs of brokers that no instance delivers to. This is the only metric whose label values are not
//! in the settings: they were when the namespace first saw the broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Labels;
use super::family::{gauge_value, one};
use crate::store::due_set::DueSet;

/// The number of stranded jobs, by broker.
#[derive(Debug, Clone)]
pub struct Stranded {
    gauges: Family<Labels, Gauge>,
    now: Arc<Mutex<BTreeMap<String, u64>>>,
    queues: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Stranded {
    /// Zero for these brokers.
    pub(super) fn new(gauges: Family<Labels, Gauge>, brokers: &[&str]) -> Self {
        for name in brokers {
            gauges.get_or_create_owned(&one("broker", name));
        }
        Stranded { gauges, now: Arc::default(), queues: Arc::default() }
    }

    /// Sets the counts; other brokers become zero.
    pub fn set(&self, counts: BTreeMap<String, u64>) {
        self.replace(&self.now, counts);
    }

    /// Sets the counts of queues that the settings do not declare; their label is `=` and the name.
    pub fn set_queues(&self, counts: BTreeMap<String, u64>) {
        self.replace(
            &self.queues,
            counts
                .into_iter()
                .map(|(queue, count)| (DueSet::Queue(&queue).to_string(), count))
                .collect(),
        );
    }

    fn replace(&self, counted: &Mutex<BTreeMap<String, u64>>, counts: BTreeMap<String, u64>) {
        let mut now = counted.lock();
        for name in now.keys().filter(|name| !counts.contains_key(*name)) {
            self.gauges.get_or_create_owned(&one("broker", name)).set(0);
        }
        for (name, count) in &counts {
            self.gauges.get_or_create_owned(&one("broker", name)).set(gauge_value(*count));
        }
        *now = counts;
    }

    /// The counts by broker.
    #[must_use]
    pub fn get(&self) -> BTreeMap<String, u64> {
        self.now.lock().clone()
    }
}
