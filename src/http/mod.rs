//! The HTTP listeners: probes and metrics on `[probes]`, the admin API on `[http]`.
//!
//! - [`listener`]: binds an address and serves a router on it; [`StartGate`] answers before the
//!   store is reached; `later`: the answers of calls that wait; `waits`: how many may wait.
//! - [`api`]: the state of the calls; [`router`]: the router of `/v1` with its middleware: `trace`,
//!   `guard`; `caller`: the caller, and the rights of the token; [`account`]: the memory of a call.
//! - `routes`: the calls, a file a resource: `jobs`, `schedule`, `actions`, `pop`, `leases`,
//!   `queues`, `horizon`, `stats`, `events`; `extract`, `empty`, `one_or_many` and `queue_name`
//!   read their arguments, [`problem`] has their errors, [`openapi`] describes them.
//! - `dashboard`: `/`, the pages, which use these calls; `assets`, `bundle` and `page` put them
//!   together.
//! - [`rates`]: the work of this instance per second.
//! - [`probes`]: `/livez`, `/readyz`, `/metrics`.

pub mod account;
mod actions;
pub mod api;
mod assets;
mod bundle;
pub(crate) mod caller;
mod dashboard;
mod empty;
mod events;
pub(crate) mod extract;
mod feed;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub(crate) mod guard;
mod horizon;
mod jobs;
pub(crate) mod later;
mod leases;
pub mod listener;
mod new_jobs;
pub(crate) mod one_or_many;
pub mod openapi;
mod page;
pub(crate) mod pop;
pub mod probes;
pub mod problem;
mod queue_name;
mod queues;
pub mod rates;
pub mod router;
mod routes;
mod start_gate;
mod stats;
mod text;
pub(crate) mod trace;
mod transfers;
pub(crate) mod waits;

pub use listener::{ListenError, Listener, Room};
pub use problem::Problem;
pub use rates::Rates;
pub use start_gate::StartGate;
