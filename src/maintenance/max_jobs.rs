//! Counts the jobs of the queues with `max_jobs`, and tells which are full.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dwell_store::maintenance::counting::Counting;
use dwell_store::maintenance::counts::pause_after;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::Queues;
use crate::request::FullQueues;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::reader::queues::QueueCounts;

/// The shortest interval between counts: a queue may exceed its limit for as long.
const BOUNDED_COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest pause after a count, however long it took.
const MIN_PAUSE: Duration = Duration::from_millis(500);
/// Up to so many queues are counted by their names, without a look at which queues there are.
const MAX_NAMED_QUEUES: usize = 32;

/// The queues with `max_jobs` that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bounded {
    /// Queues that the settings name: few, whatever callers do.
    Named,
    /// Queues that match a pattern, of which a caller may make many.
    ByPattern,
}

impl Bounded {
    fn of(name: &str) -> Bounded {
        if name.contains('*') { Bounded::ByPattern } else { Bounded::Named }
    }
}

/// The pause after a count that took so long. A count that waits for a master that hangs delays the
/// next one no more.
fn rest_of_interval(took: Duration) -> Duration {
    BOUNDED_COUNT_INTERVAL.saturating_sub(took).max(MIN_PAUSE)
}

/// The agent that finds full queues.
pub(super) struct MaxJobs {
    store: Arc<Store>,
    rules: Arc<Queues>,
    full_queues: FullQueues,
}

impl MaxJobs {
    /// Makes an agent; [`MaxJobs::run`] starts it. `full_queues` is told which queues are full.
    #[must_use]
    pub(super) fn new(store: Arc<Store>, rules: Arc<Queues>, full_queues: FullQueues) -> Self {
        MaxJobs { store, rules, full_queues }
    }

    /// Counts until told to stop.
    pub(super) async fn run(self, stop: CancellationToken) {
        let full = Mutex::default();
        tokio::join!(
            self.count_bounded_on(&stop, Bounded::Named, &full),
            self.count_bounded_on(&stop, Bounded::ByPattern, &full),
        );
        // Without such a queue there is nothing to count.
        stop.cancelled().await;
    }

    /// Counts the queues that may become full by themselves: many other queues must not delay it.
    async fn count_bounded_on(
        &self,
        stop: &CancellationToken,
        bounded: Bounded,
        full: &Mutex<[HashSet<String>; 2]>,
    ) {
        if self
            .rules
            .iter()
            .all(|rules| rules.max_jobs().is_none() || bounded != Bounded::of(&rules.name))
        {
            return;
        }
        let mut counting = Counting::new(self.store.clone());
        loop {
            let began = clock::now();
            let pause = match self.count_bounded(&mut counting, bounded).await {
                Ok((queues, sets)) => {
                    let mut full = full.lock();
                    full[bounded as usize] = queues;
                    self.full_queues.set(full.iter().flatten().cloned().collect());
                    rest_of_interval(began.elapsed()).max(pause_after(sets))
                }
                Err(error) => {
                    tracing::debug!(%error, "the jobs of queues with max_jobs could not be counted");
                    BOUNDED_COUNT_INTERVAL
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
        }
    }

    /// Counts the queues that may become full. Returns the full queues, and the number of sets
    /// counted.
    async fn count_bounded(
        &self,
        counting: &mut Counting,
        bounded: Bounded,
    ) -> Result<(HashSet<String>, usize), StoreError> {
        let is_of = move |name: &str| bounded == Bounded::of(name);
        let named: Vec<String> = self
            .rules
            .iter()
            .filter(|rules| rules.max_jobs().is_some() && is_of(&rules.name))
            .map(|rules| rules.name.clone())
            .collect();
        let (counts, sets) = if bounded == Bounded::Named && named.len() <= MAX_NAMED_QUEUES {
            let sets = named.len() * usize::from(self.store.keys().buckets());
            (counting.named(&named).await?, sets)
        } else {
            let rules = self.rules.clone();
            let is_wanted = move |queue: &str| {
                rules
                    .get(queue)
                    .is_some_and(|rules| rules.max_jobs().is_some() && is_of(&rules.name))
            };
            let counted = counting.active(is_wanted).await?;
            (counted.queues.into_values().collect(), counted.sets)
        };
        let is_full = |counts: &QueueCounts| {
            self.most(&counts.queue)
                .is_some_and(|most| counts.scheduled + counts.ready + counts.reserved >= most)
        };
        Ok((counts.into_iter().filter(is_full).map(|counts| counts.queue).collect(), sets))
    }

    fn most(&self, queue: &str) -> Option<u64> {
        self.rules.get(queue).and_then(|rules| rules.max_jobs())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use dwell_testkit::servers::{RedisOptions, RedisServer};

    use super::super::tests::Masters;
    use super::*;
    use crate::config::{QueueRules, Redis};
    use crate::job::{Due, Job, JobId};
    use crate::request::NewJob;
    use crate::store::Unobserved;

    #[test]
    fn the_sets_that_are_counted_a_second_stay_few() {
        let pauses =
            [0, 4000, 10_000].map(|sets| BOUNDED_COUNT_INTERVAL.max(pause_after(sets)).as_millis());
        assert_eq!(pauses, [1000, 1000, 2500]);
    }

    fn rules(name: &str, max_jobs: u64) -> QueueRules {
        QueueRules { name: name.to_owned(), max_jobs, ..QueueRules::default() }
    }

    #[tokio::test]
    async fn queues_by_a_pattern_are_counted_apart_from_those_by_name() {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let store = Arc::new(
            Store::open(&Redis::new(server.url()), &[], Arc::new(Unobserved)).await.unwrap(),
        );
        let buckets = usize::from(store.keys().buckets());
        let rules = Arc::new(Queues::new([rules("emails", 1), rules("mine.*", 1)]));
        let full_queues = FullQueues::default();
        let maintenance = MaxJobs::new(store.clone(), rules, full_queues.clone());
        // More than one call learns at a time.
        let many: Vec<String> = (0..200).map(|number| format!("mine.{number}")).collect();
        let of = |queue: &str| {
            NewJob::new(Job::for_queue(queue, "x"), Due::In(3_600_000)).id(queue.parse().unwrap())
        };
        let jobs: Vec<NewJob> = many.iter().map(String::as_str).chain(["emails"]).map(of).collect();
        store.jobs.schedule(&jobs).await.unwrap();

        let mut counting = Counting::new(store.clone());
        let named = maintenance.count_bounded(&mut counting, Bounded::Named).await.unwrap();
        assert_eq!(
            named,
            (HashSet::from(["emails".to_owned()]), buckets),
            "the many cost this count nothing"
        );
        let (by_pattern, sets) =
            maintenance.count_bounded(&mut counting, Bounded::ByPattern).await.unwrap();
        assert_eq!(by_pattern, many.iter().cloned().collect());
        assert!(sets >= many.len(), "{sets}");

        let stop = CancellationToken::new();
        let running = tokio::spawn(maintenance.run(stop.clone()));
        let all_full = async {
            while full_queues.full().len() < many.len() + 1 {
                tokio::task::yield_now().await;
            }
        };
        clock::timeout(Duration::from_secs(30), all_full)
            .await
            .expect("the queues of both kinds are full");
        stop.cancel();
        running.await.unwrap();
    }

    #[test]
    fn a_count_is_part_of_its_interval() {
        let pause = |took| rest_of_interval(Duration::from_millis(took)).as_millis();
        assert_eq!([0, 100, 500, 5000].map(pause), [1000, 900, 500, 500]);
    }

    #[tokio::test]
    async fn queues_are_full_by_the_jobs_of_other_masters_while_one_hangs() {
        let masters = Masters::new().await;
        let Masters { store, first, others, .. } = &masters;
        let [early, late] = [&others[..2], &others[2..22]];
        let before = [(&first[0], "emails"), (&first[1], "mine.a")];
        let of = |id: &JobId, queue: &str| {
            NewJob::new(Job::for_queue(queue.to_owned(), "x"), Due::In(3_600_000)).id(id.clone())
        };
        let full_before = [(&early[0], "early"), (&early[1], "early.a")];
        let jobs: Vec<NewJob> =
            before.iter().chain(&full_before).map(|(id, queue)| of(id, queue)).collect();
        store.jobs.schedule(&jobs).await.unwrap();
        let declared = [("early", 1), ("early.*", 1), ("emails", 11), ("mine.*", 11)];
        let declared = declared.map(|(name, most)| rules(name, most));
        let full_queues = FullQueues::default();
        let rules = Arc::new(Queues::new(declared));
        let maintenance = MaxJobs::new(store.clone(), rules, full_queues.clone());
        let stop = CancellationToken::new();
        let running = tokio::spawn(maintenance.run(stop.clone()));
        let until_full = async |count: usize| {
            while full_queues.full().len() < count {
                tokio::task::yield_now().await;
            }
        };
        clock::timeout(Duration::from_secs(30), until_full(2)).await.expect("all were counted");
        masters.freeze_first();
        // With the job that was counted on the first master, either queue is full.
        let queues = ["emails", "mine.a"].into_iter().cycle();
        let jobs: Vec<NewJob> = late.iter().zip(queues).map(|(id, queue)| of(id, queue)).collect();
        tokio::select! {
            () = async {
                store.jobs.schedule(&jobs).await.unwrap();
                until_full(4).await;
            } => {}
            () = masters.first_is_given_up() => panic!("the counts waited for the first master"),
        }
        masters.cluster.nodes[0].thaw().unwrap();
        stop.cancel();
        running.await.unwrap();
    }
}
