//! Queues under load and faults: consumers that fetch over HTTP, as strangers would.
//!
//! - [`campaign`]: consumers, instances and Redis are killed; `ledger`: what each consumer saw, and
//!   the check of it.
//! - [`bench`]: how fast, how late, and what waiting consumers cost.
//! - `http`: a link to an instance; `place`: the private servers.

pub mod bench;
pub mod campaign;
mod http;
mod ledger;
mod place;
