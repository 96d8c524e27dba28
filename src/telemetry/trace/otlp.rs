//! Spans by OpenTelemetry, exported by OTLP over gRPC.

use std::time::Duration;

use dwell_connectors::Headers;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use super::{About, TRACEPARENT, TRACESTATE, TraceError};

/// The variables that name an endpoint: without any there are no spans.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// How long the last spans may take to go out at the end.
const LAST: Duration = Duration::from_secs(5);

/// Makes spans. Clones share the exporter.
#[derive(Debug, Clone, Default)]
pub struct Traces {
    made: Option<Made>,
}

#[derive(Debug, Clone)]
struct Made {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// A span that has begun. Dropped, it ends.
#[derive(Debug, Default)]
pub struct Span {
    span: Option<opentelemetry_sdk::trace::Span>,
}

impl Traces {
    /// By the variables that OpenTelemetry has for it: the endpoint, headers, time-out, sampler, the batches' bounds, the service's name
    /// (`dwell` where there is none) and attributes. No endpoint: no spans. Must be called within the runtime that exports.
    ///
    /// # Errors
    /// The endpoint is none.
    pub fn from_environment() -> Result<Self, TraceError> {
        let named = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if !ENDPOINTS.into_iter().any(named) {
            return Ok(Traces::default());
        }
        let exporter = SpanExporter::builder().with_tonic().build().map_err(|error| TraceError(error.to_string()))?;
        let mut resource = Resource::builder();
        if !named("OTEL_SERVICE_NAME") {
            resource = resource.with_service_name("dwell");
        }
        let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        let tracer = provider.tracer("dwell");
        Ok(Traces { made: Some(Made { provider, tracer }) })
    }

    /// The span of a request: from when it was read until it is applied.
    #[must_use]
    pub fn request(&self, about: About<'_>) -> Span {
        self.begin("process", SpanKind::Consumer, about, Vec::new(), None)
    }

    /// The span of an attempt: from its publish to its outcome. `request` is the [`Span::traceparent`] of the request that made the job.
    #[must_use]
    pub fn attempt(&self, about: About<'_>, attempt: u32, request: Option<&str>) -> Span {
        let attempt = KeyValue::new("dwell.attempt", i64::from(attempt));
        // Not a producer's: the context that goes with the message is the one that it came with.
        self.begin("send", SpanKind::Client, about, vec![attempt], request)
    }

    fn begin(&self, operation: &'static str, kind: SpanKind, about: About<'_>, mut more: Vec<KeyValue>, link: Option<&str>) -> Span {
        let Some(made) = &self.made else { return Span::default() };
        let destination = destination(about);
        more.extend([
            KeyValue::new("messaging.operation.name", operation),
            KeyValue::new("messaging.operation.type", operation),
            KeyValue::new("messaging.destination.name", destination.clone()),
        ]);
        more.extend(of_system(about));
        // The message's own context is a link too, for those who tell the way of a message by links alone.
        let parent = parent(&about.message.headers);
        let links = link.and_then(read).into_iter().chain(valid(&parent)).map(Link::with_context).collect();
        let builder =
            made.tracer.span_builder(format!("{operation} {destination}")).with_kind(kind).with_attributes(more).with_links(links);
        Span { span: Some(made.tracer.build_with_context(builder, &parent)) }
    }

    /// Exports what is left; later spans go nowhere.
    pub async fn stop(self) {
        let Some(made) = self.made else { return };
        // It waits for the exporter, which needs this runtime.
        let last = tokio::task::spawn_blocking(move || made.provider.shutdown_with_timeout(LAST)).await;
        if let Ok(Err(error)) = last {
            tracing::warn!(%error, "the last spans could not be exported");
        }
    }
}

impl Span {
    /// Its name in a `traceparent`, for a link to it; `None` where there is no span.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        let context = self.span.as_ref()?.span_context();
        context.is_valid().then(|| format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags()))
    }

    /// Which job it is about.
    pub fn job(&mut self, id: &str) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new("messaging.message.id", id.to_owned()));
        }
    }

    /// Ends it well, with a verdict or an outcome.
    pub fn succeeded(mut self, outcome: &'static str) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new("dwell.outcome", outcome));
        }
    }

    /// Ends it as an error: of which type, and why.
    pub fn failed(mut self, kind: &'static str, why: &str) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new("error.type", kind));
            span.set_status(Status::error(why.to_owned()));
        }
    }
}

/// The context that a message carries; an empty one where it carries none.
fn parent(headers: &Headers) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Carrier(headers))
}

/// The context of the span that is in it; `None` where there is none.
fn valid(context: &Context) -> Option<SpanContext> {
    Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
}

fn read(traceparent: &str) -> Option<SpanContext> {
    let mut headers = Headers::default();
    headers.push(TRACEPARENT, traceparent.into());
    valid(&parent(&headers))
}

/// What a span is about, as the conventions write it for this broker: on RabbitMQ, the exchange and the routing key.
fn destination(about: About<'_>) -> String {
    match (about.exchange, about.address) {
        ("", "") => "amq.default".to_owned(),
        ("", one) | (one, "") => one.to_owned(),
        (exchange, key) => format!("{exchange}:{key}"),
    }
}

/// What the conventions ask for besides, of this broker alone.
fn of_system(about: About<'_>) -> Vec<KeyValue> {
    let About { system, address, group, message, .. } = about;
    let mut more = vec![KeyValue::new("messaging.system", if system == "amqp" { "rabbitmq" } else { system })];
    let sends = group.is_empty();
    if system == "amqp" && sends && !address.is_empty() {
        more.push(KeyValue::new("messaging.rabbitmq.destination.routing_key", address.to_owned()));
    }
    if system == "kafka" {
        if !sends {
            more.push(KeyValue::new("messaging.consumer.group.name", group.to_owned()));
        }
        if !message.has_body {
            more.push(KeyValue::new("messaging.kafka.message.tombstone", true));
        }
        if let Some(at) = &message.position {
            more.push(KeyValue::new("messaging.destination.partition.id", at.partition.to_string()));
            more.push(KeyValue::new("messaging.kafka.offset", i64::try_from(at.offset).unwrap_or(i64::MAX)));
        }
    }
    more
}

struct Carrier<'a>(&'a Headers);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.text(key)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

#[cfg(test)]
mod tests {
    use dwell_connectors::{Message, Position};

    use super::*;

    fn told(about: About<'_>) -> Vec<(String, String)> {
        of_system(about).into_iter().map(|pair| (pair.key.to_string(), pair.value.to_string())).collect()
    }

    #[test]
    fn each_broker_is_told_as_the_conventions_write_it() {
        let message = Message { position: Some(Position { log: "in".to_owned(), partition: 3, offset: 42 }), ..Message::default() };
        let about = |system, exchange, address, group| About { system, exchange, address, group, message: &message };
        let named = |exchange, address| destination(about("amqp", exchange, address, ""));
        assert_eq!(
            [named("shop", "close"), named("", "orders"), named("fan", ""), named("", "")],
            ["shop:close", "orders", "fan", "amq.default"]
        );
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Vec<_>>();
        let sent = [("messaging.system", "rabbitmq"), ("messaging.rabbitmq.destination.routing_key", "close")];
        assert_eq!(told(about("amqp", "shop", "close", "")), pairs(&sent));
        assert_eq!(told(about("amqp", "", "delay.in", "dwell")), pairs(&sent[..1]));
        assert_eq!(told(about("nats", "", "delay.in", "dwell")), pairs(&[("messaging.system", "nats")]));
        let read = [
            ("messaging.system", "kafka"),
            ("messaging.consumer.group.name", "dwell"),
            ("messaging.kafka.message.tombstone", "true"),
            ("messaging.destination.partition.id", "3"),
            ("messaging.kafka.offset", "42"),
        ];
        assert_eq!(told(about("kafka", "", "delay.in", "dwell")), pairs(&read));
    }
}
