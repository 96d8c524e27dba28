//! The private servers of a measurement: Redis, perhaps a broker, and instances of `dwell run`.

use dwell_connectors::{Acks, Message};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::environment::{Environment, Result, Store};
use dwell_testkit::servers::{
    AppendFsync, BrokerKind, DwellServer, RedisOptions, RedisServer, find,
};
use dwell_testkit::usage::Usage;

use crate::chaos::system::Maker;

/// The servers. They stop when the value is dropped.
pub(crate) struct Place {
    environment: Option<Box<Environment>>,
    redis: Option<RedisServer>,
    pub(crate) instances: Vec<DwellServer>,
    consumers: Vec<Consumer>,
}

impl Place {
    /// Redis, and so many instances with these settings beside `[redis]`.
    pub(crate) async fn without_broker(instances: usize, settings: &str) -> Result<Place> {
        let redis = RedisServer::start(redis_options()).await?;
        let text = format!(
            "[redis]\nurls = [\"{}\"]\ndurability = \"memory\"\n\n{settings}\n",
            redis.url()
        );
        let instances = start(instances, &text).await?;
        Ok(Place { environment: None, redis: Some(redis), instances, consumers: Vec::new() })
    }

    /// Redis, a broker with these targets, and so many instances with these more settings.
    /// `absent`: a target that may be named and does not exist.
    pub(crate) async fn with_broker(
        instances: usize,
        kind: BrokerKind,
        targets: &[&str],
        absent: &str,
        settings: &str,
    ) -> Result<Place> {
        let allow = [targets, &[absent]].concat();
        let (store, of_redis) = (Store::Private(redis_options()), "durability = \"memory\"");
        let environment = Environment::start(kind, store, &allow, of_redis, None).await?;
        let nats = (kind == BrokerKind::Nats).then(|| environment.broker_port());
        let maker = Maker { broker: environment.broker().clone(), nats };
        for target in targets {
            maker.make(target).await?;
        }
        let text = format!("{}\n{settings}", environment.text());
        let instances = start(instances, &text).await?;
        let environment = Some(Box::new(environment));
        Ok(Place { environment, redis: None, instances, consumers: Vec::new() })
    }

    fn environment(&self) -> Result<&Environment> {
        Ok(self.environment.as_deref().ok_or("this scenario has no broker")?)
    }

    /// Passes each message of a destination to `seen`, with its time of receipt, epoch µs.
    pub(crate) async fn read(
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

    /// A producer of the broker.
    pub(crate) async fn producer(&self) -> Result<Producer> {
        Producer::open(self.environment()?.broker()).await
    }

    /// The ports of the HTTP APIs.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.instances.iter().map(DwellServer::http_port).collect()
    }

    /// The first of them.
    pub(crate) fn port(&self) -> u16 {
        self.instances[0].http_port()
    }

    fn redis(&self) -> Option<&RedisServer> {
        self.redis.as_ref().or_else(|| self.environment.as_ref()?.redis())
    }

    /// Redis and the first instance with their ports, for people.
    pub(crate) fn describe(&self) -> String {
        let redis = self.redis().map_or(0, |redis| redis.port());
        format!("redis-server on port {redis}, dwell on port {}", self.port())
    }

    /// The process ids of the first instance and of Redis.
    pub(crate) fn pids(&self) -> [Option<u32>; 2] {
        [self.instances[0].pid(), self.redis().and_then(|redis| redis.pid())]
    }

    /// The usage of the same so far.
    pub(crate) fn used(&self) -> [Usage; 2] {
        self.pids().map(|pid| Usage::of(pid).unwrap_or_default())
    }

    /// The sum of a counter without labels over the instances.
    pub(crate) async fn counted(&self, name: &str) -> Result<u64> {
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
    pub(crate) async fn stop(mut self) -> Result<()> {
        for consumer in &mut self.consumers {
            consumer.check().await?;
        }
        for instance in &mut self.instances {
            stop(instance).await?;
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

/// SIGKILL; an error if the instance had ended by itself.
pub(crate) fn kill(instance: &mut DwellServer) -> Result<()> {
    match instance.ended()? {
        Some(status) => Err(format!("dwell ended by itself with {status}").into()),
        None => Ok(instance.kill()?),
    }
}

/// SIGTERM; an error if the instance does not end well.
pub(crate) async fn stop(instance: &mut DwellServer) -> Result<()> {
    match instance.stop().await? {
        Some(status) if !status.success() => {
            Err(format!("dwell ended with {status} after SIGTERM").into())
        }
        _ => Ok(()),
    }
}

/// The options of a Redis with an append-only file.
pub(crate) fn redis_options() -> RedisOptions {
    RedisOptions { appendonly: Some(AppendFsync::EverySec), ..RedisOptions::default() }
}

async fn start(count: usize, text: &str) -> Result<Vec<DwellServer>> {
    let mut instances = Vec::new();
    for _ in 0..count {
        instances.push(DwellServer::start(find::dwell(), text).await?);
    }
    Ok(instances)
}
