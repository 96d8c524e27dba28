//! The laboratory of Dwell: not shipped, and built on the sidecar's own library.
//!
//! - [`demo`]: what `make demo` shows.
//! - [`mod@bench`]: load, and what came of it: `make bench`.
//! - [`chaos`]: faults under load, and a checker of what came of them: `make chaos`.
//! - [`cli`]: the commands of `dwell-lab`.

pub mod bench;
pub mod chaos;
pub mod cli;
pub mod demo;
pub mod markers;
