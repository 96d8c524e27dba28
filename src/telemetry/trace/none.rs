//! Spans of a build without the feature `otel`: none.

use super::{About, TraceError};

/// No spans.
#[derive(Debug, Clone, Default)]
pub struct Traces {}

/// No span.
#[derive(Debug, Default)]
pub struct Span {}

impl Traces {
    /// Makes no spans.
    pub fn from_environment() -> Result<Self, TraceError> {
        Ok(Traces {})
    }

    /// No span.
    #[must_use]
    pub fn request(&self, _: About<'_>) -> Span {
        Span {}
    }

    /// No span.
    #[must_use]
    pub fn attempt(&self, _: About<'_>, _: u32, _: Option<&str>) -> Span {
        Span {}
    }

    /// Does nothing.
    pub async fn stop(self) {}
}

impl Span {
    /// `None`.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        None
    }

    /// Does nothing.
    pub fn job(&mut self, _: &str) {}

    /// Does nothing.
    pub fn succeeded(self, _: &'static str) {}

    /// Does nothing.
    pub fn failed(self, _: &'static str, _: &str) {}
}
