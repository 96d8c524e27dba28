//! Registers metrics, and makes a handle for each label value.

use std::sync::Arc;

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::Labels;
use crate::telemetry::labels::Label;

/// A handle for each value of a set of label values, found by its index.
#[derive(Debug)]
pub(super) struct PerLabel<M>(Arc<[M]>);

impl<M> PerLabel<M> {
    pub(super) fn new<L: Label>(metric: impl FnMut(L) -> M) -> Self {
        PerLabel(L::ALL.iter().copied().map(metric).collect())
    }

    pub(super) fn of<L: Label>(&self, value: L) -> &M {
        &self.0[value.index()]
    }
}

impl<M> Clone for PerLabel<M> {
    fn clone(&self) -> Self {
        PerLabel(Arc::clone(&self.0))
    }
}

/// Registers a metric and returns it. The registry adds the prefix, a full stop to the help, and
/// `_total` to counters.
pub(super) fn add<M: Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// The same with a unit, which becomes part of the name.
pub(super) fn add_in<M: Metric + Clone>(
    registry: &mut Registry,
    unit: Unit,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register_with_unit(name, help, unit, metric.clone());
    metric
}

pub(super) fn histogram(buckets: &[f64]) -> Histogram {
    Histogram::new(buckets.iter().copied())
}

pub(super) fn one(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

pub(super) fn gauge_value(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
