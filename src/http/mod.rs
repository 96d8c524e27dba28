//! The HTTP listeners: probes and metrics on `[probes]`, the admin API on `[http]`.
//!
//! - [`listener`]: binds an address of the settings, serves a router on it, ends with the rest.
//! - [`api`]: `/v1`; [`problem`]: its errors; [`rates`]: what this instance does per second.
//! - [`probes`]: `/livez`, `/readyz`, `/metrics`.
//! - [`readiness`]: what `/readyz` waits for, told by the agents.

pub mod api;
pub mod listener;
pub mod probes;
pub mod problem;
pub mod rates;
pub mod readiness;

pub use listener::{ListenError, Listener};
pub use problem::Problem;
pub use rates::Rates;
pub use readiness::{Readiness, Waiting};
