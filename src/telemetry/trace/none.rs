//! Spans of a build without the feature `otel`: none.

use super::{About, AboutAttempt, TraceError, TraceId};

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

    /// False.
    #[must_use]
    pub fn is_on(&self) -> bool {
        false
    }

    /// No span.
    #[must_use]
    pub fn request(&self, _: About<'_>) -> Span {
        Span {}
    }

    /// No span.
    #[must_use]
    pub fn attempt(&self, _: About<'_>, _: AboutAttempt<'_>) -> Span {
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

    /// `None`.
    #[must_use]
    pub fn sampled_trace(&self) -> Option<TraceId> {
        None
    }

    /// Does nothing.
    pub fn lateness(&mut self, _: impl FnOnce() -> i64) {}

    /// Does nothing.
    pub fn job(&mut self, _: &str) {}

    /// Does nothing.
    pub fn succeeded(self, _: &'static str) {}

    /// Does nothing.
    pub fn failed(self, _: &'static str, _: &str) {}
}
