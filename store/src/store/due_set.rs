//! The owners of sets of jobs, and the names of their sets in Redis.

use std::borrow::Cow;
use std::fmt;

use crate::job::{Job, Target};

/// The prefix of the names of a queue's sets. No broker's name has this character.
const QUEUE_PREFIX: char = '=';

/// The owner of sets of jobs in Redis: each broker and each queue has its own. The name of the sets
/// is in keys, in the arguments of scripts and in wake-ups; only this type writes and reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueSet<'a> {
    /// A broker. The name of its sets is its own.
    Broker(&'a str),
    /// A queue. The name of its sets is `=` and its own.
    Queue(&'a str),
}

impl<'a> DueSet<'a> {
    /// The owner of the sets in which a job is.
    #[must_use]
    pub fn of(job: &'a Job) -> Self {
        match &job.target {
            Target::Broker { broker, .. } => DueSet::Broker(broker),
            Target::Queue { queue } => DueSet::Queue(queue),
        }
    }

    /// The owner of the sets of this name.
    #[must_use]
    pub fn named(name: &'a str) -> Self {
        match name.strip_prefix(QUEUE_PREFIX) {
            Some(queue) => DueSet::Queue(queue),
            None => DueSet::Broker(name),
        }
    }

    /// The name of the sets.
    #[must_use]
    pub fn name(self) -> Cow<'a, str> {
        match self {
            DueSet::Broker(broker) => broker.into(),
            DueSet::Queue(_) => self.to_string().into(),
        }
    }

    /// The queue; `None` for a broker.
    #[must_use]
    pub fn queue(self) -> Option<&'a str> {
        match self {
            DueSet::Broker(_) => None,
            DueSet::Queue(queue) => Some(queue),
        }
    }

    /// Whether the sets belong to a queue.
    #[must_use]
    pub fn is_of_queue(self) -> bool {
        self.queue().is_some()
    }
}

/// The name of the sets.
impl fmt::Display for DueSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DueSet::Broker(broker) => f.write_str(broker),
            DueSet::Queue(queue) => write!(f, "{QUEUE_PREFIX}{queue}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_core::Destination;

    use super::*;

    #[test]
    fn the_name_of_a_set_tells_its_owner() {
        let (of_queue, of_broker) =
            (Job::for_queue("a.B-1_", ""), Job::new("main", Destination::new("t"), ""));
        for (job, owner, name) in [
            (&of_queue, DueSet::Queue("a.B-1_"), "=a.B-1_"),
            (&of_broker, DueSet::Broker("main"), "main"),
        ] {
            assert_eq!((DueSet::of(job), DueSet::named(name)), (owner, owner));
            assert_eq!((&*owner.name(), owner.to_string().as_str()), (name, name));
        }
        assert_eq!(DueSet::named("=a").queue(), Some("a"));
        assert_eq!(DueSet::named("a").queue(), None);
    }
}
