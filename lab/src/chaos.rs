//! Breaks Dwell, its Redis and its brokers on purpose, while load runs, and checks that no promise
//! broke with them.
//!
//! In reading order:
//! - [`proxy`]: a link that can be broken.
//! - [`system`]: what a campaign runs on: servers, instances and the links between them.
//! - [`fault`]: what can be done to a system; [`mod@inject`]: how.
//! - [`history`]: the record of a run; [`recorder`]: writes it while the run goes on; [`checker`]:
//!   a record in, a verdict out.
//! - [`load`]: producers, and readers of everything that comes of what they ask for.
//! - [`plan`]: which faults in which order; [`campaign`]: a system, load and a plan, then the
//!   verdict.
//! - [`report`]: what campaigns came to, in numbers; [`page`]: the same as documentation.

pub mod campaign;
pub mod checker;
pub mod fault;
pub mod history;
pub mod inject;
pub mod load;
pub mod page;
pub mod plan;
pub mod proxy;
pub mod recorder;
pub mod report;
pub mod system;
