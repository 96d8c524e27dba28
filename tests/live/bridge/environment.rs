//! The environment of these tests: private servers, streams, settings, and a reader that enters
//! every arrival into the ledger.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dwell::config::{self, Overrides, Settings};
use dwell::store::Store;
use dwell::store::reader::counts::Counts;
use dwell::store::reader::list::Query;
use dwell::store::reader::lookup::JobState;
use dwell_connectors::{Acks, BrokerConfig, Message, SourceOptions, Start};
use dwell_testkit::servers::{DwellServer, NatsOptions, NatsServer, RedisOptions, RedisServer};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use super::load::{Load, Producer};
use crate::support::jetstream::{self, make_consumer, make_stream};
use crate::support::{metric, namespace, wait_until, wait_within};
use dwell_testkit::ledger::{Arrival, Ledger};

/// Where the jobs of the ledger go.
pub(crate) const TARGET: &str = "orders.new";
/// The time for which JetStream waits for a sign of life of the holder of a request. The time is
/// short, so that requests of a crashed instance come back soon, and an instance that holds
/// requests through an outage has to say so.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(5);
/// The time that a story may take to settle. Far more than any takes on a busy machine.
pub(crate) const SETTLE: Duration = Duration::from_secs(120);
/// JetStream's least: a message that comes again later is stored again, so that no repeat of ours
/// hides behind the server's own deduplication.
pub(crate) const NO_DEDUPE: Duration = Duration::from_millis(100);

/// The ledger, shared by all that write into it.
pub(crate) type SharedLedger = Arc<Mutex<Ledger>>;

/// Servers, streams, settings, and the ledger with its reader. Dropped, all of it ends.
pub(crate) struct Environment<R = RedisServer> {
    pub(crate) redis: R,
    pub(crate) nats: NatsServer,
    pub(crate) settings: Settings,
    pub(crate) ledger: SharedLedger,
    text: String,
    _readers: JoinSet<()>,
}

impl Environment {
    /// Everything but Dwell, with these settings (`delivery.max_in_flight = 64`, a line each)
    /// beside those that lead to the servers. The target's stream forgets messages at once: no
    /// repeat hides behind its deduplication.
    pub(crate) async fn new(test: &str, redis: RedisOptions, more: &str) -> Environment {
        Environment::with_dedupe(test, redis, more, NO_DEDUPE).await
    }

    /// As [`Environment::new`], with JetStream's deduplication over this window.
    pub(crate) async fn with_dedupe(
        test: &str,
        redis: RedisOptions,
        more: &str,
        window: Duration,
    ) -> Environment {
        let redis = RedisServer::start(redis).await.unwrap();
        let lines = format!("redis.urls = [\"{}\"]", redis.url());
        Environment::over(test, redis, &lines, more, window).await
    }

    /// The ids that are claimed now.
    pub(crate) async fn in_flight(&self) -> HashSet<String> {
        Claims::of(self).await.ids().await
    }

    /// Waits until this many jobs are claimed.
    pub(crate) async fn until_in_flight(&self, least: usize) {
        let claims = Claims::of(self).await;
        wait_within(SETTLE, &format!("{least} jobs are in flight"), async || {
            (claims.ids().await.len() >= least).then_some(())
        })
        .await;
    }

    /// Stops the instance in the middle of deliveries, by SIGSTOP, when it has this many jobs in
    /// flight, `but` these: all that it has claimed then.
    pub(crate) async fn freeze_in_flight(
        &self,
        dwell: &DwellServer,
        least: usize,
        but: &HashSet<String>,
    ) -> HashSet<String> {
        let claims = Claims::of(self).await;
        wait_within(SETTLE, &format!("it has {least} jobs in flight"), async || {
            if claims.ids().await.difference(but).count() < least {
                return None;
            }
            dwell.freeze().unwrap();
            let mut ids = claims.ids().await;
            // Once more: a claim that it had sent may have been read by Redis after the first look,
            // and so may a settlement: only jobs that are claimed at the second look stay claimed.
            let stay = claims.ids().await;
            if stay.difference(but).count() < least {
                dwell.thaw().unwrap();
                return None;
            }
            ids.extend(stay);
            Some(ids)
        })
        .await
    }
}

impl<R> Environment<R> {
    /// As [`Environment::with_dedupe`], on this Redis, to which these settings lead.
    pub(crate) async fn over(
        test: &str,
        redis: R,
        lines: &str,
        more: &str,
        window: Duration,
    ) -> Environment<R> {
        let nats = NatsServer::start(NatsOptions::default()).await.unwrap();
        let port = nats.port();
        let window = json!({ "duplicate_window": u64::try_from(window.as_nanos()).unwrap() });
        make_stream(
            port,
            "REQUESTS",
            &["delay.in"],
            json!({ "retention": "workqueue", "discard": "new" }),
        )
        .await;
        make_stream(port, "ORDERS", &[TARGET], window).await;
        make_stream(port, "LETTERS", &["delay.dead", "delay.rejected", "replies"], json!({})).await;
        make_consumer(port, "REQUESTS", "dwell", "delay.in", ACK_WAIT).await;
        make_consumer(port, "ORDERS", "ledger", TARGET, ACK_WAIT).await;

        let text = format!(
            "{lines}\nredis.namespace = \"{}\"\nbrokers.main.type = \"nats\"\nbrokers.main.url = \"{}\"\n\
             brokers.main.allow = [\"orders.>\", \"replies\"]\ningest.main.broker = \"main\"\n{more}\n",
            namespace(test),
            nats.url()
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let settings = config::load_from(Some(file.path()), &[], &Overrides::default()).unwrap();
        let ledger = SharedLedger::default();
        let mut readers = JoinSet::new();
        readers.spawn(read(settings.brokers["main"].connector.clone(), ledger.clone()));
        Environment { redis, nats, settings, ledger, text, _readers: readers }
    }

    /// The settings file of its instances.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Starts an instance and returns it ready.
    pub(crate) async fn dwell(&self) -> DwellServer {
        DwellServer::start(env!("CARGO_BIN_EXE_dwell").into(), &self.text).await.unwrap()
    }

    /// An instance that is not started yet.
    pub(crate) fn prepared(&self) -> DwellServer {
        self.prepared_as(env!("CARGO_BIN_EXE_dwell").into())
    }

    /// The same of another program.
    pub(crate) fn prepared_as(&self, program: std::path::PathBuf) -> DwellServer {
        DwellServer::prepare(program, &self.text).unwrap()
    }

    /// The broker, for producers and consumers.
    pub(crate) fn broker(&self) -> BrokerConfig {
        self.settings.brokers["main"].connector.clone()
    }

    /// A producer that enters what it sends into the ledger.
    pub(crate) fn producer(&self) -> Producer {
        Producer::new(self.broker(), self.ledger.clone())
    }

    /// A producer that sends this many jobs of mixed delays each tenth of a second, until told to
    /// stop.
    pub(crate) fn load(&self, per_tick: usize) -> Load {
        Load::start(self.producer(), per_tick)
    }

    /// Waits until this many different jobs have arrived.
    pub(crate) async fn until_arrived(&self, count: usize) {
        wait_within(SETTLE, &format!("{count} jobs have arrived"), async || {
            (self.ledger.lock().distinct() >= count).then_some(())
        })
        .await;
    }

    /// Waits until every request is taken, no job waits or is out, and the reader has all that is
    /// on the target. Says what is left: the dead.
    pub(crate) async fn settled(&self) -> Counts {
        let port = self.nats.port();
        wait_within(SETTLE, "every request is taken", async || {
            (jetstream::messages(port, "REQUESTS").await == 0).then_some(())
        })
        .await;
        let store = self.store().await;
        let counts = wait_within(SETTLE, "no job waits or is out", async || {
            let counts = store.reader.counts(&[]).await.ok()?;
            (counts.scheduled.iter().chain(&counts.reserved).sum::<u64>() == 0).then_some(counts)
        })
        .await;
        let on_target = jetstream::messages(port, "ORDERS").await;
        wait_within(SETTLE, "all is read", async || {
            (self.ledger.lock().total() as u64 >= on_target).then_some(())
        })
        .await;
        counts
    }

    /// A link to the store beside Dwell's. A busy machine may need longer than the store's own
    /// patience.
    pub(crate) async fn store(&self) -> Store {
        wait_until("a link to the store", async || Store::attach(&self.settings.redis).await.ok())
            .await
    }

    /// Waits until Dwell has read this many requests that it has not acknowledged.
    pub(crate) async fn until_held(&self, least: u64) {
        let port = self.nats.port();
        wait_within(SETTLE, &format!("{least} requests are held"), async || {
            let consumer = jetstream::consumer(port, "REQUESTS", "dwell").await;
            (consumer["num_ack_pending"].as_u64().unwrap() >= least).then_some(())
        })
        .await;
    }

    /// Returns the number of requests that JetStream delivered again.
    pub(crate) async fn redelivered(&self) -> u64 {
        let consumer = jetstream::consumer(self.nats.port(), "REQUESTS", "dwell").await;
        let delivered = |what: &str| consumer["delivered"][what].as_u64().unwrap();
        delivered("consumer_seq") - delivered("stream_seq")
    }
}

/// A look at what is claimed.
pub(crate) struct Claims {
    store: Store,
}

impl Claims {
    pub(crate) async fn of(env: &Environment) -> Claims {
        Claims { store: env.store().await }
    }

    pub(crate) async fn ids(&self) -> HashSet<String> {
        let all = Query { limit: usize::MAX, ..Query::new(JobState::Reserved) };
        self.store
            .reader
            .list(&all)
            .await
            .unwrap()
            .jobs
            .into_iter()
            .map(|job| job.id.as_str().to_owned())
            .collect()
    }
}

/// The value of one series of an instance now.
pub(crate) async fn scraped(dwell: &DwellServer, series: &str) -> u64 {
    let value = metric(&dwell.metrics().await.unwrap(), series);
    assert!(value >= 0.0 && value.fract() == 0.0, "{series} {value}");
    value as u64
}

/// `dwell_publish_total` of one outcome.
pub(crate) async fn published(dwell: &DwellServer, outcome: &str) -> u64 {
    scraped(dwell, &format!("dwell_publish_total{{broker=\"main\",outcome=\"{outcome}\"}}")).await
}

/// Enters what arrives on the target, over restarts of the broker.
async fn read(broker: BrokerConfig, ledger: SharedLedger) {
    loop {
        let options = SourceOptions {
            topic: TARGET.to_owned(),
            group: "ledger".to_owned(),
            max_batch: 1024,
            max_batch_bytes: 16 << 20,
            max_unsettled: 8192,
            max_unsettled_bytes: 64 << 20,
            acks: Acks::Explicit,
            start: Start::Earliest,
            publishes_to: Vec::new(),
            expired_queue: None,
        };
        // Each try owns its part: the future is sent to another thread.
        let broker = broker.clone();
        let open = move || {
            let (broker, options) = (broker.clone(), options.clone());
            async move { broker.source(options).await.ok() }
        };
        let source = wait_within(SETTLE, "a link for the reader", open).await;
        while let Ok(batch) = source.recv().await {
            batch.messages.into_iter().for_each(|message| enter(&mut ledger.lock(), message));
            if source.ack(batch.id).await.is_err() {
                break;
            }
        }
    }
}

fn enter(ledger: &mut Ledger, message: Message) {
    let number = |name| message.headers.text(name).unwrap().parse::<i64>().unwrap();
    let arrival = Arrival {
        position: message.position.as_ref().unwrap().offset,
        at_ms: message.timestamp_ms.unwrap(),
        attempt: u32::try_from(number("delayed-attempt")).unwrap(),
        due_ms: number("delayed-due"),
        body: message.body.clone(),
    };
    ledger.arrived(message.headers.text("delayed-id").unwrap(), arrival);
}
