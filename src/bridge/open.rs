//! Opens what the agents work with: the link of each broker, the source of each ingest.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use dwell_connectors::{Destination, Outcomes, Role, Source};
use futures_util::future::try_join_all;

use super::needed::{find_or_declare, needed};
use super::{Roles, StartError};
use crate::apply::Apply;
use crate::config::Settings;
use crate::http::Readiness;
use crate::ingest::{self, Ingest};
use crate::publisher::{Publisher, Reports};
use crate::request::{Kind, Rules, destination};
use crate::telemetry::Metrics;

/// The link of one broker, open.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) publisher: Publisher,
    pub(super) reports: Reports,
    pub(super) outcomes: Outcomes,
}

/// Opens the link of every broker that this instance publishes to, and sees to the destinations of dead letters.
pub(super) async fn open_links(settings: &Settings, roles: Roles, metrics: &Metrics) -> Result<Vec<Link>, StartError> {
    let read: BTreeSet<&str> = settings.ingest.values().map(|ingest| ingest.broker.as_str()).collect();
    let opening =
        settings.brokers.iter().filter(|(name, _)| roles.dispatch || read.contains(name.as_str())).map(|(name, broker)| async move {
            let timeout = Duration::from_millis(settings.delivery.publish_timeout_ms);
            let (publisher, reports) = Publisher::new(name, broker.connector.clone(), timeout, metrics.broker(name));
            let (sink, outcomes) = publisher.open().await?;
            for needed in needed(settings, roles, name, broker) {
                find_or_declare(broker, name, sink.as_ref(), &needed).await?;
            }
            Ok::<Link, StartError>(Link { name: name.clone(), publisher, reports, outcomes })
        });
    try_join_all(opening).await
}

/// Opens the source of every ingest.
pub(super) async fn open_ingests(
    settings: &Settings,
    publishers: &HashMap<String, Publisher>,
    apply: &Apply,
    readiness: &Readiness,
) -> Result<Vec<(Ingest, Box<dyn Source>)>, StartError> {
    let bad = |message: String| StartError { settings: true, message, mend: String::new() };
    let opening = settings.ingest.iter().map(|(name, ingest)| async move {
        let broker = settings
            .brokers
            .get(&ingest.broker)
            .ok_or_else(|| bad(format!("ingest.{name}.broker: there is no [brokers.{}]", ingest.broker)))?;
        let publisher = publishers.get(&ingest.broker).ok_or_else(|| bad(format!("ingest.{name}: no link to `{}`", ingest.broker)))?;
        if ingest.declare {
            broker.connector.declare(&Destination::new(&ingest.topic), Role::Ingest).await?;
        }
        let agent = Ingest::new(ingest::Parts {
            rules: Rules::new(settings, name).map_err(bad)?,
            source: broker.connector.clone(),
            rejected: destination(Kind::of(broker.connector.kind()), &ingest.rejected),
            publisher: publisher.clone(),
            apply: apply.clone(),
            readiness: readiness.clone(),
        });
        let source = agent.open().await?;
        Ok::<_, StartError>((agent, source))
    });
    try_join_all(opening).await
}
