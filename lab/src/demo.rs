//! `dwell-lab demo`: private servers, a runtime between them, jobs of every fate, and their
//! expected results.
//!
//! - [`plan`]: the requests and their expected fate; [`expectations`]: the actual fate; [`screen`]:
//!   the output.
//! - [`queues`]: the same without a broker: consumers fetch the jobs over HTTP; [`http`]: Dwell
//!   sends them to URLs.

pub mod expectations;
pub mod http;
pub mod plan;
pub mod queues;
pub mod screen;

use std::time::Duration;

use dwell_connectors::{Acks, Destination, Message, Role};
use tokio::sync::mpsc;

use dwell::clock;
use dwell::job::JobId;
use dwell::readiness::Readiness;
use dwell::runtime::{Roles, Runtime};
use dwell::store::error::StoreError;
use dwell::store::reader::lookup::Place as StoredIn;
use dwell::telemetry::Metrics;
use dwell::telemetry::trace::Traces;
use dwell_testkit::environment::traffic::{Consumer, Producer};
use dwell_testkit::environment::{Environment, Failure, Store};
use dwell_testkit::servers::{BrokerKind, RedisOptions};
use expectations::messages::Place;
use expectations::{Expectations, Summary};
use plan::{Fate, Planned};
use screen::Screen;

/// The interval between two queries of the store.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
/// The time of the cancel, after the jobs were sent.
const CANCEL_DELAY: Duration = Duration::from_secs(2);
/// The wait for unexpected arrivals after the last due time.
const LINGER_WAIT: Duration = Duration::from_millis(500);
/// Jobs without a result after this time count as lost. The whole demo may take 20 s.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The longest stop of the runtime.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

type Seen = (Place, i64, Vec<Message>);

/// Runs the demo.
///
/// # Errors
/// The servers, the runtime or the connectors failed. Wrong jobs are in the summary.
pub async fn run(kind: BrokerKind, silent: bool) -> Result<Summary, Failure> {
    let plan = plan::plan();
    let screen = Screen::new(silent, plan.len());
    let allow = [plan::ORDERS, plan::INVOICES, plan::PARCELS, plan::VERDICTS];
    let environment =
        Environment::start(kind, Store::Private(RedisOptions::default()), &allow).await?;
    environment.declare(&[plan::ORDERS, plan::VERDICTS], Role::Letters).await?;
    screen.say(&format!("servers   {}", environment.describe()))?;

    let settings = environment.settings();
    let metrics = Metrics::new(["main"], ["main"]);
    let mut runtime = Box::pin(Runtime::start(
        settings,
        Roles { ingest: true, dispatch: true },
        &metrics,
        &Traces::default(),
        &Readiness::new(["main"]),
    ))
    .await?;
    screen.say(&format!("dwell     {} -> redis -> targets", settings.ingest["main"].topic))?;

    let (seen, arrivals) = mpsc::unbounded_channel();
    let mut show = Show { environment: &environment, screen: &screen, seen, consumers: Vec::new() };
    let settings = environment.settings();
    let places = [(plan::ORDERS, Place::Target), (plan::VERDICTS, Place::Verdicts)];
    let letters = [
        (settings.delivery.dead.as_str(), Place::Dead),
        (settings.ingest["main"].rejected.as_str(), Place::Rejected),
    ];
    for (topic, place) in places.into_iter().chain(letters) {
        show.consume(topic, place).await?;
    }
    let store = runtime.store().clone();
    let summary = tokio::select! {
        summary = Box::pin(show.play(plan, arrivals, &store)) => summary?,
        failed = runtime.failed() => return Err(Failure::Unexpected(failed.to_string())),
    };
    screen.clear();
    drop(show);
    if !runtime.stop(STOP_TIMEOUT).await {
        return Err(Failure::Unexpected(format!(
            "the runtime did not stop within {} s",
            STOP_TIMEOUT.as_secs()
        )));
    }
    environment.stop().await?;
    Ok(summary)
}

struct Show<'a> {
    environment: &'a Environment,
    screen: &'a Screen,
    seen: mpsc::UnboundedSender<Seen>,
    consumers: Vec<Consumer>,
}

impl Show<'_> {
    async fn consume(&mut self, topic: &str, place: Place) -> Result<(), Failure> {
        let seen = self.seen.clone();
        let consumer = Consumer::open(
            self.environment.broker(),
            topic,
            Acks::Explicit,
            move |at_us, messages| {
                // The receiver is gone once the demo has ended.
                let _ = seen.send((place, at_us, messages));
            },
        );
        self.consumers.push(consumer.await?);
        Ok(())
    }

    async fn play(
        &mut self,
        plan: Vec<Planned>,
        mut arrivals: mpsc::UnboundedReceiver<Seen>,
        store: &dwell::store::Store,
    ) -> Result<Summary, Failure> {
        let to = Destination::new(&self.environment.settings().ingest["main"].topic);
        let mut producer = Producer::open(self.environment.broker()).await?;
        let (began, began_ms) = (clock::now(), clock::wall_ms());
        let messages: Vec<Message> = plan.iter().map(Planned::message).collect();
        let longest = plan.iter().map(|planned| planned.delay_ms).max().unwrap_or(0);
        let mut to_cancel = plan
            .iter()
            .filter(|planned| planned.fate == Fate::Cancelled)
            .map(|planned| planned.id.clone())
            .collect();
        let retried: Vec<&'static str> = vec![plan::INVOICES, plan::PARCELS];
        let watched: Vec<String> = plan
            .iter()
            .filter(|planned| retried.contains(&planned.target))
            .map(|planned| planned.id.clone())
            .collect();
        let mut to_repair: Vec<String> = plan
            .iter()
            .filter(|planned| planned.target == plan::INVOICES)
            .map(|planned| planned.id.clone())
            .collect();
        producer.send(&to, messages).await?;
        producer.flush().await?;
        self.screen.say(&format!(
            "sent      {} requests to {}, for later: 0.5 s to 6 s",
            plan.len(),
            to.address
        ))?;

        let mut expectations = Expectations::new(plan, began_ms);
        let over = began + Duration::from_millis(longest) + LINGER_WAIT;
        let mut look_at = clock::now();
        while clock::now() < began + TIMEOUT
            && (expectations.fulfilled() < expectations.len() || clock::now() < over)
        {
            tokio::select! {
                Some((place, at_us, messages)) = arrivals.recv() => {
                    for message in &messages {
                        self.screen.say(&expectations.saw(place, message, at_us))?;
                    }
                }
                () = clock::sleep_until(look_at) => {
                    look_at = clock::now() + QUERY_INTERVAL;
                    let counts = store.reader.counts(&[]).await?;
                    let next = counts.next_due_ms.map(|due_ms| due_ms - counts.now_ms);
                    self.screen.waiting(expectations.fulfilled(), counts.scheduled.iter().sum(), next);
                    for id in &watched {
                        self.look_at(id, &mut expectations, store).await?;
                    }
                    if to_repair.first().is_some_and(|id| expectations.failures(id) >= 2) {
                        to_repair.clear();
                        self.environment.declare(&[plan::INVOICES], Role::Letters).await?;
                        self.consume(plan::INVOICES, Place::Target).await?;
                        self.screen.say(&format!("repaired  now {} is there", plan::INVOICES))?;
                    }
                    if clock::now() >= began + CANCEL_DELAY {
                        let cancels: Vec<String> = std::mem::take(&mut to_cancel);
                        for id in cancels {
                            self.screen.say(&format!("cancel    {id:<10} before it is due"))?;
                            producer.send(&to, [plan::cancel(&id)]).await?;
                            producer.flush().await?;
                        }
                    }
                    for consumer in &mut self.consumers {
                        consumer.check().await?;
                    }
                }
            }
        }
        Ok(expectations.summary())
    }

    /// Prints a line for every new failed attempt of this job.
    async fn look_at(
        &self,
        id: &str,
        expectations: &mut Expectations,
        store: &dwell::store::Store,
    ) -> Result<(), Failure> {
        let odd = |why| Failure::Unexpected(format!("the id `{id}` is none: {why}"));
        let found = store
            .reader
            .find(&JobId::new(id).map_err(odd)?)
            .await
            .map_err(|error: StoreError| Failure::from(error))?;
        let Some((found, state)) = found.and_then(|found| Some((found.clone(), found.state?)))
        else {
            return Ok(());
        };
        if found.place != StoredIn::Scheduled || state.step == 0 {
            return Ok(());
        }
        let left_ms = u64::try_from(found.score_ms - store.now_ms()).unwrap_or(0);
        match expectations.failed(id, state.step, &state.last_error, left_ms) {
            Some(line) => Ok(self.screen.say(&line)?),
            None => Ok(()),
        }
    }
}
