//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use dwell_testkit::environment::{Failure, Result};

/// Files besides the connections of consumers.
const OTHER_FILES: u64 = 256;

/// Raises the limit so that so many consumers can have a connection each.
pub(crate) fn allow(consumers: usize) -> Result<()> {
    let (limit, wanted) = (getrlimit(Resource::Nofile), consumers as u64 + OTHER_FILES);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).map_err(|error| {
        Failure::Unexpected(format!("{consumers} consumers need {wanted} open files: {error}; raise the hard limit (ulimit -Hn {wanted})"))
    })
}
