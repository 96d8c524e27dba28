//! The store on real Redis servers: every script, every verdict, and what faults do to them.

pub(crate) mod acts;
mod again;
mod batches;
pub(crate) mod bed;
mod cases;
mod claims;
mod failover;
mod full;
mod gate;
mod late;
mod leases;
mod link;
mod lossy;
mod memories;
mod model;
mod requests;
mod speed;
mod stalled;
mod transfer;
mod types;
