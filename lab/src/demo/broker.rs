//! `dwell-lab demo --broker nats`, `kafka` or `amqp`: a Redis, a broker, and a `dwell run` between
//! producer and consumers.

use dwell::clock;
use dwell_connectors::{Acks, Destination, Message, Role};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::environment::{Environment, Result, Store};
use dwell_testkit::servers::{BrokerKind, RedisOptions};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::api::Api;
use super::event::{Event, Seen};
use super::expectations::Summary;
use super::expectations::messages::Place;
use super::plan::{self, Planned};
use super::screen::Screen;
use super::stage::{Scene, Stage};

/// Runs the demo.
///
/// # Errors
/// The servers, Dwell or the connectors failed. Wrong jobs are in the summary.
pub async fn run(kind: BrokerKind, silent: bool) -> Result<Summary> {
    let plan = plan::plan();
    let screen = Screen::new(silent, plan.len());
    let allow = [plan::ORDERS, plan::INVOICES, plan::PARCELS, plan::VERDICTS];
    let redis = Store::Private(RedisOptions::default());
    let environment = Environment::start(kind, redis, &allow, "", None).await?;
    environment.declare(&[plan::ORDERS, plan::VERDICTS], Role::Letters).await?;
    screen.say(&format!("servers   {}", environment.describe()))?;
    let mut dwell = environment.dwell_to_start()?;
    dwell.restart().await?;
    let settings = environment.settings();
    let ingest = &settings.ingest["main"];
    screen.say(&format!("dwell     {} -> redis -> targets", ingest.topic))?;

    let (seen, events) = mpsc::unbounded_channel();
    let mut scene = Traffic {
        environment: &environment,
        producer: Producer::open(environment.broker()).await?,
        consumers: Vec::new(),
        seen,
        watched: Vec::new(),
        is_repaired: false,
    };
    for (topic, place) in [
        (plan::ORDERS, Place::Target),
        (plan::VERDICTS, Place::Verdicts),
        (settings.delivery.dead.as_str(), Place::Dead),
        (ingest.rejected.as_str(), Place::Rejected),
    ] {
        scene.consume(topic, place).await?;
    }
    let api = Api::open(dwell.http_port()).await?;
    let summary = Box::pin(Stage::play(api, &screen, &plan, &mut scene, events)).await?;
    drop(scene);
    dwell.stop().await?;
    environment.stop().await?;
    Ok(summary)
}

/// A producer and consumers.
struct Traffic<'a> {
    environment: &'a Environment,
    producer: Producer,
    consumers: Vec<Consumer>,
    seen: UnboundedSender<Seen>,
    /// The jobs whose target is missing: id and target.
    watched: Vec<(String, &'static str)>,
    /// Whether the target of invoices is there.
    is_repaired: bool,
}

impl Traffic<'_> {
    async fn consume(&mut self, topic: &str, place: Place) -> Result<()> {
        let seen = self.seen.clone();
        let on_messages = move |at_us, messages| {
            // The receiver is gone once the demo has ended.
            let _ = seen.send(Ok(Event::Messages(place, at_us, messages)));
        };
        let broker = self.environment.broker();
        self.consumers.push(Consumer::open(broker, topic, Acks::Explicit, on_messages).await?);
        Ok(())
    }

    fn ingest(&self) -> &str {
        &self.environment.settings().ingest["main"].topic
    }

    async fn publish(&mut self, messages: Vec<Message>) -> Result<()> {
        let to = Destination::new(self.ingest());
        self.producer.send(&to, messages).await?;
        self.producer.flush().await
    }
}

impl Scene for Traffic<'_> {
    async fn send(&mut self, stage: &mut Stage<'_>, plan: &[Planned]) -> Result<()> {
        let missing =
            plan.iter().filter(|planned| [plan::INVOICES, plan::PARCELS].contains(&planned.target));
        self.watched = missing.map(|planned| (planned.id.clone(), planned.target)).collect();
        self.publish(plan.iter().map(Planned::message).collect()).await?;
        let (count, to) = (plan.len(), self.ingest());
        Ok(stage
            .screen
            .say(&format!("sent      {count} requests to {to}, for later: 0.5 s to 6 s"))?)
    }

    async fn cancel(&mut self, _: &mut Stage<'_>, id: &str) -> Result<()> {
        self.publish(vec![plan::cancel(id)]).await
    }

    /// Shows every new failed attempt, and makes the target of invoices after two of them.
    async fn look(&mut self, stage: &mut Stage<'_>) -> Result<()> {
        let mut repairs = false;
        for (id, target) in &self.watched {
            let job = stage.api.get(&format!("/v1/jobs/{id}")).await?.json;
            let (Some("scheduled"), Some(error)) =
                (job["state"].as_str(), job["last_error"].as_str())
            else {
                continue;
            };
            let number = |name: &str| job[name].as_i64().unwrap_or(0);
            let failures = u16::try_from(number("attempt")).unwrap_or(u16::MAX);
            let wait_ms = u64::try_from(number("due_ms") - clock::wall_ms()).unwrap_or(0);
            if let Some(line) = stage.expectations.failed(id, failures, error, wait_ms) {
                stage.screen.say(&line)?;
            }
            repairs |= *target == plan::INVOICES && stage.expectations.failures(id) >= 2;
        }
        if repairs && !self.is_repaired {
            self.is_repaired = true;
            self.environment.declare(&[plan::INVOICES], Role::Letters).await?;
            self.consume(plan::INVOICES, Place::Target).await?;
            stage.screen.say(&format!("repaired  now {} is there", plan::INVOICES))?;
        }
        for consumer in &mut self.consumers {
            consumer.check().await?;
        }
        Ok(())
    }
}
