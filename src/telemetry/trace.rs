//! Spans: one for each request and one for each attempt, with a link from the attempt to the
//! request.
//!
//! Both are children of the span in the message's `traceparent`. The message keeps its own: Dwell's
//! spans are not part of its path. The context of the request's span is stored with the job,
//! because another instance may make the attempt days later. Names and attributes follow
//! OpenTelemetry's semantic conventions for messaging, version 1.45.
//!
//! Without the feature `otel`, or without an endpoint in the environment, no spans are made.
//!
//! - `otlp`: the spans and their export; `none`: a build without them.
//! - `jobs`: the ends of spans, by the events of jobs.
//! - `templates`: the patterns of `allow`, by which spans of many destinations have one name.

mod jobs;
#[cfg(feature = "otel")]
mod otlp;
#[cfg(not(feature = "otel"))]
#[path = "trace/none.rs"]
mod otlp;
mod templates;

use std::fmt;

use dwell_connectors::{BrokerConfig, Message};

pub use jobs::end;
pub use otlp::{Span, Traces};
pub use templates::Templates;

/// The header that carries the trace context (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
/// The vendor-specific part of the trace context.
pub const TRACESTATE: &str = "tracestate";

/// Why spans cannot be exported.
#[derive(Debug, Clone, thiserror::Error)]
#[error("OTEL_EXPORTER_OTLP_ENDPOINT: {0}")]
pub struct TraceError(pub String);

/// The trace of a span, 16 bytes. Shown as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The attributes of a span.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The broker of the message.
    pub connector: &'a BrokerConfig,
    /// The attempt's exchange; empty for a request, and where there is none.
    pub exchange: &'a str,
    /// The ingest's topic, or the attempt's subject, topic or routing key.
    pub address: &'a str,
    /// The pattern of `allow` that admits the attempt's destination; `None` for a request.
    pub template: Option<&'a str>,
    /// The consumer group of a request; empty for an attempt.
    pub group: &'a str,
    /// The message, whose headers have the parent span.
    pub message: &'a Message,
}

/// What a span says of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct AboutAttempt<'a> {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The due time of the schedule, epoch ms.
    pub due_ms: i64,
    /// The [`Span::traceparent`] of the request that made the job.
    pub request: Option<&'a str>,
}
