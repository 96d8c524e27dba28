//! AMQP 0-9-1 as a [`Connector`].

use std::time::Duration;

use async_trait::async_trait;

use super::config::Config;
use super::{names, queue, sink, source};
use crate::{
    Capabilities, Caution, Connector, ConnectorError, ConsumerState, Declared, Destination, Header,
    Message, Outcomes, Role, Sink, Source, SourceOptions, Value,
};

/// The differences between AMQP and the other brokers.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    exchanges: true,
    log: false,
    expired_queue: true,
    properties: true,
    delivery_mode: Some(2),
    typed_headers: true,
    byte_headers: true,
    unique_headers: true,
    silent_hint: "check that the queues that get its messages take them",
    copy_headers: &["CC", "BCC"],
    parking_headers: &["x-opt-delivery-time"],
    // 0-9-1 has no binding of its own: these names are for readers by AMQP 1.0.
    event_prefix: "cloudEvents_",
    encodes_events: false,
    // lapin logs returned messages with their bodies.
    log_filter: "lapin=off",
    logs_bodies: true,
    ..Capabilities::new("amqp", "AMQP", "routing key")
};
/// The longest header name, in bytes.
const MAX_NAME_BYTES: usize = 255;

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

    /// `exchange/routing.key`, or the name of a queue.
    fn destination(&self, text: &str) -> Destination {
        let (exchange, key) = text.split_once('/').unwrap_or(("", text));
        Destination { exchange: exchange.to_owned(), address: key.to_owned() }
    }

    fn allows(&self, pattern: &str, to: &Destination) -> bool {
        names::allows(pattern, to)
    }

    fn forbidden(&self, to: &Destination) -> Option<String> {
        names::forbidden(to)
    }

    fn is_pattern(&self, pattern: &str) -> bool {
        pattern.contains('*')
    }

    fn pattern_problem(&self, pattern: &str) -> Option<(String, String)> {
        names::pattern_problem(pattern)
    }

    fn allows_exchange(&self, pattern: &str, exchange: &str) -> bool {
        names::allows_exchange(pattern, exchange)
    }

    fn carries(&self, header: &Header, _is_own: bool) -> Result<bool, String> {
        if header.name.len() > MAX_NAME_BYTES {
            return Err(format!(
                "the name is longer than {MAX_NAME_BYTES} bytes, which AMQP does not take"
            ));
        }
        Ok(true)
    }

    fn span_system(&self) -> &'static str {
        "rabbitmq"
    }

    /// The exchange and the routing key.
    fn span_destination(&self, to: &Destination) -> String {
        match (to.exchange.as_str(), to.address.as_str()) {
            ("", "") => "amq.default".to_owned(),
            ("", one) | (one, "") => one.to_owned(),
            (exchange, key) => format!("{exchange}:{key}"),
        }
    }

    fn span_attributes(
        &self,
        to: &Destination,
        group: &str,
        _message: &Message,
    ) -> Vec<(&'static str, Value)> {
        let is_sent = group.is_empty() && !to.address.is_empty();
        is_sent
            .then(|| ("rabbitmq.destination.routing_key", Value::from(to.address.as_str())))
            .into_iter()
            .collect()
    }

    async fn source(&self, options: SourceOptions) -> Result<Box<dyn Source>, ConnectorError> {
        source::open(self, options).await
    }

    async fn inspect(&self, options: &SourceOptions) -> Result<ConsumerState, ConnectorError> {
        source::inspect(self, options).await
    }

    async fn cautions(&self, options: &SourceOptions) -> Result<Vec<Caution>, ConnectorError> {
        source::cautions(self, options).await
    }

    async fn sink(
        &self,
        publish_timeout: Duration,
    ) -> Result<(Box<dyn Sink>, Outcomes), ConnectorError> {
        let (sink, outcomes) = sink::open(self, publish_timeout).await?;
        Ok((Box::new(sink), outcomes))
    }

    async fn declare(&self, to: &Destination, _role: Role) -> Result<Declared, ConnectorError> {
        queue::declare(self, to).await
    }

    async fn declare_source(&self, options: &SourceOptions) -> Result<Declared, ConnectorError> {
        queue::declare_source(self, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(exchange: &str, address: &str) -> Destination {
        Destination { exchange: exchange.to_owned(), address: address.to_owned() }
    }

    #[test]
    fn a_slash_parts_the_exchange_from_its_key() {
        let config = Config::at("amqp://h");
        let read = ["/queue", "queue", "ex/a/b"].map(|text| config.destination(text));
        assert_eq!(read, [to("", "queue"), to("", "queue"), to("ex", "a/b")]);
    }

    #[test]
    fn a_span_has_the_exchange_and_the_key() {
        let config = Config::at("amqp://h");
        let named = |exchange, key| config.span_destination(&to(exchange, key));
        assert_eq!(
            [named("shop", "close"), named("", "orders"), named("fan", ""), named("", "")],
            ["shop:close", "orders", "fan", "amq.default"]
        );
        let sent = [("rabbitmq.destination.routing_key", Value::from("close"))];
        assert_eq!(config.span_attributes(&to("shop", "close"), "", &Message::default()), sent);
        let read = config.span_attributes(&to("", "delay.in"), "dwell", &Message::default());
        assert!(read.is_empty(), "{read:?}");
        assert_eq!((config.span_system(), config.span_operation()), ("rabbitmq", "publish"));
    }
}
