//! Promises of Dwell's parsers for any input: each target takes any bytes, and panics where a
//! promise broke.
//!
//! `tests/corpus.rs` feeds each target its archive in `corpus/`, its folder in `regressions/`, and
//! random bytes; `make fuzz` looks for more, led by coverage (see `driver/`).
//!
//! - `allow`: the allow-list and the brokers' own destinations, beside a naive matcher.
//! - `request`: a message on an ingest, in both formats, on each kind of broker: what is accepted,
//!   and what becomes of what is refused.
//! - `http`: the bodies of `POST /v1/jobs` and of `PUT /v1/schedules/{id}`, and the query of a list with
//!   its cursor.
//! - `record`: what Redis holds of a job.
//! - `wire`: AMQP's frames and NATS's header blocks, as producers can make them.
//! - `secrets`: passwords in URLs, however they are misspelt and wherever they stand: no output has
//!   a part of one.
//! - `units`: durations, sizes and times.
#![cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]

mod allow;
mod http;
mod input;
mod naive;
mod promises;
mod record;
mod request;
mod rules;
mod secrets;
mod units;
mod wire;

/// A target: its name, as its archive in `corpus/` and its folder in `regressions/`, and what it
/// does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 7] = [
    ("allow", allow::target),
    ("http", http::target),
    ("record", record::target),
    ("request", request::target),
    ("secrets", secrets::target),
    ("units", units::target),
    ("wire", wire::target),
];
