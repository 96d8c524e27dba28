//! CPU time of Dwell, Redis, the broker and the load generator over an interval.

use super::metric::{self, Run};

/// CPU time, µs: so far, or over an interval. `None`: unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) dwell_us: Option<f64>,
    /// The main thread of Redis, as Redis reports it.
    pub(super) redis_us: f64,
    pub(super) broker_us: Option<f64>,
    pub(super) generator_us: Option<f64>,
    /// The time, epoch µs, or the length of the interval.
    pub(super) wall_us: f64,
}

impl Cost {
    /// The cost since `before`.
    pub(super) fn since(&self, before: &Cost) -> Cost {
        let us = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        Cost {
            dwell_us: us(self.dwell_us, before.dwell_us),
            redis_us: self.redis_us - before.redis_us,
            broker_us: us(self.broker_us, before.broker_us),
            generator_us: us(self.generator_us, before.generator_us),
            wall_us: self.wall_us - before.wall_us,
        }
    }

    /// Notes the cost of one job for Redis, Dwell and the broker.
    pub(super) fn note_per_job(&self, run: &mut Run, jobs: u64) {
        let each = |us: f64| us / jobs.max(1) as f64;
        run.note(&metric::REDIS_LIFE, each(self.redis_us));
        run.note_known(&metric::DWELL_CPU, self.dwell_us.map(each));
        run.note_known(&metric::BROKER_CPU, self.broker_us.map(each));
    }

    /// CPU of Dwell and of Redis over the whole time, percent of one core.
    pub(super) fn cores(&self) -> (Option<f64>, f64) {
        self.cores_over(self.wall_us)
    }

    /// As above, for work that took this part of the time, µs.
    pub(super) fn cores_over(&self, took_us: f64) -> (Option<f64>, f64) {
        let percent = |us: f64| if took_us > 0.0 { us / took_us * 100.0 } else { 0.0 };
        (self.dwell_us.map(percent), percent(self.redis_us))
    }
}
