//! The server of every HTTP listener: connections, the memory and time of calls, and their errors.
//!
//! - [`listener`]: binds an address and serves a router on it; [`StartGate`] answers before the
//!   store is reached.
//! - [`account`]: the memory of a call; `transfers`: the large bodies under way; `call_timeout`:
//!   the time of a call.
//! - `later`: the answers of calls that wait; `waits`: how many may wait.
//! - `trace`: the request id and the log line of a call; [`problem`]: errors.
//! - [`probes`]: `/livez`, `/readyz`, `/metrics`.

pub mod account;
pub(super) mod call_timeout;
pub(crate) mod later;
pub mod listener;
pub mod probes;
pub mod problem;
mod start_gate;
pub(crate) mod trace;
mod transfers;
pub(crate) mod waits;

pub use listener::{ListenError, Listener, Room};
pub use problem::Problem;
pub use start_gate::StartGate;
