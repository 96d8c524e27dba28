//! Rates per second of this instance, over the last ten seconds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::clock::{self, Instant};
use crate::telemetry::{Metrics, Totals};

/// The interval between readings of the counters.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The readings that are kept: a rate is taken between the first and the last.
const MAX_READINGS: usize = 11;

/// Rates of the counters. Clones share them.
#[derive(Debug, Clone)]
pub struct Rates {
    metrics: Metrics,
    readings: Arc<Mutex<VecDeque<(Instant, Totals)>>>,
}

impl Rates {
    /// Rates of these counters; zero until [`Rates::run`] has read them twice.
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        Rates { metrics, readings: Arc::default() }
    }

    /// Reads the counters until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            self.read();
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(SAMPLE_INTERVAL) => {}
            }
        }
    }

    fn read(&self) {
        let mut readings = self.readings.lock();
        readings.push_back((clock::now(), self.metrics.totals()));
        if readings.len() > MAX_READINGS {
            readings.pop_front();
        }
    }

    /// Requests that became jobs (`scheduled`) or were refused (`rejected`), attempts that were
    /// confirmed, jobs that died; per second.
    #[must_use]
    pub fn per_second(&self) -> BTreeMap<&'static str, f64> {
        let readings = self.readings.lock();
        let (seconds, first, last) = match (readings.front(), readings.back()) {
            (Some((from, first)), Some((to, last))) => {
                (to.duration_since(*from).as_secs_f64(), *first, *last)
            }
            _ => (0.0, Totals::default(), Totals::default()),
        };
        let rate = |of: fn(&Totals) -> u64| {
            let count = of(&last).saturating_sub(of(&first));
            // Counts of ten seconds are far below 2^52.
            if seconds > 0.0 { (count as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 }
        };
        BTreeMap::from([
            ("scheduled", rate(|totals| totals.scheduled)),
            ("rejected", rate(|totals| totals.rejected)),
            ("confirmed", rate(|totals| totals.confirmed)),
            ("dead", rate(|totals| totals.dead)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use dwell_connectors::Destination;

    use super::*;
    use crate::events::{JobEvent, Observer, PublishOutcome};
    use crate::job::{Action, JobId, Verdict};
    use crate::telemetry::events::attempted;

    #[tokio::test(start_paused = true)]
    async fn rates_are_those_of_the_last_seconds() {
        let metrics = Metrics::new(["main"], ["main"]);
        let rates = Rates::new(metrics.clone());
        assert_eq!(rates.per_second()["scheduled"], 0.0);
        rates.read();
        let (id, to) = (&JobId::random(), &Destination::new("orders.a"));
        let (ingest, action, verdict) = ("main", Action::Add, Verdict::Added);
        for _ in 0..100 {
            metrics.observe(&JobEvent::Received { ingest, id, action, verdict });
        }
        for (outcome, count) in [(PublishOutcome::Confirmed, 5), (PublishOutcome::Refused, 7)] {
            (0..count).for_each(|_| metrics.observe(&attempted(id, to, outcome, false)));
        }
        clock::sleep(Duration::from_secs(2)).await;
        rates.read();
        assert_eq!(
            rates.per_second(),
            BTreeMap::from([
                ("confirmed", 2.5),
                ("dead", 0.0),
                ("rejected", 0.0),
                ("scheduled", 50.0)
            ])
        );
        for _ in 0..MAX_READINGS {
            clock::sleep(SAMPLE_INTERVAL).await;
            rates.read();
        }
        assert_eq!(rates.per_second()["scheduled"], 0.0);
    }
}
