//! Jobs that move to another broker than the one they were scheduled for.

use dwell_connectors::Destination;
use dwell_connectors::stand_ins::stand_ins;

use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::{headers, target};
use crate::config::Settings;
use crate::job::{Job, Target};
use crate::units::{quote, quote_address};

/// The rules for jobs that move to another broker of the settings.
#[derive(Debug)]
pub struct Moving {
    pub(super) rules: RequestRules,
    pub(super) broker: String,
    /// The default targets of the ingests on that broker. They need no entry in `allow`.
    pub(super) own: Vec<Destination>,
}

impl Moving {
    /// Moves to this broker; `None` where the settings have no such broker.
    #[must_use]
    pub fn to(settings: &Settings, broker: &str) -> Option<Self> {
        let connector = &settings.brokers.get(broker)?.connector;
        let targets = settings
            .ingest
            .values()
            .filter(|ingest| ingest.broker == broker)
            .map(|ingest| &ingest.target);
        let own = targets
            .filter(|target| !target.is_empty())
            .map(|target| connector.destination(target))
            .collect();
        Some(Moving { rules: RequestRules::direct(settings), broker: broker.to_owned(), own })
    }

    /// The job for that broker, by the rules of a request for it: key, properties and headers are
    /// converted the same way.
    pub fn job(&self, job: Job) -> Result<Job, Rejection> {
        let unknown = || {
            Rejection::new(
                Code::UnknownBroker,
                format!("there is no broker {} in the settings", quote(&self.broker)),
            )
        };
        let known = self.rules.brokers.get(&self.broker).ok_or_else(unknown)?;
        let Target::Broker { to, .. } = job.target else {
            let why = "the job belongs to a queue, and has no target on a broker";
            return Err(Rejection::new(Code::MissingTarget, why));
        };
        if !to.exchange.is_empty() && !known.capabilities().exchanges {
            let exchange = quote_address(&to.exchange);
            let why = format!(
                "the target is the exchange {exchange}, and broker {} has no exchanges",
                quote(&self.broker)
            );
            return Err(Rejection::new(Code::TargetNotAllowed, why));
        }
        target::classify(&to, &self.broker, known, self.own.contains(&to))?;
        let capabilities = known.capabilities();
        let stand_ins =
            stand_ins(job.key.as_deref(), job.has_body, job.properties.as_deref(), capabilities);
        let headers = headers::passed(&job.headers, &stand_ins, &job.origin, known, &to)?;
        Ok(Job {
            target: Target::Broker { broker: self.broker.clone(), to },
            key: job.key.filter(|_| capabilities.keys),
            properties: job.properties.filter(|_| capabilities.properties),
            headers,
            ..job
        })
    }
}
