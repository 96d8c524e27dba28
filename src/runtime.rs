//! Starts all agents, runs them, and drains them. `dwell run` adds signals and HTTP; the demo and
//! the tests run it in their own process.
//!
//! - `open` opens the store, the publishers and the ingests for the first time; `needed` names the
//!   destinations that settings name, and `letters` finds them; `wait` waits for servers that are
//!   away; `store_watch` tells of a store that is away later.

mod letters;
mod needed;
mod open;
mod start_error;
mod store_watch;
mod wait;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::apply::{Apply, CallBatcher};
use crate::clock;
use crate::cloud_events::CloudEvents;
use crate::config::Settings;
use crate::consumers::Consumers;
use crate::dispatch::{self, Dispatch};
use crate::fleet::{self, Fleet};
use crate::maintenance;
use crate::outgoing::EventSource;
use crate::publisher::Publisher;
use crate::readiness::Readiness;
use crate::request::FullQueues;
use crate::store::Store;
use crate::telemetry::feed::Feed;
use crate::telemetry::trace::Traces;
use crate::telemetry::{Events, Metrics};
use crate::wake_ups::WakeUps;
pub use needed::{Needed, nothing_takes, of_dispatch, of_events, of_ingest};
use open::{BrokerPublisher, ingests, open_store, publishers};
pub use start_error::{Cause, StartError};
use wait::StartWait;

/// The roles of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Reads requests.
    pub ingest: bool,
    /// Delivers jobs.
    pub dispatch: bool,
}

/// Why the agents cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// An agent ended that never should: end the process and start it again.
    #[error("{0}")]
    Agent(String),
    /// A server that the start waited for refuses access, or the wait is over.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Start(error) => error,
            Failure::Agent(message) => {
                StartError { cause: Cause::Refused, message, hint: String::new() }
            }
        }
    }
}

/// The longest wait for the last events of jobs, within the time of the drain.
const MAX_EVENT_DRAIN: Duration = Duration::from_secs(1);

/// The end of an agent: its name, or the reason why it did not start.
type AgentEnd = Result<&'static str, StartError>;

/// The running agents.
pub struct Runtime {
    /// The name of this instance in the namespace.
    instance: String,
    apply: Apply,
    consumers: Consumers,
    /// The queues that are full.
    full_queues: FullQueues,
    store: Arc<Store>,
    /// Ingests and dispatchers: they are drained.
    workers: JoinSet<AgentEnd>,
    /// Agents that the workers need until they have ended.
    helpers: JoinSet<AgentEnd>,
    /// Publishes the events of the workers until they have ended.
    events: JoinSet<AgentEnd>,
    stop: CancellationToken,
    give_up: CancellationToken,
    events_stop: CancellationToken,
    helpers_stop: CancellationToken,
}

impl Runtime {
    /// Starts the agents, and waits until each has opened its connections. A server that cannot be
    /// reached, and a destination that is missing, end the start.
    pub async fn start(
        settings: &Settings,
        roles: Roles,
        metrics: &Metrics,
        traces: &Traces,
        readiness: &Readiness,
    ) -> Result<Runtime, StartError> {
        let mut runtime =
            Self::begin(settings, roles, Some(Duration::ZERO), metrics, traces, readiness).await?;
        tokio::select! {
            () = readiness.all_reached() => Ok(runtime),
            failure = runtime.failed() => Err(failure.into()),
        }
    }

    /// Starts the agents once the store is reached. A server that cannot be reached, and a source
    /// or destination that is missing, are waited for, up to `max_wait` if given, while the other
    /// agents work: an ingest reads once its source, `rejected` and exchange exist, and jobs are
    /// delivered without their `dead` destination. Every other error, and the end of the wait, ends
    /// the start, or comes from [`Runtime::failed`] later.
    pub async fn begin(
        settings: &Settings,
        roles: Roles,
        max_wait: Option<Duration>,
        metrics: &Metrics,
        traces: &Traces,
        readiness: &Readiness,
    ) -> Result<Runtime, StartError> {
        let wait = StartWait::new(readiness, max_wait);
        let (stop, give_up, helpers_stop) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let mut helpers = JoinSet::new();
        // Publishers need no store: their errors show while the store is away.
        let opening = publishers(settings, roles, metrics, &wait, &mut helpers, &helpers_stop);
        let store = open_store(settings, roles, metrics, &wait);
        let store = tokio::select! {
            store = store => Arc::new(store?),
            failure = failed(&mut helpers) => return Err(failure.into()),
        };
        readiness.store_reached();

        let instance = format!("{:08x}-{}", rand::random::<u32>(), std::process::id());
        let delivers_to = if roles.dispatch { store.own_brokers() } else { &[] };
        let (fleet_sender, fleet) =
            watch::channel(Fleet::alone(&fleet::entry(&instance, delivers_to)));
        let (head_senders, mut head_receivers): (HashMap<_, _>, HashMap<_, _>) = opening
            .iter()
            .filter(|_| roles.dispatch)
            .map(|opened| {
                let (sender, receiver) = mpsc::unbounded_channel();
                ((opened.name.clone(), sender), (opened.name.clone(), receiver))
            })
            .unzip();
        let rules = settings.delivery.late_rules();
        let (feed, facts) = Feed::new(&settings.events.of);
        let feed = settings.events.broker.is_some().then_some(feed);
        let events = Events::new(metrics.clone()).with_feed(feed);
        let consumers =
            Consumers::new(store.clone(), rules, Arc::new(events.clone()), stop.clone());
        let wake_ups = WakeUps::new(store.clone(), head_senders, consumers.clone(), fleet.clone());
        let publishers: HashMap<String, Publisher> =
            opening.iter().map(|opened| (opened.name.clone(), opened.publisher.clone())).collect();
        let apply = Apply {
            store: store.clone(),
            wake_ups: wake_ups.clone(),
            events: events.clone(),
            traces: traces.clone(),
            retry_ms: settings.delivery.retry.to_vec(),
            batcher: CallBatcher::new(store.batches_at_once()),
            reads: Default::default(),
        };
        let full_queues = FullQueues::default();
        let ingests = if roles.ingest {
            ingests(settings, &publishers, &apply, &full_queues, &wait)?
        } else {
            Vec::new()
        };

        let source = EventSource::new(&settings.redis.namespace, &instance);
        let published = settings.events.broker.as_deref().and_then(|name| {
            let publisher = publishers.get(name)?.clone();
            let to = publisher.connector().destination(&settings.events.to);
            Some(CloudEvents::new(facts, source, publisher, to, metrics.clone()))
        });

        let mut runtime = Runtime {
            instance,
            apply,
            consumers,
            full_queues,
            store: store.clone(),
            workers: JoinSet::new(),
            helpers,
            events: JoinSet::new(),
            stop,
            give_up,
            events_stop: CancellationToken::new(),
            helpers_stop,
        };
        if let Some(published) = published {
            let stop = runtime.events_stop.clone();
            runtime.events.spawn(async move {
                published.run(stop).await;
                Ok("the events of jobs")
            });
        }
        for ingest in ingests {
            let (wait, stop, give_up) =
                (wait.clone(), runtime.stop.clone(), runtime.give_up.clone());
            runtime.workers.spawn(ingest.run(wait, stop, give_up));
        }
        for opened in opening {
            let BrokerPublisher { name, publisher, reports } = opened;
            let Some((wake_ups, broker)) =
                head_receivers.remove(&name).zip(settings.brokers.get(&name))
            else {
                continue;
            };
            let dead = publisher.connector().dead_letters(&settings.delivery.dead);
            let parts = dispatch::Parts {
                store: store.clone(),
                broker: name,
                settings: broker.clone(),
                publisher,
                reports,
                rules: settings.delivery.clone(),
                dead,
                events: events.clone(),
                traces: traces.clone(),
                fleet: fleet.clone(),
                wake_ups,
            };
            let (stop, give_up) = (runtime.stop.clone(), runtime.give_up.clone());
            runtime.workers.spawn(async move {
                Dispatch::new(parts).run(stop, give_up).await;
                Ok("a dispatcher")
            });
        }
        let parts = maintenance::Parts {
            settings,
            delivers: roles.dispatch,
            apply: runtime.apply.clone(),
            events: &events,
            fleet: fleet_sender,
            wake_ups,
        };
        maintenance::start(runtime.tasks(), parts).await;
        let (store, readiness, stop) =
            (runtime.store.clone(), readiness.clone(), runtime.helpers_stop.clone());
        runtime.helpers.spawn(async move {
            store_watch::watch(store, readiness, stop).await;
            Ok("the watch of the store")
        });
        Ok(runtime)
    }

    fn tasks(&mut self) -> maintenance::Tasks<'_, StartError> {
        maintenance::Tasks {
            store: &self.store,
            full_queues: &self.full_queues,
            workers: &mut self.workers,
            stop: &self.stop,
            helpers: &mut self.helpers,
            helpers_stop: &self.helpers_stop,
        }
    }

    /// The store that the agents share.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Applies requests that do not come from an ingest.
    #[must_use]
    pub fn apply(&self) -> &Apply {
        &self.apply
    }

    /// Hands out the jobs of queues.
    #[must_use]
    pub fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    /// Returns the queues that are full.
    #[must_use]
    pub fn full_queues(&self) -> &FullQueues {
        &self.full_queues
    }

    /// The name of this instance in the namespace.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Waits until the agents cannot go on, and returns why.
    pub async fn failed(&mut self) -> Failure {
        tokio::select! {
            failure = failed(&mut self.workers) => failure,
            failure = failed(&mut self.helpers) => failure,
            failure = failed(&mut self.events) => failure,
        }
    }

    /// Stops reading and claiming, waits for confirms up to `drain`, gives back the rest, and ends.
    /// True if all agents ended in time.
    pub async fn stop(mut self, drain: Duration) -> bool {
        let begun = clock::now();
        self.stop.cancel();
        // The last tenth is for giving jobs back.
        let timeout = drain.mul_f64(0.9);
        let mut clean = clock::timeout(timeout, drained(&mut self.workers)).await.is_some();
        if !clean {
            self.give_up.cancel();
            clean = clock::timeout(drain - timeout, drained(&mut self.workers)).await.is_some();
        }
        self.events_stop.cancel();
        let left = drain.saturating_sub(begun.elapsed()).min(MAX_EVENT_DRAIN);
        let _ = clock::timeout(left, drained(&mut self.events)).await;
        self.helpers_stop.cancel();
        let _ = clock::timeout(Duration::from_millis(200), drained(&mut self.helpers)).await;
        clean
    }
}

/// Waits for the first task to end, and returns why.
async fn failed(tasks: &mut JoinSet<AgentEnd>) -> Failure {
    match tasks.join_next().await {
        Some(Ok(Ok(agent))) => Failure::Agent(format!("{agent} ended by itself")),
        Some(Ok(Err(error))) => Failure::Start(error),
        Some(Err(error)) => Failure::Agent(format!("an agent failed: {error}")),
        None => std::future::pending().await,
    }
}

async fn drained(tasks: &mut JoinSet<AgentEnd>) {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, hint = error.hint, "an agent ended before it had started")
            }
            Err(error) => tracing::error!(%error, "an agent failed while draining"),
        }
    }
}
