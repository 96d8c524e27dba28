//! Tests on real servers: each test starts its own, on free ports and in temporary folders.
#![recursion_limit = "256"]
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::disallowed_methods, reason = "tests measure time themselves")]

#[path = "../support/mod.rs"]
mod support;

mod bridge;
mod commands;
#[cfg(feature = "nats")]
mod deploy;
mod http;
#[cfg(all(feature = "http", feature = "nats"))]
mod http_targets;
#[cfg(feature = "nats")]
mod odd_requests;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]
mod peers;
mod preload;
mod redis_kinds;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]
mod routes;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "nats", feature = "otel"))]
mod secrets;
mod servers;
mod store;
#[cfg(all(feature = "nats", feature = "otel"))]
mod traces;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]
mod verdicts;
