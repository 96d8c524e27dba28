//! Listeners that speak the protocols of other delay queues, so that their clients need no change.
//! They are thin: each call is a call of [`Service`], which the protocols share.
//!
//! - [`delay_queue`]: that of ouqiang/delay-queue, and its older form with a single URL.
//! - [`lmstfy`]: that of bitleak/lmstfy.
//! - [`listeners`]: their addresses; [`access`]: the callers; [`service`]: the work of a call;
//!   `fields`: JSON as Go reads it.

pub mod access;
pub mod delay_queue;
mod fields;
pub mod listeners;
pub mod lmstfy;
pub mod service;

pub use access::Access;
pub use service::Service;
