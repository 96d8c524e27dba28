//! Breaks Dwell, its Redis and its brokers on purpose, while load runs, and checks that no promise broke with them.
//!
//! In reading order:
//! - [`history`]: the record of a run; [`ledger`]: writes it while the run goes on; [`checker`]: a record in, a verdict out.

pub mod checker;
pub mod history;
pub mod ledger;
