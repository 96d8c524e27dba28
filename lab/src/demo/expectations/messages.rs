//! The facts in a broker's messages about the jobs of the demo.

use std::borrow::Cow;

use dwell_connectors::Message;

use super::{Arrival, Expectations};
use dwell::delayed_headers::{ATTEMPT, DEAD_REASON, DUE, ERROR, ERROR_DETAIL, ID, LAST_ERROR};

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
        let text = |name: &str| message.headers.text(name).unwrap_or("?");
        let number = |name: &str| written(message, name).and_then(|text| text.parse::<i64>().ok());
        let id = text(ID);
        match place {
            Place::Target => {
                let (target, body) = (&message.destination.address, &message.body);
                let attempt = u32::try_from(number(ATTEMPT).unwrap_or(0)).unwrap_or(0);
                let due_ms = number(DUE).unwrap_or(0);
                self.arrived(&Arrival { id, target, body, attempt, due_ms }, at_us)
            }
            Place::Dead => {
                let attempt = written(message, ATTEMPT).unwrap_or_else(|| "?".to_owned());
                self.died(id, &attempt, text(LAST_ERROR), text(DEAD_REASON))
            }
            Place::Rejected => self.rejected(text("delay-id"), text(ERROR), text(ERROR_DETAIL)),
            Place::Verdicts => {
                let answer: serde_json::Value =
                    serde_json::from_slice(&message.body).unwrap_or_default();
                let text = |name: &str| answer[name].as_str().unwrap_or("?");
                self.verdict(text("id"), text("verdict"))
            }
        }
    }
}

/// A header, which is a number on AMQP and text elsewhere.
fn written(message: &Message, name: &str) -> Option<String> {
    message.headers.get(name)?.written().map(Cow::into_owned)
}
