//! Spans: one for each request that comes in, one for each attempt, and a link from the second to the first.
//!
//! Both are children of the span whose `traceparent` the message carries. The messages keep theirs: spans of ours stand beside the way of a
//! message, not in it. What the request's span is called is kept with the job, as the attempt may be another instance's, days later. Names and
//! attributes are those of OpenTelemetry's semantic conventions for messaging.
//!
//! Without the feature `otel`, or without an endpoint in the environment, nothing is made and nothing costs.

#[cfg(feature = "otel")]
mod otlp;
#[cfg(not(feature = "otel"))]
#[path = "trace/none.rs"]
mod otlp;

use dwell_connectors::{BrokerConfig, Message};

pub use otlp::{Span, Traces};

/// The header by which a trace goes from one process to the next (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
/// What a trace's owners add to it.
pub const TRACESTATE: &str = "tracestate";

/// Why spans cannot be exported.
#[derive(Debug, Clone, thiserror::Error)]
#[error("OTEL_EXPORTER_OTLP_ENDPOINT: {0}")]
pub struct TraceError(pub String);

/// What a span is about.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The broker of the message.
    pub connector: &'a BrokerConfig,
    /// The attempt's exchange; empty for a request, and where there is none.
    pub exchange: &'a str,
    /// The ingest's topic, or the attempt's subject, topic or routing key.
    pub address: &'a str,
    /// The group that the request was read for; empty for an attempt.
    pub group: &'a str,
    /// Its headers say which trace it belongs to.
    pub message: &'a Message,
}
