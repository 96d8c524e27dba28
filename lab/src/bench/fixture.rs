//! The fixture of a measurement: servers, instances, a producer, a consumer, and the round between
//! these two.

use std::sync::Arc;

use dwell_connectors::{Acks, Destination, Role};
use parking_lot::Mutex;

use super::cost::Cost;
use super::machine::Machine;
use super::metric::{self, Run};
use super::round::{Round, RoundResult, request};
use super::{
    ARRIVAL_TIMEOUT, CHECK_INTERVAL, DUPLICATE_WAIT, JOB_TARGET, Options, REQUEST_DESTINATION, fill,
};
use dwell::clock;
use dwell::store::reader::redis_stats::RedisStats;
use dwell::store::{Store, Unobserved};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::environment::{Environment, Result, Store as StoreOf};
use dwell_testkit::servers::{DwellServer, RedisOptions};
use dwell_testkit::usage::Usage;

use crate::place::redis_options;

/// The longest wait for Redis to finish a rewrite of its append-only file or a snapshot.
const SAVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(900);

/// The fixture.
pub(super) struct Fixture {
    pub(super) environment: Environment,
    pub(super) dwells: Vec<DwellServer>,
    /// Fills, counts and asks Redis for its statistics. The instances have stores of their own.
    pub(super) store: Store,
    pub(super) producer: Producer,
    pub(super) consumer: Consumer,
    pub(super) round: Arc<Mutex<Round>>,
    pub(super) machine: Machine,
    pub(super) options: Options,
    rounds: u64,
}

impl Fixture {
    /// Starts servers, producer and consumer. No instance runs yet, and no job waits.
    pub(super) async fn prepare(options: &Options) -> Result<Fixture> {
        let store = match &options.redis {
            Some(url) => StoreOf::At(url.clone()),
            None => StoreOf::Private(RedisOptions {
                // Redis logs calls above 20 ms, for `slow_calls`.
                more: vec![("slowlog-log-slower-than".to_owned(), "20000".to_owned())],
                ..redis_options()
            }),
        };
        let Options { broker, buckets, distance, .. } = *options;
        let of_redis = format!("buckets = {buckets}\n");
        let environment =
            Environment::start(broker, store, &[JOB_TARGET], &of_redis, distance).await?;
        environment.declare(&[REQUEST_DESTINATION], Role::Ingest).await?;
        environment.declare(&[JOB_TARGET], Role::Letters).await?;
        let store =
            Store::open(&environment.settings().redis, &["main".to_owned()], Arc::new(Unobserved))
                .await?;
        let machine = Machine::of(&environment, &store).await?;
        let round = Arc::new(Mutex::new(Round::new(0, options.body)));
        let seen = round.clone();
        // The cost of the consumer's acknowledgements must not count, and the clients of other
        // schedulers do not acknowledge either.
        let consumer =
            Consumer::open(environment.broker(), JOB_TARGET, Acks::None, move |at_us, messages| {
                let mut round = seen.lock();
                messages.iter().for_each(|message| round.arrived(&message.body, at_us));
            });
        let (consumer, producer) = (consumer.await?, Producer::open(environment.broker()).await?);
        let dwells = (0..options.instances.max(1))
            .map(|_| environment.dwell_to_start())
            .collect::<Result<Vec<_>, _>>()?;
        (options.say)(&format!("{}; {}", environment.describe(), machine));
        Ok(Fixture {
            environment,
            dwells,
            store,
            producer,
            consumer,
            round,
            machine,
            options: options.clone(),
            rounds: 0,
        })
    }

    /// As [`Fixture::prepare`], with running instances and `options.pending` jobs in the store.
    pub(super) async fn running(options: &Options) -> Result<Fixture> {
        let mut fixture = Self::prepare(options).await?;
        fixture.fill().await?;
        fixture.start().await?;
        Ok(fixture)
    }

    /// Stores the jobs that only wait. Returns the rate.
    pub(super) async fn fill(&mut self) -> Result<Option<f64>> {
        if self.options.pending == 0 {
            return Ok(None);
        }
        let rate = fill::far(&self.environment, &self.options).await?;
        self.saved().await?;
        Ok(Some(rate))
    }

    /// Starts the instances.
    pub(super) async fn start(&mut self) -> Result<()> {
        for dwell in &mut self.dwells {
            dwell.restart().await?;
        }
        Ok(())
    }

    /// Starts a new round: later arrivals of the previous round do not count.
    pub(super) fn new_round(&mut self) {
        self.rounds += 1;
        *self.round.lock() = Round::new(self.rounds, self.options.body);
    }

    /// Enters jobs with one due time, and sends them.
    pub(super) async fn send(&mut self, to: &str, jobs: u64, due_ms: i64) -> Result<()> {
        self.send_due(to, (0..jobs).map(move |_| due_ms)).await
    }

    /// As [`Fixture::send`], with a due time for each job.
    pub(super) async fn send_due(
        &mut self,
        to: &str,
        dues_ms: impl Iterator<Item = i64> + Send + 'static,
    ) -> Result<()> {
        let round = self.round.clone();
        let messages = dues_ms.map(move |due_ms| request(round.lock().enter(due_ms), due_ms));
        self.producer.send(&Destination::new(to), messages).await?;
        self.producer.flush().await
    }

    /// Waits for this many arrivals, or until none arrives for too long.
    pub(super) async fn arrived(&mut self, jobs: u64) -> Result<()> {
        let (mut count, mut since) = (0, clock::now());
        loop {
            let now = self.round.lock().count();
            if now >= jobs {
                break;
            }
            if now > count {
                (count, since) = (now, clock::now());
            } else if clock::now().duration_since(since) > ARRIVAL_TIMEOUT {
                let secs = ARRIVAL_TIMEOUT.as_secs();
                self.say(&format!("{now} of {jobs} arrived, and then none for {secs} s"));
                break;
            }
            self.consumer.check().await?;
            clock::sleep(CHECK_INTERVAL).await;
        }
        clock::sleep(DUPLICATE_WAIT).await;
        Ok(())
    }

    /// The result of all jobs of the round.
    pub(super) fn result(&self) -> RoundResult {
        self.round.lock().result(i64::MAX)
    }

    /// Waits until the store holds this many jobs; false if it does not before `deadline_ms`
    /// (epoch).
    pub(super) async fn stored(&self, jobs: u64, deadline_ms: i64) -> Result<bool> {
        loop {
            let waiting = self.store.reader.waiting().await?;
            if clock::wall_ms() >= deadline_ms {
                return Ok(false);
            }
            if waiting >= jobs {
                return Ok(true);
            }
            clock::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Waits for Redis to finish a rewrite or a snapshot, which must not count.
    pub(super) async fn saved(&self) -> Result<RedisStats> {
        let began = clock::now();
        loop {
            let vitals = self.store.reader.vitals().await?;
            if !vitals.is_saving || clock::now().duration_since(began) > SAVE_TIMEOUT {
                return Ok(vitals);
            }
            clock::sleep(CHECK_INTERVAL * 10).await;
        }
    }

    /// The cost so far.
    pub(super) async fn cost(&self) -> Result<Cost> {
        let us = |usage: Option<Usage>| usage.map(|usage| usage.cpu_s() * 1e6);
        let broker = self.environment.broker_pid().and_then(|pid| Usage::of([pid]));
        Ok(Cost {
            dwell_us: us(Usage::of(self.pids())),
            broker_us: us(broker),
            generator_us: us(Usage::of([std::process::id()])),
            redis_us: self.store.reader.vitals().await?.cpu_us,
            wall_us: clock::wall_us() as f64,
        })
    }

    /// Notes the memory of one instance.
    pub(super) fn note_memory(&self, run: &mut Run) {
        if let Some(usage) = Usage::of(self.pids()) {
            let each = |bytes: u64| bytes as f64 / self.pids().count().max(1) as f64;
            run.note(&metric::RSS, each(usage.rss));
            run.note(&metric::PEAK_RSS, each(usage.peak_rss));
        }
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.dwells.iter().filter_map(|dwell| dwell.pid())
    }

    pub(super) fn say(&self, text: &str) {
        (self.options.say)(text);
    }

    /// Stops all processes in order. Returns the run with its machine.
    pub(super) async fn finish(mut self, run: Run) -> Result<Run> {
        for dwell in &mut self.dwells {
            dwell.stop().await?;
        }
        drop(self.consumer);
        self.environment.stop().await?;
        Ok(Run { machine: self.machine, ..run })
    }
}
