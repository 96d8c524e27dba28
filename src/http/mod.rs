//! The HTTP listeners: probes and metrics on `[probes]`, the admin API on `[http]`.
//!
//! - [`listener`]: binds an address of the settings, serves a router on it, ends with the rest; [`Door`]: before there is anything to serve.
//! - [`api`]: `/v1`, and the way of a request to its calls: `trace`, `guard`, `extract`; [`problem`]: its errors.
//! - A file a resource: `jobs`, `schedule`, `actions`, `horizon`, `stats`, `events`; [`openapi`] describes them.
//! - `dashboard`: `/`, the pages for people that work on these calls.
//! - [`rates`]: what this instance does per second.
//! - [`probes`]: `/livez`, `/readyz`, `/metrics`.
//! - [`readiness`]: what `/readyz` waits for, told by the agents.

mod actions;
pub mod api;
mod bundle;
mod dashboard;
mod door;
mod events;
mod extract;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod guard;
mod horizon;
mod jobs;
pub mod listener;
pub mod openapi;
mod page;
pub mod probes;
pub mod problem;
pub mod rates;
pub mod readiness;
mod schedule;
mod stats;
mod text;
mod trace;

pub use door::Door;
pub use listener::{ListenError, Listener};
pub use problem::Problem;
pub use rates::Rates;
pub use readiness::{Readiness, Waiting};
