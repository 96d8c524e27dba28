//! The servers of a scenario: Redis, perhaps a broker, and instances of `dwell run`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::delayed_headers::{ATTEMPT, ID};
use dwell_connectors::{Acks, Message, Role};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::environment::{Environment, Result, Store};
use dwell_testkit::jetstream;
use dwell_testkit::servers::{
    AppendFsync, BrokerKind, DwellServer, RedisOptions, RedisServer, find,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::checker::Receipt;

/// JetStream forgets ids after so long, ns: its deduplication must hide no copy.
const DUPLICATE_WINDOW_NS: u64 = 100_000_000;
/// The interval between two looks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The deliveries, in the order of their arrival.
pub(super) type Receipts = Arc<Mutex<Vec<Receipt>>>;

/// The servers. They stop when the value is dropped.
pub(super) struct System {
    environment: Option<Environment>,
    redis: Option<RedisServer>,
    pub(super) instances: Vec<DwellServer>,
    consumers: Vec<Consumer>,
}

impl System {
    /// Redis, and so many instances with these settings beside `[redis]`.
    pub(super) async fn without_broker(instances: usize, settings: &str) -> Result<System> {
        let redis = RedisServer::start(redis_options()).await?;
        let text =
            format!("[redis]\nurls = [\"{}\"]\ndurability = \"memory\"\n\n{settings}", redis.url());
        let instances = start(instances, &text).await?;
        Ok(System { environment: None, redis: Some(redis), instances, consumers: Vec::new() })
    }

    /// Redis, a broker with these targets, and so many instances with these more settings.
    /// `absent`: a target that may be named and does not exist.
    pub(super) async fn with_broker(
        instances: usize,
        kind: BrokerKind,
        targets: &[&str],
        absent: &str,
        settings: &str,
    ) -> Result<System> {
        let allow = [targets, &[absent]].concat();
        let (store, of_redis) = (Store::Private(redis_options()), "durability = \"memory\"");
        let environment = Environment::start(kind, store, &allow, of_redis, None).await?;
        for target in targets {
            make(&environment, kind, target).await?;
        }
        let text = format!("{}\n{settings}", environment.text());
        let instances = start(instances, &text).await?;
        let environment = Some(environment);
        Ok(System { environment, redis: None, instances, consumers: Vec::new() })
    }

    fn environment(&self) -> Result<&Environment> {
        Ok(self.environment.as_ref().ok_or("this scenario has no broker")?)
    }

    /// Passes each message of a destination to `seen`, with its time of receipt, epoch µs.
    pub(super) async fn read(
        &mut self,
        topic: &str,
        mut seen: impl FnMut(i64, &Message) + Send + 'static,
    ) -> Result<()> {
        let broker = self.environment()?.broker();
        let consumer = Consumer::open(broker, topic, Acks::None, move |at_us, messages| {
            messages.iter().for_each(|message| seen(at_us, message));
        });
        let consumer = consumer.await?;
        self.consumers.push(consumer);
        Ok(())
    }

    /// Adds what arrives at a target to these.
    pub(super) async fn receive(&mut self, target: &str, receipts: &Receipts) -> Result<()> {
        let receipts = receipts.clone();
        let seen = move |at_us, message: &Message| {
            let receipt = Receipt {
                id: header(message, ID).unwrap_or_default(),
                number: 0,
                attempt: number(message, ATTEMPT),
                at_us,
            };
            receipts.lock().push(receipt);
        };
        self.read(target, seen).await
    }

    /// A producer of the broker.
    pub(super) async fn producer(&self) -> Result<Producer> {
        Producer::open(self.environment()?.broker()).await
    }

    /// The ports of the HTTP APIs.
    pub(super) fn ports(&self) -> Vec<u16> {
        self.instances.iter().map(DwellServer::http_port).collect()
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self, instance: usize) -> Result<()> {
        let instance = &mut self.instances[instance];
        match instance.ended()? {
            Some(status) => Err(format!("dwell ended by itself with {status}").into()),
            None => Ok(instance.kill()?),
        }
    }

    /// The sum of a counter without labels over the instances.
    pub(super) async fn counted(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for instance in &self.instances {
            let metrics = instance.metrics().await?;
            let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value = value.and_then(|value| value.trim().parse::<u64>().ok());
            sum += value.ok_or_else(|| format!("the metrics of dwell have no {name}"))?;
        }
        Ok(sum)
    }

    /// Returns the error of a consumer that stopped by itself; else stops all in order.
    pub(super) async fn stop(mut self) -> Result<()> {
        for consumer in &mut self.consumers {
            consumer.check().await?;
        }
        for instance in &mut self.instances {
            if let Some(status) = instance.stop().await?
                && !status.success()
            {
                return Err(format!("dwell ended with {status} after SIGTERM").into());
            }
        }
        drop(self.consumers);
        if let Some(environment) = self.environment {
            environment.stop().await?;
        }
        if let Some(redis) = &mut self.redis {
            redis.stop().await?;
        }
        Ok(())
    }
}

fn redis_options() -> RedisOptions {
    RedisOptions { appendonly: Some(AppendFsync::EverySec), ..RedisOptions::default() }
}

async fn start(count: usize, text: &str) -> Result<Vec<DwellServer>> {
    let mut instances = Vec::new();
    for _ in 0..count {
        instances.push(DwellServer::start(find::dwell(), text).await?);
    }
    Ok(instances)
}

/// Creates a target.
async fn make(environment: &Environment, kind: BrokerKind, target: &str) -> Result<()> {
    if kind != BrokerKind::Nats {
        return environment.declare(&[target], Role::Letters).await;
    }
    let name = format!("LAB_{}", target.replace('.', "_"));
    let call = format!("STREAM.CREATE.{name}");
    let config =
        json!({ "name": name, "subjects": [target], "duplicate_window": DUPLICATE_WINDOW_NS });
    let config = config.to_string();
    let link = jetstream::call(environment.broker_port(), None, &call, &config);
    let answer = jetstream::answer(link).await?;
    if answer["error"].is_null() {
        return Ok(());
    }
    Err(format!("nats: {call}: {}", answer["error"]).into())
}

/// The text of a header.
pub(super) fn header(message: &Message, name: &str) -> Option<String> {
    Some(message.headers.get(name)?.written()?.into_owned())
}

/// The number of a header; 0 if there is none.
pub(super) fn number<T: std::str::FromStr + Default>(message: &Message, name: &str) -> T {
    header(message, name).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// How many jobs arrived, each counted once.
pub(super) fn distinct(receipts: &Receipts) -> usize {
    let receipts = receipts.lock();
    receipts.iter().map(|receipt| receipt.id.as_str()).collect::<HashSet<_>>().len()
}

/// Waits until there are so many, or until none is added for so long.
pub(super) async fn grown(wanted: usize, patience: Duration, count: impl Fn() -> usize) {
    let (mut last, mut since) = (0, clock::now());
    loop {
        let now = count();
        if now >= wanted || since.elapsed() > patience {
            return;
        }
        if now > last {
            (last, since) = (now, clock::now());
        }
        clock::sleep(CHECK_INTERVAL).await;
    }
}
