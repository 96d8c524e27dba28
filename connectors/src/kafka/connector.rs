//! Kafka as a [`Connector`].

use std::time::Duration;

use async_trait::async_trait;

use super::config::Config;
use super::{sink, source, topic};
use crate::{
    Capabilities, Caution, Connector, ConnectorError, ConsumerState, Declared, Destination, Header,
    Message, Outcomes, Role, Sink, Source, SourceOptions, Value,
};

/// The differences between Kafka and the other brokers.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    start_is_the_groups: true,
    reports_redelivery: false,
    keys: true,
    byte_headers: true,
    event_prefix: "ce_",
    encodes_events: false,
    // The end of a consumer whose error is told by then.
    log_filter: "rdkafka::consumer::base_consumer=off",
    silent_hint: "check that the partitions of the topic have leaders with enough in-sync replicas",
    ..Capabilities::new("kafka", "Kafka", "topic")
};

#[async_trait]
impl Connector for Config {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn place(&self) -> String {
        Config::place(self)
    }

    fn problems(&self) -> Vec<String> {
        Config::problems(self)
    }

    fn allows(&self, pattern: &str, to: &Destination) -> bool {
        topic::allows(pattern, to)
    }

    fn pattern_problem(&self, pattern: &str) -> Option<(String, String)> {
        topic::pattern_problem(pattern)
    }

    fn forbidden(&self, to: &Destination) -> Option<String> {
        topic::forbidden(to)
    }

    fn unreadable(&self, topic: &str) -> Option<String> {
        topic::forbidden(&Destination::new(topic))
    }

    fn carries(&self, header: &Header, _is_own: bool) -> Result<bool, String> {
        if header.name.contains('\0') {
            return Err("the name has a NUL byte, which the Kafka client does not take".to_owned());
        }
        match &header.value {
            Value::Null | Value::Bytes(_) => Ok(true),
            value if value.plain().is_some() => Ok(true),
            _ => Err(
                "the value is neither text, a number nor bytes, and Kafka has no other: send text"
                    .to_owned(),
            ),
        }
    }

    fn span_operation(&self) -> &'static str {
        "send"
    }

    fn span_attributes(
        &self,
        _to: &Destination,
        group: &str,
        message: &Message,
    ) -> Vec<(&'static str, Value)> {
        let mut attributes = Vec::new();
        if !group.is_empty() {
            attributes.push(("messaging.consumer.group.name", group.into()));
        }
        if !message.has_body {
            attributes.push(("kafka.message.tombstone", Value::Bool(true)));
        }
        if let Some(at) = &message.position {
            attributes.push((
                "messaging.destination.partition.id",
                Value::Text(at.partition.to_string()),
            ));
            attributes
                .push(("kafka.offset", Value::I64(i64::try_from(at.offset).unwrap_or(i64::MAX))));
        }
        attributes
    }

    async fn source(&self, options: SourceOptions) -> Result<Box<dyn Source>, ConnectorError> {
        Ok(Box::new(source::open(self, options).await?))
    }

    async fn inspect(&self, options: &SourceOptions) -> Result<ConsumerState, ConnectorError> {
        source::inspect(self, options).await
    }

    async fn cautions(&self, options: &SourceOptions) -> Result<Vec<Caution>, ConnectorError> {
        topic::cautions(self, &options.topic).await
    }

    async fn sink(
        &self,
        publish_timeout: Duration,
    ) -> Result<(Box<dyn Sink>, Outcomes), ConnectorError> {
        let (sink, outcomes) = sink::open(self, publish_timeout).await?;
        Ok((Box::new(sink), outcomes))
    }

    async fn declare(&self, to: &Destination, role: Role) -> Result<Declared, ConnectorError> {
        topic::declare(self, to, role).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    #[test]
    fn a_span_of_a_read_tombstone_has_its_group_and_position() {
        let message = Message {
            position: Some(Position { log: "in".to_owned(), partition: 3, offset: 42 }),
            ..Message::default()
        };
        let expected = [
            ("messaging.consumer.group.name", "dwell".into()),
            ("kafka.message.tombstone", Value::Bool(true)),
            ("messaging.destination.partition.id", "3".into()),
            ("kafka.offset", Value::I64(42)),
        ];
        let config = Config::at("h:1");
        assert_eq!(config.span_attributes(&Destination::new("in"), "dwell", &message), expected);
        assert_eq!((config.span_system(), config.span_operation()), ("kafka", "send"));
    }
}
