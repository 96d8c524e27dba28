//! The HTTP listeners: probes and metrics on `[probes]`, the admin API and the dashboard on
//! `[http]`. Imports go one way: [`router`] uses all, [`api`] and `dashboard` use [`server`], which
//! uses neither.
//!
//! - [`server`]: connections, the memory and time of calls, their errors, and the probes.
//! - [`api`]: the calls of `/v1`.
//! - `dashboard`: `/`, the pages, which use these calls.
//! - [`router`]: the router of `[http]`, with its middleware.

pub mod api;
mod dashboard;
pub mod router;
pub mod server;

pub use api::rates::Rates;
pub use server::{ListenError, Listener, Problem, Room, StartGate};
