//! The store on real Redis servers: every script, every verdict, and the effect of faults.

pub(crate) mod actions;
mod batches;
mod cases;
mod claims;
mod connection;
mod debounce;
mod durability;
mod ends;
mod expire;
mod failover;
pub(crate) mod fixture;
mod full;
mod late;
mod leases;
mod lossy;
mod model;
mod one_lease;
mod owners;
mod remembered;
mod repeated_calls;
mod requests;
mod speed;
mod stalled;
mod transfer;
mod types;
