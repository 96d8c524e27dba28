//! Drain rates for several numbers of instances and buckets, measured in turns, so that they share
//! the machine and the time.

use super::machine::Machine;
use super::metric::{self, Run, over};
use super::{Options, drain};
use dwell_testkit::environment::Failure;

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

/// One drain at each point, compared with the first point.
///
/// # Errors
/// The servers or the connectors failed. Wrong jobs are in the results.
pub async fn run(
    options: &Options,
    points: &[Point],
    jobs: u64,
) -> Result<Vec<(Run, Machine)>, Failure> {
    let mut runs: Vec<(Run, Machine)> = Vec::new();
    for Point { instances, buckets } in points {
        let options = Options { instances: *instances, buckets: *buckets, ..options.clone() };
        let (mut run, machine) = Box::pin(drain::run(&options, jobs, false)).await?;
        let cpu =
            |run: &Run| Some(run.value(&metric::DWELL_CPU)? + run.value(&metric::REDIS_LIFE)?);
        let drain = |run: &Run| run.value(&metric::DRAIN).unwrap_or_default();
        let first =
            runs.first().map_or((drain(&run), cpu(&run)), |(first, _)| (drain(first), cpu(first)));
        run.note(&metric::AGAINST_FIRST, over(drain(&run), first.0));
        run.note_known(
            &metric::CPU_AGAINST_FIRST,
            cpu(&run).zip(first.1).map(|(own, first)| over(own, first)),
        );
        runs.push((run, machine));
    }
    Ok(runs)
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
