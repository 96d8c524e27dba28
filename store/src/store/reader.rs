//! Looks at a namespace and changes nothing.
//!
//! - [`lookup`]: one job; [`list`]: pages of jobs.
//! - `leases`: the jobs in claims; [`active`]: the queues that have jobs.
//! - [`counts`], [`queues`] and `horizon`: the numbers of jobs, and their due times.
//! - `limited`: the limits that hold jobs back.
//! - [`redis_stats`]: the resources that Redis uses.

pub mod active;
pub mod counts;
mod horizon;
pub(in crate::store) mod leases;
mod limited;
pub mod list;
pub mod lookup;
pub mod queues;
pub mod redis_stats;

use std::sync::Arc;

use super::namespace::Namespace;

/// Reads a namespace.
pub struct Reader {
    namespace: Arc<Namespace>,
}

impl Reader {
    pub(super) fn new(namespace: Arc<Namespace>) -> Reader {
        Reader { namespace }
    }
}
