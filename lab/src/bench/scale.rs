//! Drain rates for several numbers of instances and buckets, measured in turns, so that they share
//! the machine and the time.

use super::metric::{self, Run, over};

/// A number of instances and of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The number of `dwell run`.
    pub instances: usize,
    /// Buckets of the namespace.
    pub buckets: u16,
}

/// Every number of instances with the first number of buckets, then every other number of buckets
/// with the first number of instances.
pub fn points(instances: &[usize], buckets: &[u16]) -> Vec<Point> {
    let (Some(&one), Some(&usual)) = (instances.first(), buckets.first()) else {
        return Vec::new();
    };
    let over_instances = instances.iter().map(|&instances| Point { instances, buckets: usual });
    let over_buckets = buckets.iter().skip(1).map(|&buckets| Point { instances: one, buckets });
    over_instances.chain(over_buckets).collect()
}

/// Compares the drain at each point with that at the first one.
pub fn compare(runs: &mut [Run]) {
    let drain = |run: &Run| run.value(&metric::DRAIN).unwrap_or_default();
    let cpu = |run: &Run| Some(run.value(&metric::DWELL_CPU)? + run.value(&metric::REDIS_LIFE)?);
    let Some(first) = runs.first() else { return };
    let (first_drain, first_cpu) = (drain(first), cpu(first));
    for run in runs {
        run.note(&metric::AGAINST_FIRST, over(drain(run), first_drain));
        let share = cpu(run).zip(first_cpu).map(|(own, first)| over(own, first));
        run.note_known(&metric::CPU_AGAINST_FIRST, share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_vary_one_thing_at_a_time() {
        let shown: Vec<_> = points(&[1, 2, 4], &[16, 1, 64])
            .iter()
            .map(|point| (point.instances, point.buckets))
            .collect();
        assert_eq!(shown, [(1, 16), (2, 16), (4, 16), (1, 1), (1, 64)]);
        assert!(points(&[], &[16]).is_empty());
    }
}
