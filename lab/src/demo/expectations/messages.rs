//! The facts in a broker's messages about the jobs of the demo.

use std::borrow::Cow;

use dwell_connectors::Message;

use super::{Arrival, Expectations};
use dwell::delayed_headers;

/// The destination of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At its target.
    Target,
    /// Among the dead letters.
    Dead,
    /// Among the rejected requests.
    Rejected,
    /// Among the verdicts.
    Verdicts,
}

impl Expectations {
    /// Records a message with its time of receipt (epoch µs). Returns a line for the screen.
    pub fn saw(&mut self, place: Place, message: &Message, at_us: i64) -> String {
        let text = |name: &str| message.headers.text(name);
        let id = text(delayed_headers::ID).unwrap_or("?");
        match place {
            Place::Target => {
                let number =
                    |name: &str| written(message, name).and_then(|text| text.parse::<i64>().ok());
                let arrival = Arrival {
                    id,
                    target: &message.destination.address,
                    body: &message.body,
                    attempt: number(delayed_headers::ATTEMPT)
                        .and_then(|attempt| u32::try_from(attempt).ok())
                        .unwrap_or(0),
                    due_ms: number(delayed_headers::DUE).unwrap_or(0),
                };
                self.arrived(&arrival, at_us)
            }
            Place::Dead => {
                let attempt =
                    written(message, delayed_headers::ATTEMPT).unwrap_or_else(|| "?".to_owned());
                let error = text(delayed_headers::LAST_ERROR).unwrap_or_default();
                self.died(id, &attempt, error, text(delayed_headers::DEAD_REASON).unwrap_or("?"))
            }
            Place::Rejected => {
                let detail = text(delayed_headers::ERROR_DETAIL).unwrap_or_default();
                self.rejected(
                    text("delay-id").unwrap_or("?"),
                    text(delayed_headers::ERROR).unwrap_or("?"),
                    detail,
                )
            }
            Place::Verdicts => {
                let answer: serde_json::Value =
                    serde_json::from_slice(&message.body).unwrap_or_default();
                self.verdict(
                    answer["id"].as_str().unwrap_or("?"),
                    answer["verdict"].as_str().unwrap_or("?"),
                )
            }
        }
    }
}

/// A header, which is a number on AMQP and text elsewhere.
fn written(message: &Message, name: &str) -> Option<String> {
    message.headers.get(name)?.written().map(Cow::into_owned)
}
