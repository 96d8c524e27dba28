//! Tests on real servers: each starts its own, on free ports and in temporary folders.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::disallowed_methods, reason = "tests measure time themselves")]

#[path = "../support/mod.rs"]
mod support;

mod demo;
#[cfg(feature = "nats")]
mod odd_requests;
mod servers;
mod store;
