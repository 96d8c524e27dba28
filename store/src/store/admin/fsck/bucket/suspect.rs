//! An id to check, and the ids that were checked.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// An id to check.
pub(super) struct Suspect {
    pub(super) id: Vec<u8>,
    /// The record if it cannot be decoded; else empty.
    pub(super) unreadable: Vec<u8>,
    pub(super) rounds: u8,
    /// The queues in whose sets the script looks for the id, by `=` and their names.
    pub(super) queues: Vec<String>,
}

impl Suspect {
    pub(super) fn new(id: Vec<u8>, queues: Vec<String>) -> Suspect {
        Suspect { id, unreadable: Vec::new(), rounds: 0, queues }
    }
}

/// The ids that were checked, each with the queue in whose sets it was looked for, as hashes: a
/// scan may return an element twice, and most ids are in several keys.
#[derive(Default)]
pub(super) struct Checked(HashMap<[u8; 16], [u8; 4]>);

impl Checked {
    /// Whether the id was not looked for in the sets of this queue. `None`: the sets of brokers and
    /// of the whole bucket, in which the script looks for each id.
    pub(super) fn is_new(&mut self, id: &[u8], queue: Option<&str>) -> bool {
        let tag = queue.map(|queue| {
            blake3::hash(queue.as_bytes()).as_bytes()[..4].try_into().unwrap_or_default()
        });
        match self.0.entry(std::array::from_fn(|i| blake3::hash(id).as_bytes()[i])) {
            Entry::Occupied(known) => tag.is_some_and(|tag: [u8; 4]| tag != *known.get()),
            Entry::Vacant(new) => {
                new.insert(tag.unwrap_or_default());
                true
            }
        }
    }
}
