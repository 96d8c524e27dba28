//! Injects faults into Dwell, its Redis and its brokers under load, and checks that every promise
//! holds.
//!
//! In reading order:
//! - [`proxy`]: a link that can fail.
//! - [`system`]: the system under test: servers, instances and the links between them.
//! - [`fault`]: the kinds of faults; [`mod@inject`]: how each is injected.
//! - [`history`]: the record of a run; [`recorder`]: writes it; [`checker`]: turns a history into
//!   a verdict.
//! - [`load`]: producers, and readers of all results; `queue`: the same of the queue scenario.
//! - [`plan`]: the order of the faults; [`campaign`]: a system, load and a plan, then the
//!   verdict.
//! - [`report`]: the numbers of campaigns; [`page`]: the same as documentation.
//! - [`error`]: the error of all; `wait`: waits with a limit.

pub mod campaign;
pub mod checker;
pub mod error;
pub mod fault;
pub mod history;
pub mod inject;
pub mod load;
pub mod page;
pub mod plan;
pub mod proxy;
pub(crate) mod queue;
pub mod recorder;
pub mod report;
pub mod system;
pub(crate) mod wait;
