//! The admin API of `[http]`: the calls of `/v1` and their description.
//!
//! - `state`: the state that the calls share; `guard`: authentication; `caller`: the caller, and
//!   the rights of the token.
//! - `routes`: the calls, a file a resource: `jobs`, `new_jobs` with its `job_request`, `actions`,
//!   `schedules`, `pop`, `leases`, `queues`, `horizon`, `stats`, `events` with its `feed`;
//!   [`rates`]: the work of this instance per second.
//! - `extract`, `text`, `empty`, `one_or_many` and `queue_name` read the arguments of calls;
//!   [`openapi`] describes the calls.

mod actions;
pub(crate) mod caller;
mod empty;
mod events;
pub(crate) mod extract;
mod feed;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub(crate) mod guard;
mod horizon;
mod job_request;
mod jobs;
mod leases;
mod new_jobs;
pub(crate) mod one_or_many;
pub mod openapi;
pub(crate) mod pop;
mod queue_name;
mod queues;
pub mod rates;
pub(super) mod routes;
mod schedules;
mod state;
mod stats;
mod text;

pub use state::{Api, Parts};
