//! The HTTP listeners: probes and metrics on `[probes]`, later the admin API on `[http]`.
//!
//! - [`listener`]: binds an address of the settings, serves a router on it, ends with the rest.
//! - [`probes`]: `/livez`, `/readyz`, `/metrics`.
//! - [`readiness`]: what `/readyz` waits for, told by the agents.

pub mod listener;
pub mod probes;
pub mod readiness;

pub use listener::{ListenError, Listener};
pub use readiness::{Readiness, Waiting};
