//! The main job end to end: `dwell run` as a process of its own, a real Redis, a real NATS, faults,
//! and a ledger over all of it.
//!
//! - [`env`]: the servers, the streams, the reader that fills the ledger.
//! - [`load`]: a producer, and jobs of mixed delays.
//! - The rest: a story each.

mod consumer;
mod crash;
pub(crate) mod environment;
mod fleet;
mod fsck;
mod garbage;
mod idle;
mod inbound;
mod instances;
mod instant;
pub(crate) mod load;
mod metrics;
mod nats_away;
mod provoked;
mod redis_away;
mod slow_network;
mod stop;
mod target_away;
mod upgrade;
