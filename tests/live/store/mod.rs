//! The store on real Redis servers: every script, every verdict, and what faults do to them.

mod acts;
mod bed;
mod cases;
mod failover;
mod full;
mod gate;
mod leases;
mod link;
mod memories;
mod model;
mod requests;
mod speed;
