//! What becomes of a job that is to go to another broker than it was scheduled for.

use dwell_connectors::Destination;
use dwell_connectors::stand_ins::stand_ins;

use super::reject::{Code, Rejection};
use super::rules::Rules;
use super::{headers, target};
use crate::config::Settings;
use crate::job::Job;
use crate::units::quote;

/// What jobs are judged by that go to another broker of the settings.
#[derive(Debug)]
pub struct Moving {
    pub(super) rules: Rules,
    pub(super) broker: String,
    /// What ingests on that broker send to where a request names no target: it needs no entry in `allow`.
    pub(super) own: Vec<Destination>,
}

impl Moving {
    /// To this broker; `None` where the settings do not name it.
    #[must_use]
    pub fn to(settings: &Settings, broker: &str) -> Option<Self> {
        let connector = &settings.brokers.get(broker)?.connector;
        let targets = settings.ingest.values().filter(|ingest| ingest.broker == broker).map(|ingest| &ingest.target);
        let own = targets.filter(|target| !target.is_empty()).map(|target| connector.destination(target)).collect();
        Some(Moving { rules: Rules::direct(settings), broker: broker.to_owned(), own })
    }

    /// The job as it is published there: by the rules of a request for that broker. Key, properties and headers become what they would have.
    pub fn job(&self, job: Job) -> Result<Job, Rejection> {
        let unknown = || Rejection::new(Code::UnknownBroker, format!("there is no broker {} in the settings", quote(&self.broker)));
        let known = self.rules.brokers.get(&self.broker).ok_or_else(unknown)?;
        if !job.to.exchange.is_empty() && !known.capabilities().exchanges {
            let exchange = quote(&job.to.exchange);
            let why = format!("it is for the exchange {exchange}, and broker {} has no exchanges", quote(&self.broker));
            return Err(Rejection::new(Code::TargetNotAllowed, why));
        }
        target::judge(&job.to, &self.broker, known, self.own.contains(&job.to))?;
        let capabilities = known.capabilities();
        let stand_ins = stand_ins(job.key.as_deref(), job.has_body, job.properties.as_deref(), capabilities);
        let headers = headers::passed(&job.headers, &stand_ins, &job.origin, known, &job.to)?;
        Ok(Job {
            broker: self.broker.clone(),
            key: job.key.filter(|_| capabilities.keys),
            properties: job.properties.filter(|_| capabilities.properties),
            headers,
            ..job
        })
    }
}
