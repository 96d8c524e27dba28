//! A message becomes a request, or is refused with a code. Pure: no clock, no network, never a panic.
//!
//! In reading order: `parse` is the way of a message; `control` is what it asks, whichever form it came in, and reads the `delay-*` headers; `dialect` reads the
//! headers of other schedulers (`etf1` what one of them makes of keys), `envelope` a JSON body; `target` says where it may go, `headers` what passes on, `origin` tells it from every other; `rounds` counts how often one of ours came back; `moved` judges a job that goes to another broker; `rules` are the settings it is judged by, and `reject` why it is refused.

mod control;
mod dialect;
mod envelope;
mod etf1;
mod headers;
mod moved;
mod origin;
mod parse;
mod reject;
mod rounds;
mod rules;
mod target;
#[cfg(all(test, feature = "amqp", feature = "kafka", feature = "nats"))]
mod tests;

pub use moved::Moving;
pub use parse::{act_on, asked, due_within, kept, parse};
pub use reject::{Code, Rejection};
pub use rules::{BrokerRules, Rules};

pub use dwell_engine::request::{Act, Origin, Request, Schedule};
