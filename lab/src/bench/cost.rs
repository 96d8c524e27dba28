//! CPU time and memory of Dwell, Redis, the broker and the load generator over an interval.

use super::metric::{self, Run};
use dwell::store::reader::redis_stats::RedisStats;
use dwell_testkit::usage::Usage;

/// The usage of Dwell, the broker, the load generator and Redis so far.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    pub(super) dwell: Option<Usage>,
    pub(super) broker: Option<Usage>,
    pub(super) generator: Option<Usage>,
    /// As Redis reports it.
    pub(super) vitals: RedisStats,
    /// The time, epoch µs.
    pub(super) at_us: i64,
}

/// The CPU time over an interval, µs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) dwell_us: Option<f64>,
    /// The main thread of Redis.
    pub(super) redis_us: f64,
    pub(super) broker_us: Option<f64>,
    pub(super) generator_us: Option<f64>,
    took_us: f64,
}

impl Meter {
    /// The cost since `before`.
    pub(super) fn since(&self, before: &Meter) -> Cost {
        let us = |now: Option<Usage>, before: Option<Usage>| Some((now? - before?).cpu_s() * 1e6);
        Cost {
            dwell_us: us(self.dwell, before.dwell),
            redis_us: self.vitals.cpu_us - before.vitals.cpu_us,
            broker_us: us(self.broker, before.broker),
            generator_us: us(self.generator, before.generator),
            took_us: (self.at_us - before.at_us) as f64,
        }
    }
}

impl Cost {
    /// Notes the cost of one job for Redis, Dwell and the broker.
    pub(super) fn note_per_job(&self, run: &mut Run, jobs: u64) {
        let each = |us: f64| us / jobs.max(1) as f64;
        run.note(&metric::REDIS_LIFE, each(self.redis_us));
        run.note_known(&metric::DWELL_CPU, self.dwell_us.map(each));
        run.note_known(&metric::BROKER_CPU, self.broker_us.map(each));
    }

    /// CPU of Dwell and of Redis over the whole time, percent of one core.
    pub(super) fn cores(&self) -> (Option<f64>, f64) {
        self.cores_over(self.took_us)
    }

    /// As above, for work that took this part of the time, µs.
    pub(super) fn cores_over(&self, took_us: f64) -> (Option<f64>, f64) {
        let percent = |us: f64| if took_us > 0.0 { us / took_us * 100.0 } else { 0.0 };
        (self.dwell_us.map(percent), percent(self.redis_us))
    }
}
