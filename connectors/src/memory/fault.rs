//! Faults of publications, and which publications they affect.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The result of a publication instead of a confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Unroutable, as if the topic did not exist.
    Unroutable,
    /// Refused.
    Refused,
    /// Invalid.
    Invalid,
    /// Invalid if [`crate::Message::size`] exceeds this.
    TooLarge(usize),
    /// Unknown at once.
    Unknown {
        /// Whether the message is stored nevertheless.
        landed: bool,
    },
    /// No answer: unknown at the end of `publish_timeout`, or when the connection is cut.
    Silent {
        /// Whether the message is stored nevertheless.
        landed: bool,
    },
    /// Not stored, and never an answer: the client hangs.
    Stuck,
    /// Stored, but the confirm is held until [`super::Broker::release`] (or the end of
    /// `publish_timeout`).
    Hold,
    /// Stored, but the confirm comes this much later.
    Delay(Duration),
}

/// The faults that are set, each with its number of uses left.
#[derive(Debug, Default)]
pub(super) struct Faults {
    by_topic: BTreeMap<String, VecDeque<(Fault, Option<usize>)>>,
    all: Option<Fault>,
}

impl Faults {
    pub(super) fn add(&mut self, topic: Option<&str>, fault: Fault, times: Option<usize>) {
        match topic {
            Some(topic) => {
                self.by_topic.entry(topic.to_owned()).or_default().push_back((fault, times))
            }
            None => self.all = Some(fault),
        }
    }

    /// The fault of this publication, if any; counts one use.
    pub(super) fn strike(&mut self, topic: &str) -> Option<Fault> {
        if let Some(queue) = self.by_topic.get_mut(topic) {
            while let Some((fault, times)) = queue.front_mut() {
                match times {
                    None => return Some(*fault),
                    Some(0) => drop(queue.pop_front()),
                    Some(times) => {
                        *times -= 1;
                        return Some(*fault);
                    }
                }
            }
        }
        self.all
    }
}
