//! NATS JetStream as a [`Connector`].

use std::time::Duration;

use async_trait::async_trait;

use super::config::Config;
use super::{sink, source, stream, subject};
use crate::{
    Capabilities, Caution, Connector, ConnectorError, ConsumerState, Declared, Destination, Header,
    Outcomes, Role, Sink, Source, SourceOptions, Value,
};

/// The differences between NATS and the other brokers.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    header_lines: true,
    ttl_header: Some("Nats-TTL"),
    finds_patterns: true,
    silent_hint: "check that a stream has the subject and takes its messages",
    // Each error of a connect is returned too.
    log_filter: "async_nats=warn,async_nats::connector=off",
    ..Capabilities::new("nats", "NATS", "subject")
};
/// Headers that change the effect of a publication.
const CONTROL_HEADERS: [&str; 3] = ["nats-rollup", "nats-ttl", "nats-msg-id"];

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
        subject::allows(pattern, to)
    }

    fn pattern_problem(&self, pattern: &str) -> Option<(String, String)> {
        subject::pattern_problem(pattern)
    }

    fn forbidden(&self, to: &Destination) -> Option<String> {
        let is_inbox = |prefix: &String| {
            to.address
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let inbox = || {
            self.inbox_prefix
                .as_ref()
                .filter(|prefix| is_inbox(prefix))
                .map(|_| format!("`{}` belongs to clients", to.address))
        };
        subject::forbidden(to).or_else(inbox)
    }

    fn reads(&self, topic: &str, to: &Destination) -> bool {
        to.exchange.is_empty() && (topic == to.address || subject::allows(topic, to))
    }

    fn carries(&self, header: &Header, is_own: bool) -> Result<bool, String> {
        let name = header.name.to_ascii_lowercase();
        if is_own {
            // The sink sets its own `Nats-Msg-Id`.
            if name.starts_with("nats-expected-") || CONTROL_HEADERS.contains(&name.as_str()) {
                return Ok(false);
            }
        } else if name.starts_with("nats-") {
            return Err(
                "it would control NATS, and the request comes from another broker: leave it out"
                    .to_owned(),
            );
        }
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
            return Err(
                "NATS does not take this name: use visible ASCII without a colon".to_owned()
            );
        }
        match &header.value {
            Value::Text(text) if text.contains(['\r', '\n']) => {
                Err("the value has more than one line, which NATS does not take".to_owned())
            }
            value if value.plain().is_some() => Ok(true),
            _ => Err("the value is not text, and NATS has only text: send text".to_owned()),
        }
    }

    async fn source(&self, options: SourceOptions) -> Result<Box<dyn Source>, ConnectorError> {
        Ok(Box::new(source::open(self, options).await?))
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

    async fn declare(&self, to: &Destination, role: Role) -> Result<Declared, ConnectorError> {
        stream::declare(self, to, role).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    #[test]
    fn a_span_has_the_system_and_the_subject() {
        let (config, to) = (Config::at("nats://h"), Destination::new("delay.in"));
        assert_eq!(
            (config.span_system(), config.span_operation(), config.span_destination(&to).as_str()),
            ("nats", "publish", "delay.in")
        );
        assert!(config.span_attributes(&to, "dwell", &Message::default()).is_empty());
    }

    #[test]
    fn nobody_may_publish_to_the_inboxes() {
        let config =
            Config { inbox_prefix: Some("_DWELL.in".to_owned()), ..Config::at("nats://h") };
        for (subject, is_forbidden) in
            [("_DWELL.in", true), ("_DWELL.in.x", true), ("_DWELL.inn", false), ("_INBOX.x", true)]
        {
            assert_eq!(
                config.forbidden(&Destination::new(subject)).is_some(),
                is_forbidden,
                "{subject}"
            );
        }
    }
}
