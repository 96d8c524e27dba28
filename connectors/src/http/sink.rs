//! The sink: passes publications to their hosts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::config::Config;
use super::connection::Connect;
use super::hosts::{Hosts, PendingRequest};
use super::signer::Signer;
use super::targets::Targets;
use super::{outcome, url};
use crate::{ConnectorError, Destination, Outcomes, Publication, Sink};

pub(super) async fn open(
    config: &Config,
    publish_timeout: Duration,
) -> Result<(HttpSink, Outcomes), ConnectorError> {
    let signer = match &config.secret_file {
        Some(file) => Some(Signer::start(file).await?),
        None => None,
    };
    let timeout = config.timeout().min(publish_timeout);
    let (sender, outcomes) = mpsc::unbounded_channel();
    let hosts = Arc::new(Hosts::new(Connect::new(config, timeout).await?, signer, sender));
    Ok((HttpSink { hosts, targets: Targets::new(config.subnets.clone()), timeout }, outcomes))
}

pub(super) struct HttpSink {
    hosts: Arc<Hosts>,
    targets: Targets,
    timeout: Duration,
}

#[async_trait]
impl Sink for HttpSink {
    async fn publish(&self, batch: Vec<Publication>) {
        let begun = Instant::now();
        let latest = begun + self.timeout;
        let mut attempts = Vec::with_capacity(batch.len());
        for Publication { token, to, message, dedupe_id, deadline } in batch {
            let until = deadline.map_or(latest, |deadline| deadline.min(latest));
            match self.targets.read(&to.address) {
                Ok(_) if until <= begun => self.hosts.report(vec![(token, outcome::of_no_time())]),
                Ok(target) => {
                    attempts.push(PendingRequest {
                        token,
                        target,
                        message,
                        dedupe_id,
                        begun,
                        queued: begun,
                        until,
                        was_given_back: false,
                    });
                }
                Err(outcome) => self.hosts.report(vec![(token, outcome)]),
            }
        }
        self.hosts.push(attempts);
    }

    /// Whether a path exists shows only when it is used.
    async fn exists(&self, to: &Destination) -> Result<bool, ConnectorError> {
        Ok(url::parse(&to.address).is_ok())
    }

    /// Requests that are under way go on, and report their outcomes.
    async fn close(self: Box<Self>) -> Result<(), ConnectorError> {
        Ok(())
    }
}

impl Drop for HttpSink {
    fn drop(&mut self) {
        self.hosts.close();
    }
}
