//! The maintenance of a namespace.
//!
//! - [`sweep`]: removes entries past their retention.
//! - [`transfer`]: moves jobs from one broker to another.
//! - [`fsck`]: finds and repairs damage; [`preflight`]: the checks of a start; [`upgrade`]: from an
//!   older schema to this one.
//! - [`queues`]: pauses and purges a queue, and forgets empty ones.
//! - `bare_set`: for measurements.

mod bare_set;
pub mod fsck;
pub mod preflight;
pub mod queues;
pub mod sweep;
pub mod transfer;
pub mod upgrade;

use std::sync::Arc;

use super::namespace::Namespace;

/// Maintains a namespace.
pub struct Admin {
    namespace: Arc<Namespace>,
    /// The turn of a pause: pauses beside each other would exceed their bound together.
    pausing: tokio::sync::Mutex<()>,
}

impl Admin {
    pub(super) fn new(namespace: Arc<Namespace>) -> Admin {
        Admin { namespace, pausing: tokio::sync::Mutex::default() }
    }
}
