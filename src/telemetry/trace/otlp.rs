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

use super::{About, TRACEPARENT, TRACESTATE, TraceError};
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

    /// The span of a request: from its receipt until it is applied.
    #[must_use]
    pub fn request(&self, about: About<'_>) -> Span {
        self.begin("process", SpanKind::Consumer, about, Vec::new(), None)
    }

    /// The span of an attempt: from the publication to its outcome. `request`: the
    /// [`Span::traceparent`] of the request that made the job.
    #[must_use]
    pub fn attempt(&self, about: About<'_>, attempt: u32, request: Option<&str>) -> Span {
        let attempt = KeyValue::new("dwell.attempt", i64::from(attempt));
        // Not a producer span: the message keeps the context that it came with.
        self.begin("send", SpanKind::Client, about, vec![attempt], request)
    }

    fn begin(
        &self,
        operation: &'static str,
        kind: SpanKind,
        about: About<'_>,
        mut more: Vec<KeyValue>,
        link: Option<&str>,
    ) -> Span {
        let Some(made) = &self.made else { return Span::default() };
        let About { connector, exchange, address, group, message } = about;
        let to = Destination { exchange: exchange.to_owned(), address: address.to_owned() };
        let destination = connector.span_destination(&to);
        more.extend([
            KeyValue::new("messaging.operation.name", operation),
            KeyValue::new("messaging.operation.type", operation),
            KeyValue::new("messaging.destination.name", destination.clone()),
        ]);
        more.extend(connector.span_attributes(&to, group, message).into_iter().map(attribute));
        // The message's own context is also a link, for tools that follow links only.
        let parent = parent(&message.headers);
        let links =
            link.and_then(read).into_iter().chain(valid(&parent)).map(Link::with_context).collect();
        let builder = made
            .tracer
            .span_builder(format!("{operation} {destination}"))
            .with_kind(kind)
            .with_attributes(more)
            .with_links(links);
        Span { span: Some(Box::new(made.tracer.build_with_context(builder, &parent))) }
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

impl Span {
    /// The `traceparent` of this span, for a link to it; `None` without a span.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        let context = self.span.as_ref()?.span_context();
        context.is_valid().then(|| {
            format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags())
        })
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
