//! OpenTelemetry spans, exported by OTLP over gRPC.

use std::time::Duration;

use dwell_connectors::{Destination, Headers, Value};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use super::{About, AboutAttempt, TRACEPARENT, TRACESTATE, TraceError, TraceId};
use crate::config::Mask;

/// The variables that set an endpoint: without one there are no spans.
const ENDPOINT_VARIABLES: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The longest time for the export of the last spans at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes spans. Clones share the exporter.
#[derive(Debug, Clone, Default)]
pub struct Traces {
    made: Option<TracePipeline>,
}

#[derive(Debug, Clone)]
struct TracePipeline {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// A running span. Dropping it ends it.
#[derive(Debug, Default)]
pub struct Span {
    /// Boxed: most runs have no spans, and a span has hundreds of bytes.
    span: Option<Box<opentelemetry_sdk::trace::Span>>,
}

/// Returns the exporter's error, without the secrets of the endpoints.
fn without_endpoints(error: &str) -> String {
    let endpoints: Vec<String> =
        ENDPOINT_VARIABLES.into_iter().filter_map(|name| std::env::var(name).ok()).collect();
    Mask::of(endpoints.iter().map(String::as_str)).over(error)
}

impl Traces {
    /// Reads OpenTelemetry's own variables: endpoint, headers, time-out, sampler, limits of the
    /// batches, service name (default `dwell`) and attributes. Without an endpoint there are no
    /// spans. Must be called within the runtime that exports.
    ///
    /// # Errors
    /// The endpoint is not valid.
    pub fn from_environment() -> Result<Self, TraceError> {
        let named = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if !ENDPOINT_VARIABLES.into_iter().any(named) {
            return Ok(Traces::default());
        }
        let exporter = SpanExporter::builder()
            .with_tonic()
            .build()
            .map_err(|error| TraceError(without_endpoints(&error.to_string())))?;
        let mut resource = Resource::builder();
        if !named("OTEL_SERVICE_NAME") {
            resource = resource.with_service_name("dwell");
        }
        let resource = resource
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("dwell");
        Ok(Traces { made: Some(TracePipeline { provider, tracer }) })
    }

    /// Whether spans are made.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.made.is_some()
    }

    /// The span of a request: from its receipt until it is applied.
    #[must_use]
    pub fn request(&self, about: About<'_>) -> Span {
        let Some(made) = &self.made else { return Span::default() };
        made.begin(Operation::PROCESS, about, Vec::new(), None)
    }

    /// The span of an attempt: from the publication to its outcome.
    #[must_use]
    pub fn attempt(&self, about: About<'_>, job: AboutAttempt<'_>) -> Span {
        let Some(made) = &self.made else { return Span::default() };
        // Not a producer span: the message keeps the context that it came with.
        let operation = Operation {
            name: about.connector.span_operation(),
            kind: "send",
            span: SpanKind::Client,
        };
        let attributes = vec![
            KeyValue::new("dwell.attempt", i64::from(job.attempt)),
            KeyValue::new("dwell.due_ms", job.due_ms),
        ];
        made.begin(operation, about, attributes, job.request)
    }

    /// Exports the remaining spans; later ones are dropped.
    pub async fn stop(self) {
        let Some(made) = self.made else { return };
        // It waits for the exporter, which needs this runtime.
        let last = tokio::task::spawn_blocking(move || {
            made.provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT)
        })
        .await;
        if let Ok(Err(error)) = last {
            tracing::warn!(%error, "the last spans could not be exported");
        }
    }
}

/// An operation on a message.
struct Operation {
    /// The system's own name.
    name: &'static str,
    /// The type of operation, which is the same on all systems.
    kind: &'static str,
    span: SpanKind,
}

impl Operation {
    const PROCESS: Operation =
        Operation { name: "process", kind: "process", span: SpanKind::Consumer };
}

impl TracePipeline {
    fn begin(
        &self,
        operation: Operation,
        about: About<'_>,
        mut attributes: Vec<KeyValue>,
        link: Option<&str>,
    ) -> Span {
        let About { connector, exchange, address, template, group, message } = about;
        let to = Destination { exchange: exchange.to_owned(), address: address.to_owned() };
        let destination = connector.span_destination(&to);
        let place = template.unwrap_or(&destination);
        let name = format!("{} {place}", operation.name);
        attributes.extend([
            KeyValue::new("messaging.operation.name", operation.name),
            KeyValue::new("messaging.operation.type", operation.kind),
            KeyValue::new("messaging.system.name", connector.span_system()),
            // Its name before version 1.45, which most tools know messages by.
            KeyValue::new("messaging.system", connector.span_system()),
        ]);
        if let Some(pattern) = template {
            attributes.push(KeyValue::new("messaging.destination.template", pattern.to_owned()));
        }
        attributes.push(KeyValue::new("messaging.destination.name", destination));
        if message.has_body {
            let bytes = i64::try_from(message.body.len()).unwrap_or(i64::MAX);
            attributes.push(KeyValue::new("messaging.message.body.size", bytes));
        }
        let own = connector.span_attributes(&to, group, message);
        attributes.extend(own.into_iter().map(attribute));
        // The message's own context is also a link, for tools that follow links only.
        let parent = parent(&message.headers);
        let links =
            link.and_then(read).into_iter().chain(valid(&parent)).map(Link::with_context).collect();
        let builder = self
            .tracer
            .span_builder(name)
            .with_kind(operation.span)
            .with_attributes(attributes)
            .with_links(links);
        Span { span: Some(Box::new(self.tracer.build_with_context(builder, &parent))) }
    }
}

impl Span {
    /// The `traceparent` of this span, for a link to it; `None` without a span.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        let context = self.span.as_ref()?.span_context();
        context.is_valid().then(|| {
            format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags())
        })
    }

    /// The trace of this span, if it is exported; `None` without a span.
    #[must_use]
    pub fn sampled_trace(&self) -> Option<TraceId> {
        let context = self.span.as_ref()?.span_context();
        context.is_sampled().then(|| TraceId(u128::from_be_bytes(context.trace_id().to_bytes())))
    }

    /// Sets how long after the due time an attempt has its outcome, µs. The time is read only if
    /// there is a span.
    pub fn lateness(&mut self, us: impl FnOnce() -> i64) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new("dwell.lateness_ms", us().max(0) / 1000));
        }
    }

    /// Sets the job's id.
    pub fn job(&mut self, id: &str) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new("messaging.message.id", id.to_owned()));
        }
    }

    /// Ends the span with a verdict or an outcome.
    pub fn succeeded(mut self, outcome: &'static str) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new("dwell.outcome", outcome));
        }
    }

    /// Ends the span with an error: its type and its text.
    pub fn failed(mut self, kind: &'static str, why: &str) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new("error.type", kind));
            span.set_status(Status::error(why.to_owned()));
        }
    }
}

/// The context in a message's headers; empty if there is none.
fn parent(headers: &Headers) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Carrier(headers))
}

/// The context in a `traceparent`; `None` if it has none.
fn valid(context: &Context) -> Option<SpanContext> {
    Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
}

fn read(traceparent: &str) -> Option<SpanContext> {
    let mut headers = Headers::default();
    headers.push(TRACEPARENT, traceparent.into());
    valid(&parent(&headers))
}

fn attribute((name, value): (&'static str, Value)) -> KeyValue {
    match value {
        Value::Bool(value) => KeyValue::new(name, value),
        Value::I64(value) => KeyValue::new(name, value),
        other => KeyValue::new(name, other.plain().unwrap_or_default().into_owned()),
    }
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
impl Traces {
    /// Spans that nobody gets.
    pub(crate) fn unexported() -> Traces {
        let provider = SdkTracerProvider::builder().build();
        let tracer = provider.tracer("dwell");
        Traces { made: Some(TracePipeline { provider, tracer }) }
    }
}

#[cfg(test)]
mod tests {
    use dwell_connectors::{BrokerConfig, Message, memory};
    use opentelemetry_sdk::trace::SpanData;

    use super::*;

    const PRODUCER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const REQUEST: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

    fn data(span: &Span) -> SpanData {
        span.span.as_ref().unwrap().exported_data().unwrap()
    }

    /// The attributes, in the order of their names.
    fn attributes(data: &SpanData) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = data
            .attributes
            .iter()
            .map(|attribute| (attribute.key.as_str().to_owned(), attribute.value.to_string()))
            .collect();
        all.sort();
        all
    }

    fn links(data: &SpanData) -> Vec<String> {
        data.links.iter().map(|link| link.span_context.span_id().to_string()).collect()
    }

    /// The parts of a span about this message, to or from `address`.
    fn about<'a>(
        connector: &'a BrokerConfig,
        address: &'a str,
        template: Option<&'a str>,
        message: &'a Message,
    ) -> About<'a> {
        About { connector, exchange: "", address, template, group: "", message }
    }

    fn expected(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_attempt_is_a_client_span_by_the_pattern_of_its_target_and_links_to_its_producer() {
        let connector = BrokerConfig::Memory(memory::Config::from(&memory::Broker::new()));
        let message = Message::new("body").with_header(TRACEPARENT, PRODUCER);
        let job = AboutAttempt { attempt: 2, due_ms: 1_700_000_000_000, request: Some(REQUEST) };
        let place = about(&connector, "orders.eu.close", Some("orders.*"), &message);
        let mut span = Traces::unexported().attempt(place, job);
        span.job("a");
        span.lateness(|| 12_999);
        let data = data(&span);
        assert_eq!(
            (&*data.name, &data.span_kind, data.parent_span_id.to_string().as_str()),
            ("publish orders.*", &SpanKind::Client, "b7ad6b7169203331")
        );
        assert_eq!(
            attributes(&data),
            expected(&[
                ("dwell.attempt", "2"),
                ("dwell.due_ms", "1700000000000"),
                ("dwell.lateness_ms", "12"),
                ("messaging.destination.name", "orders.eu.close"),
                ("messaging.destination.template", "orders.*"),
                ("messaging.message.body.size", "4"),
                ("messaging.message.id", "a"),
                ("messaging.operation.name", "publish"),
                ("messaging.operation.type", "send"),
                ("messaging.system", "memory"),
                ("messaging.system.name", "memory"),
            ])
        );
        assert_eq!(links(&data), ["00f067aa0ba902b7", "b7ad6b7169203331"]);
        assert_eq!(message.headers.text(TRACEPARENT), Some(PRODUCER), "untouched");
    }

    #[test]
    fn a_request_is_a_consumer_span_by_its_topic() {
        let connector = BrokerConfig::Memory(memory::Config::from(&memory::Broker::new()));
        let message = Message::new("");
        let span = Traces::unexported().request(about(&connector, "delay.in", None, &message));
        let data = data(&span);
        assert_eq!((&*data.name, &data.span_kind), ("process delay.in", &SpanKind::Consumer));
        assert_eq!(
            attributes(&data),
            expected(&[
                ("messaging.destination.name", "delay.in"),
                ("messaging.message.body.size", "0"),
                ("messaging.operation.name", "process"),
                ("messaging.operation.type", "process"),
                ("messaging.system", "memory"),
                ("messaging.system.name", "memory"),
            ])
        );
        assert!(links(&data).is_empty());
    }

    #[test]
    fn only_a_sampled_span_has_a_trace_that_is_found_again() {
        let connector = BrokerConfig::Memory(memory::Config::from(&memory::Broker::new()));
        let trace = |flags: &str| {
            let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
            let message = Message::new("").with_header(TRACEPARENT, parent);
            let span = Traces::unexported().request(about(&connector, "in", None, &message));
            span.sampled_trace().map(|trace| trace.to_string())
        };
        assert_eq!(trace("01").as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
        assert_eq!((trace("00"), Span::default().sampled_trace()), (None, None));
        let mut none = Span::default();
        none.lateness(|| panic!("the time is read although there is no span"));
    }
}
