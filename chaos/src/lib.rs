//! Breaks Dwell, its Redis and its brokers on purpose, while load runs, and checks that no promise broke with them.
//!
//! In reading order:
//! - [`proxy`]: a link that can be broken.
//! - [`world`]: what a campaign runs on: servers, instances and the links between them.
//! - [`fault`]: what can be done to a world; `faults`: how.

pub mod fault;
mod faults;
pub mod proxy;
pub mod world;
