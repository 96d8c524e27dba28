//! Jobs that move to another broker than the one they were scheduled for.

use dwell_connectors::stand_ins::stand_ins;
use dwell_connectors::{Destination, Headers, Value};

use super::reject::{Code, Rejection};
use super::rules::RequestRules;
use super::{headers, target};
use crate::config::Settings;
use crate::delayed_headers::{NEXT, OCCURRENCE, SCHEDULE};
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
        let Target::Broker { broker: was, to } = job.target else {
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
        let (own, ttl, given) = self.split(job.headers, &was);
        let mut headers = headers::passed(&given, &stand_ins, &job.origin, known, &to)?;
        own.into_iter().for_each(|header| headers.push(header.name, header.value));
        if let (Some(name), Some(ttl)) = (capabilities.ttl_header, ttl) {
            headers.push(name, ttl);
        }
        Ok(Job {
            target: Target::Broker { broker: self.broker.clone(), to },
            key: job.key.filter(|_| capabilities.keys),
            properties: job.properties.filter(|_| capabilities.properties),
            headers,
            ..job
        })
    }

    /// The headers that Dwell stored with the job for the broker `was`, as those of an occurrence;
    /// the time to live of what is published, if any; and the headers of the request.
    fn split(&self, headers: Headers, was: &str) -> (Headers, Option<Value>, Headers) {
        let brokers = &self.rules.brokers;
        // Of a broker that the settings lack nobody knows the kind.
        let is_ttl = |name: &str| match brokers.get(was) {
            Some(known) => known.capabilities().ttl_header == Some(name),
            None => brokers.values().any(|known| known.capabilities().ttl_header == Some(name)),
        };
        let (mut own, mut ttl, mut given) = (Headers::default(), None, Headers::default());
        for header in headers {
            if [SCHEDULE, OCCURRENCE, NEXT].contains(&header.name.as_str()) {
                own.push(header.name, header.value);
            } else if is_ttl(&header.name) {
                ttl = Some(header.value);
            } else {
                given.push(header.name, header.value);
            }
        }
        (own, ttl, given)
    }
}
