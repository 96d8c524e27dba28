//! What can go wrong with a publication, and which publications it strikes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What becomes of a publication instead of a confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// As if there were no such topic.
    Unroutable,
    /// Not taken now.
    Refused,
    /// Never taken.
    Invalid,
    /// Never taken where [`crate::Message::size`] is more than this.
    TooLarge(usize),
    /// Reported as unknown at once.
    Unknown {
        /// Whether it was published all the same.
        landed: bool,
    },
    /// No answer: reported as unknown at the end of `publish_timeout`, or when the link is cut.
    Silent {
        /// Whether it was published all the same.
        landed: bool,
    },
    /// Not published, and no answer ever: the client stands still.
    Stuck,
    /// Published, but the confirm is held until [`super::Broker::release`] (or the end of `publish_timeout`).
    Hold,
    /// Published, but the confirm comes this much later.
    Delay(Duration),
}

/// The faults that are set, each with how often it still strikes.
#[derive(Debug, Default)]
pub(super) struct Faults {
    by_topic: BTreeMap<String, VecDeque<(Fault, Option<usize>)>>,
    all: Option<Fault>,
}

impl Faults {
    pub(super) fn add(&mut self, topic: Option<&str>, fault: Fault, times: Option<usize>) {
        match topic {
            Some(topic) => self.by_topic.entry(topic.to_owned()).or_default().push_back((fault, times)),
            None => self.all = Some(fault),
        }
    }

    /// The fault that strikes this publication, if any; counts it.
    pub(super) fn strike(&mut self, topic: &str) -> Option<Fault> {
        if let Some(line) = self.by_topic.get_mut(topic) {
            while let Some((fault, times)) = line.front_mut() {
                match times {
                    None => return Some(*fault),
                    Some(0) => drop(line.pop_front()),
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
