//! Queues under load and faults: consumers that fetch over HTTP, as strangers would.
//!
//! - [`campaign`]: consumers, instances and Redis are killed, and Redis fails over.
//!   - `consumer`, `words`, `producer`: the load; `scene`: what they share; `tally`: its numbers.
//!   - `faults`: those of [`chaos`](crate::chaos) that a queue has.
//!   - `ledger`: what each consumer saw; `check`: whether that breaks a promise.
//! - [`mod@bench`]: how fast, how late, and what waiting consumers cost; `place`: its private
//!   servers.
//! - `answers`: those of the HTTP API to consumers; `limit`: open files.

mod answers;
pub mod bench;
pub mod campaign;
mod check;
mod consumer;
mod faults;
mod ledger;
pub(crate) mod limit;
pub(crate) mod place;
mod producer;
mod scene;
mod tally;
mod words;
