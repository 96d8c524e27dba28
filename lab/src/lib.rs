//! The laboratory of Dwell: not shipped, and built on the sidecar's own library.
//!
//! - [`demo`]: the demo, `make demo`.
//! - [`mod@bench`]: the load generator, `make bench`.
//! - [`chaos`]: faults under load, and a checker of the results, `make chaos`.
//! - [`queue`]: consumers that fetch, measured.
//! - [`http`]: HTTP targets, measured.
//! - [`schedules`]: recurring schedules under faults, measured.
//! - [`smoothing`]: limits, bursts of requests and events of jobs, measured.
//! - [`checker`]: the rules of the measurements.
//! - `place`: the servers of a measurement; `own_process`: processes of this program.
//! - `client`: a link to the HTTP API of an instance.
//! - [`cli`]: the commands of `dwell-lab`; [`words`]: their words for settings and faults.

pub mod bench;
pub mod chaos;
pub mod checker;
pub mod cli;
mod client;
pub mod demo;
pub mod http;
pub mod markers;
mod own_process;
mod place;
pub mod queue;
pub mod schedules;
pub mod smoothing;
mod sums;
pub mod words;
