//! Opens the store, the publisher of each broker and the source of each ingest for the first time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dwell_connectors::{Outcomes, Source};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::letters::Letters;
use super::needed::{declare_missing, of_dispatch, of_events, of_ingest};
use super::wait::StartWait;
use super::{AgentEnd, Cause, Roles, StartError};
use crate::apply::Apply;
use crate::config::{Broker, Settings};
use crate::ingest::{self, Ingest};
use crate::publisher::{Publisher, Reports};
use crate::readiness::Waiting;
use crate::request::{FullQueues, RequestRules};
use crate::store::{CallObserver, Store};
use crate::telemetry::{Metrics, PauseReason};

/// Opens the store. The ingests count as paused until then.
pub(super) async fn open_store(
    settings: &Settings,
    roles: Roles,
    metrics: &Metrics,
    wait: &StartWait,
) -> Result<Store, StartError> {
    let names: Vec<String> = settings.brokers.keys().cloned().collect();
    let ingests = settings.ingest.keys().filter(|_| roles.ingest);
    let reading = ingests.map(|name| metrics.ingest(name).map(|metrics| metrics.reading().clone()));
    let _paused: Vec<_> =
        reading.map(|reading| metrics.ingest_paused(PauseReason::Redis, reading)).collect();
    let open = || async {
        let store = Store::open(&settings.redis, &names, Arc::new(metrics.clone())).await;
        store.inspect_err(|error| metrics.failed(error.class)).map_err(StartError::from)
    };
    wait.until_reached(&Waiting::Store, open).await
}

/// The publisher of one broker, open or not.
pub(super) struct BrokerPublisher {
    pub(super) name: String,
    pub(super) publisher: Publisher,
    pub(super) reports: Reports,
}

/// Starts the publisher of every broker that this instance publishes to.
pub(super) fn publishers(
    settings: &Settings,
    roles: Roles,
    metrics: &Metrics,
    wait: &StartWait,
    helpers: &mut JoinSet<AgentEnd>,
    stop: &CancellationToken,
) -> Vec<BrokerPublisher> {
    let read: BTreeSet<&str> =
        settings.ingest.values().map(|ingest| ingest.broker.as_str()).collect();
    let used = settings.brokers.iter().filter(|(name, _)| {
        let gets_events = settings.events.broker.as_deref() == Some(name.as_str());
        roles.dispatch || gets_events || read.contains(name.as_str())
    });
    let start = |(name, broker): (&String, &Broker)| {
        let timeout = Duration::from_millis(settings.delivery.publish_timeout.ms());
        let (publisher, reports) =
            Publisher::new(name, broker.connector.clone(), timeout, metrics.broker(name));
        let dead = of_dispatch(settings, name, broker).filter(|_| roles.dispatch);
        let needed = dead.into_iter().chain(of_events(settings, name, broker)).collect();
        let letters = Letters {
            name: name.clone(),
            broker: broker.clone(),
            publisher: publisher.clone(),
            needed,
            readiness: wait.readiness.clone(),
        };
        let first = First { letters: letters.clone() };
        wait.readiness.waits_for(first.waiting());
        helpers.spawn(first.run(wait.clone(), stop.clone()));
        helpers.spawn(letters.find_and_keep(wait.clone(), stop.clone()));
        BrokerPublisher { name: name.clone(), publisher, reports }
    };
    used.map(start).collect()
}

/// Opens a publisher for the first time.
struct First {
    /// The destinations that are declared before anything is published.
    letters: Letters,
}

impl First {
    fn waiting(&self) -> Waiting {
        Waiting::Broker(self.letters.name.clone())
    }

    async fn run(self, wait: StartWait, stop: CancellationToken) -> AgentEnd {
        let (waiting, open) = (self.waiting(), || self.open());
        let outcomes = tokio::select! {
            () = stop.cancelled() => return Ok("a publisher"),
            outcomes = wait.until_reached(&waiting, open) => outcomes?,
        };
        wait.readiness.reached(&waiting);
        self.letters.publisher.run(Some(outcomes), &wait.readiness, stop).await;
        Ok("a publisher")
    }

    async fn open(&self) -> Result<Outcomes, StartError> {
        let Letters { name, broker, publisher, needed, .. } = &self.letters;
        let opened = async {
            let (sink, outcomes) = publisher.connect().await?;
            for needed in needed {
                if sink.exists(&needed.to).await? {
                    continue;
                }
                match declare_missing(broker, name, needed).await {
                    // It is waited for while jobs are delivered.
                    Err(error) if error.cause == Cause::Missing => {
                        self.letters.missing(needed, &error)
                    }
                    declared => declared?,
                }
            }
            publisher.use_sink(sink);
            Ok(outcomes)
        };
        opened.await.inspect_err(|error| publisher.record_error(error))
    }
}

/// An ingest that is not open yet.
pub(super) struct UnopenedIngest {
    name: String,
    agent: Ingest,
    /// The destinations that the ingest needs beside its source.
    letters: Letters,
    /// Declare the source if it is missing.
    declare: bool,
    metrics: Metrics,
}

/// The ingests of the settings, not open yet.
pub(super) fn ingests(
    settings: &Settings,
    publishers: &HashMap<String, Publisher>,
    apply: &Apply,
    full_queues: &FullQueues,
    wait: &StartWait,
) -> Result<Vec<UnopenedIngest>, StartError> {
    let bad = |message: String| StartError { cause: Cause::Settings, message, hint: String::new() };
    let ingests = settings.ingest.iter().map(|(name, ingest)| {
        let broker = settings.brokers.get(&ingest.broker).ok_or_else(|| {
            bad(format!("ingest.{name}.broker: there is no [brokers.{}]", ingest.broker))
        })?;
        let publisher = publishers
            .get(&ingest.broker)
            .ok_or_else(|| bad(format!("ingest.{name}: no connection to `{}`", ingest.broker)))?;
        let agent = Ingest::new(ingest::Parts {
            rules: RequestRules {
                full_queues: full_queues.clone(),
                ..RequestRules::new(settings, name).map_err(bad)?
            },
            source: broker.connector.clone(),
            rejected: broker.connector.destination(&ingest.rejected),
            publisher: publisher.clone(),
            apply: apply.clone(),
            readiness: wait.readiness.clone(),
        });
        Ok(UnopenedIngest {
            name: name.clone(),
            agent,
            letters: Letters {
                name: ingest.broker.clone(),
                broker: broker.clone(),
                publisher: publisher.clone(),
                needed: of_ingest(name, ingest, broker),
                readiness: wait.readiness.clone(),
            },
            declare: ingest.declare,
            metrics: apply.events.metrics().clone(),
        })
    });
    ingests.collect()
}

impl UnopenedIngest {
    /// Opens the source once the publisher is open and all that it needs is there, and reads until
    /// told to stop.
    pub(super) async fn run(
        self,
        wait: StartWait,
        stop: CancellationToken,
        give_up: CancellationToken,
    ) -> AgentEnd {
        let opening = async {
            // The sender lives in the publisher.
            let _ = self.letters.publisher.connected().wait_for(|up| *up).await;
            wait.until_reached(&Waiting::Ingest(self.name.clone()), || self.open()).await
        };
        let source = tokio::select! {
            () = stop.cancelled() => return Ok("an ingest"),
            source = opening => source?,
        };
        let keeping = self.letters.keep(&stop);
        let cautions = self.agent.cautions();
        let told = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = cautions => {}
            }
        };
        tokio::join!(self.agent.run(Some(source), stop.clone(), give_up), told, keeping);
        Ok("an ingest")
    }

    /// All that is missing is told at once.
    async fn open(&self) -> Result<Box<dyn Source>, StartError> {
        let opening = async {
            let found = self.letters.find_all().await;
            if self.declare {
                self.agent.declare().await?;
            }
            match found {
                Ok(()) => Ok(self.agent.open().await?),
                // Nothing is read yet.
                Err(error) => Err(match self.agent.inspect().await {
                    Ok(()) => error,
                    Err(also) => StartError::joined([error.clone(), also.into()]).unwrap_or(error),
                }),
            }
        };
        opening.await.inspect_err(|error| self.record_error(error))
    }

    fn record_error(&self, error: &StartError) {
        if let Some(metrics) = self.metrics.ingest(&self.name) {
            metrics.last_error().record(error);
        }
    }
}
