//! The target of a job: a destination on a broker, or a queue.

use std::fmt;

use dwell_core::Destination;

/// The place that gets a job once it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Target {
    /// A destination on a broker, to which an instance publishes the job.
    Broker {
        /// The `[brokers.NAME]` to publish to.
        broker: String,
        /// The destination on that broker.
        to: Destination,
    },
    /// A queue of Dwell, from which consumers fetch the job.
    Queue {
        /// The name of the queue.
        queue: String,
    },
}

impl Target {
    /// The queue; `None` for a destination on a broker.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        match self {
            Target::Queue { queue } => Some(queue),
            Target::Broker { .. } => None,
        }
    }

    /// The broker; `None` for a queue.
    #[must_use]
    pub fn broker(&self) -> Option<&str> {
        match self {
            Target::Broker { broker, .. } => Some(broker),
            Target::Queue { .. } => None,
        }
    }

    /// The destination on the broker; `None` for a queue.
    #[must_use]
    pub fn destination(&self) -> Option<&Destination> {
        match self {
            Target::Broker { to, .. } => Some(to),
            Target::Queue { .. } => None,
        }
    }
}

/// For people: the destination without its broker, or the name of the queue.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Broker { to, .. } => to.fmt(f),
            Target::Queue { queue } => f.write_str(queue),
        }
    }
}
