//! Breaks Dwell, its Redis and its brokers on purpose, while load runs, and checks that no promise broke with them.
//!
//! In reading order:
//! - [`proxy`]: a link that can be broken.
//! - [`world`]: what a campaign runs on: servers, instances and the links between them.
//! - [`fault`]: what can be done to a world; `faults`: how.
//! - [`history`]: the record of a run; [`ledger`]: writes it while the run goes on; [`checker`]: a record in, a verdict out.

pub mod checker;
pub mod fault;
mod faults;
pub mod history;
pub mod ledger;
pub mod proxy;
pub mod world;
