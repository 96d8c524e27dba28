//! The ends of spans, by the events of jobs.

use super::Span;
use crate::events::JobEvent;

/// Ends the span of a request or an attempt with its event.
pub fn end(span: Span, event: &JobEvent<'_>) {
    match *event {
        JobEvent::Received { verdict, .. } => span.succeeded(verdict.as_str()),
        JobEvent::BadRequest { code, detail, .. } => span.failed(code, detail),
        JobEvent::Attempted { outcome, error, .. }
        | JobEvent::DeadLetter { outcome, error, .. } => match error {
            None => span.succeeded(outcome.as_str()),
            Some(why) => span.failed(outcome.as_str(), why),
        },
        // No other event ends a span.
        _ => {}
    }
}
