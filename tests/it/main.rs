//! Tests in this process: house rules, and the agents on a broker in memory with a Redis of their
//! own.
#![recursion_limit = "256"]
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::disallowed_methods, reason = "tests measure time themselves")]

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "nats")]
mod bridge;
mod broker_names;
mod circles;
mod counting;
mod layers;
mod publisher;
mod tidy;
