//! The memory broker as a [`Connector`].

use std::time::Duration;

use async_trait::async_trait;

use super::{Config, sink, source};
use crate::{
    Capabilities, Caution, Connector, ConnectorError, ConsumerState, Declared, Destination,
    Outcomes, Role, Sink, Source, SourceOptions,
};

/// The memory broker stores whole messages. Its header values count as text, as on most brokers.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    keys: true,
    properties: true,
    byte_headers: true,
    ..Capabilities::new("memory", "the memory broker", "subject")
};

#[async_trait]
impl Connector for Config {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }

    /// A pattern is a topic, or a prefix and `*`.
    fn allows(&self, pattern: &str, to: &Destination) -> bool {
        match pattern.strip_suffix('*') {
            Some(start) => to.address.starts_with(start),
            None => to.address == pattern,
        }
    }

    fn forbidden(&self, to: &Destination) -> Option<String> {
        let wrong = to.address.is_empty() || to.address.contains('*');
        wrong.then(|| format!("`{to}` is no topic"))
    }

    async fn source(&self, options: SourceOptions) -> Result<Box<dyn Source>, ConnectorError> {
        Ok(Box::new(source::open(self, options)?))
    }

    async fn inspect(&self, options: &SourceOptions) -> Result<ConsumerState, ConnectorError> {
        source::inspect(self, options)
    }

    async fn cautions(&self, options: &SourceOptions) -> Result<Vec<Caution>, ConnectorError> {
        source::inspect(self, options).map(|_| Vec::new())
    }

    async fn sink(
        &self,
        publish_timeout: Duration,
    ) -> Result<(Box<dyn Sink>, Outcomes), ConnectorError> {
        let (sink, outcomes) = sink::open(self, publish_timeout)?;
        Ok((Box::new(sink), outcomes))
    }

    async fn declare(&self, to: &Destination, _role: Role) -> Result<Declared, ConnectorError> {
        self.broker.declare(&to.address)
    }
}
