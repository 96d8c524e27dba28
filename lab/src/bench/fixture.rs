//! The parties of a measurement: servers, instances, a producer, a consumer, and the round between these two.

use std::sync::Arc;

use dwell_connectors::{Acks, Destination, Message, Role};
use parking_lot::Mutex;

use super::cost::Meter;
use super::machine::Machine;
use super::metric::{self, Run};
use super::round::Round;
use super::{IN, LINGER, LOOK, OUT, Options, TIMEOUT, fill};
use dwell::clock;
use dwell::store::redis_stats::RedisStats;
use dwell::store::{Store, Unobserved};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::environment::{Environment, Failure, Store as StoreOf};
use dwell_testkit::servers::{DwellServer, RedisOptions};
use dwell_testkit::usage::Usage;

/// How long Redis may write an append-only file anew, or a snapshot, before it is measured all the same.
const SAVING: std::time::Duration = std::time::Duration::from_secs(900);

/// Everybody who takes part.
pub(super) struct Fixture {
    pub(super) environment: Environment,
    pub(super) dwells: Vec<DwellServer>,
    /// To fill, to count what waits and to ask Redis what it spends; not the store of the instances.
    pub(super) store: Store,
    pub(super) producer: Producer,
    pub(super) consumer: Consumer,
    pub(super) round: Arc<Mutex<Round>>,
    pub(super) machine: Machine,
    pub(super) options: Options,
    rounds: u64,
}

impl Fixture {
    /// Servers, producer and consumer; no instance runs yet, and nothing waits.
    pub(super) async fn prepare(options: &Options) -> Result<Fixture, Failure> {
        let store = match &options.redis {
            Some(url) => StoreOf::At(url.clone()),
            None => {
                // What keeps Redis for more than 20 ms is kept by it, for `slow_calls`.
                let more = vec![("slowlog-log-slower-than".to_owned(), "20000".to_owned())];
                StoreOf::Private(RedisOptions { appendonly: options.aof.into(), more, ..RedisOptions::default() })
            }
        };
        let of_redis = format!("buckets = {}\n", options.buckets);
        let environment = Environment::start_with(options.broker, store, &[OUT], &of_redis).await?;
        environment.declare(&[IN], Role::Ingest).await?;
        environment.declare(&[OUT], Role::Letters).await?;
        let store = Store::open(&environment.settings().redis, &["main".to_owned()], Arc::new(Unobserved)).await?;
        let machine = Machine::of(&environment, &store).await?;
        let round = Arc::new(Mutex::new(Round::new(0, options.body)));
        let seen = round.clone();
        // What a consumer costs the broker is not what is measured, and the clients of others acknowledge nothing either.
        let consumer = Consumer::open(environment.broker(), OUT, Acks::None, move |at_us, messages| {
            let mut round = seen.lock();
            messages.iter().for_each(|message| round.arrived(&message.body, at_us));
        });
        let (consumer, producer) = (consumer.await?, Producer::open(environment.broker()).await?);
        let dwells = (0..options.instances.max(1)).map(|_| environment.dwell_to_start()).collect::<Result<Vec<_>, _>>()?;
        (options.say)(&format!("{}; {}", environment.describe(), machine));
        Ok(Fixture { environment, dwells, store, producer, consumer, round, machine, options: options.clone(), rounds: 0 })
    }

    /// The same with instances that run, and what `options.pending` asks for in the store.
    pub(super) async fn running(options: &Options) -> Result<Fixture, Failure> {
        let mut fixture = Self::prepare(options).await?;
        fixture.fill().await?;
        fixture.start().await?;
        Ok(fixture)
    }

    /// Puts the jobs that shall wait into the store; how many a second.
    pub(super) async fn fill(&mut self) -> Result<Option<f64>, Failure> {
        if self.options.pending == 0 {
            return Ok(None);
        }
        let rate = fill::far(&self.environment, &self.options).await?;
        self.saved().await?;
        Ok(Some(rate))
    }

    /// Starts the instances.
    pub(super) async fn start(&mut self) -> Result<(), Failure> {
        for dwell in &mut self.dwells {
            dwell.restart().await?;
        }
        Ok(())
    }

    /// Begins a new round: what arrives of the one before does not count any more.
    pub(super) fn new_round(&mut self) {
        self.rounds += 1;
        *self.round.lock() = Round::new(self.rounds, self.options.body);
    }

    /// Enters jobs that are due at one time, and sends them.
    pub(super) async fn send(&mut self, to: &str, jobs: u64, due_ms: i64) -> Result<(), Failure> {
        self.send_due(to, (0..jobs).map(move |_| due_ms)).await
    }

    /// As [`Fixture::send`], one for each of these times.
    pub(super) async fn send_due(&mut self, to: &str, dues_ms: impl Iterator<Item = i64> + Send + 'static) -> Result<(), Failure> {
        let round = self.round.clone();
        let messages = dues_ms.map(move |due_ms| request(round.lock().enter(due_ms), due_ms));
        self.producer.send(&Destination::new(to), messages).await?;
        self.producer.flush().await
    }

    /// Waits until so many jobs arrived, or none for too long.
    pub(super) async fn arrived(&mut self, jobs: u64) -> Result<(), Failure> {
        let (mut count, mut since) = (0, clock::now());
        loop {
            let now = self.round.lock().count();
            if now >= jobs {
                break;
            }
            if now > count {
                (count, since) = (now, clock::now());
            } else if clock::now().duration_since(since) > TIMEOUT {
                self.say(&format!("{now} of {jobs} arrived, and then none for {} s", TIMEOUT.as_secs()));
                break;
            }
            self.consumer.check().await?;
            clock::sleep(LOOK).await;
        }
        clock::sleep(LINGER).await;
        Ok(())
    }

    /// Waits until the store holds so many jobs, or until `deadline_ms` (epoch). True: it does, and there is time left.
    pub(super) async fn stored(&self, jobs: u64, deadline_ms: i64) -> Result<bool, Failure> {
        loop {
            let waiting = self.store.waiting().await?;
            if clock::wall_ms() >= deadline_ms {
                return Ok(false);
            }
            if waiting >= jobs {
                return Ok(true);
            }
            clock::sleep(LOOK).await;
        }
    }

    /// Waits while Redis writes its data anew: that is no part of what is measured.
    pub(super) async fn saved(&self) -> Result<RedisStats, Failure> {
        let began = clock::now();
        loop {
            let vitals = self.store.vitals().await?;
            if !vitals.is_saving || clock::now().duration_since(began) > SAVING {
                return Ok(vitals);
            }
            clock::sleep(LOOK * 10).await;
        }
    }

    pub(super) async fn meter(&self) -> Result<Meter, Failure> {
        Ok(Meter {
            dwell: Usage::of(self.pids()),
            broker: self.environment.broker_pid().and_then(|pid| Usage::of([pid])),
            generator: Usage::of([std::process::id()]),
            vitals: self.store.vitals().await?,
            at_us: clock::wall_us(),
        })
    }

    /// Notes the memory of one instance.
    #[allow(clippy::cast_precision_loss, reason = "bytes of a process, shared out")]
    pub(super) fn note_memory(&self, run: &mut Run) {
        if let Some(usage) = Usage::of(self.pids()) {
            let each = |bytes: u64| bytes as f64 / self.pids().count().max(1) as f64;
            run.note(&metric::RSS, each(usage.rss));
            run.note(&metric::PEAK_RSS, each(usage.peak_rss));
        }
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.dwells.iter().filter_map(DwellServer::pid)
    }

    pub(super) fn say(&self, text: &str) {
        (self.options.say)(text);
    }

    /// Ends everybody, in order.
    pub(super) async fn stop(mut self) -> Result<Machine, Failure> {
        for dwell in &mut self.dwells {
            dwell.stop().await?;
        }
        drop(self.consumer);
        self.environment.stop().await?;
        Ok(self.machine)
    }
}

/// A request as producers send it. Ids are left to Dwell.
pub(super) fn request(body: bytes::Bytes, due_ms: i64) -> Message {
    Message::new(body).with_header("delay-until", due_ms.to_string()).with_header("delay-target", OUT)
}
