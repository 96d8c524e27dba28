//! A topic: a log, and the progress of each group.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Message, Start};

#[derive(Debug, Default)]
pub(super) struct Topic {
    pub(super) log: Vec<Stored>,
    groups: BTreeMap<String, Group>,
    /// The offsets whose first ack was lost; `None` if no acks are to be lost.
    lost_acks: Option<BTreeSet<usize>>,
}

#[derive(Debug)]
pub(super) struct Stored {
    pub(super) message: Message,
    pub(super) dedupe_id: String,
}

#[derive(Debug, Default)]
struct Group {
    /// The first offset that was never delivered.
    next: usize,
    /// Delivered and nacked.
    again: BTreeSet<usize>,
    /// Delivered and not settled.
    out: BTreeSet<usize>,
    /// The number of deliveries.
    delivered: usize,
}

impl Topic {
    pub(super) fn push(
        &mut self,
        name: &str,
        mut message: Message,
        dedupe_id: &str,
        timestamp_ms: i64,
    ) {
        message.destination = crate::Destination::new(name);
        message.position = Some(super::position(name, self.log.len() as u64 + 1));
        message.timestamp_ms = Some(timestamp_ms);
        message.redelivered = false;
        self.log.push(Stored { message, dedupe_id: dedupe_id.to_owned() });
    }

    /// Sets the start of a new group.
    pub(super) fn begin(&mut self, group: &str, start: Start) {
        let is_older = |stored: &&Stored| match start {
            Start::Earliest => false,
            Start::Latest => true,
            Start::At(ms) => stored.message.timestamp_ms < Some(ms),
        };
        let next = self.log.iter().take_while(is_older).count();
        self.groups.entry(group.to_owned()).or_insert_with(|| Group { next, ..Group::default() });
    }

    /// The next messages for this group with their offsets, nacked messages first. At most `count`
    /// messages and `bytes` of memory; at least one if available and `count` is not zero.
    pub(super) fn take(
        &mut self,
        group: &str,
        count: usize,
        bytes: usize,
    ) -> (Vec<usize>, Vec<Message>) {
        let group = self.groups.entry(group.to_owned()).or_default();
        let (mut offsets, mut messages, mut size) = (Vec::new(), Vec::new(), 0);
        while offsets.len() < count {
            let again = group.again.first().copied();
            let offset = again.unwrap_or(group.next);
            let Some(stored) = self.log.get(offset) else { break };
            size += stored.message.footprint();
            if size > bytes && !offsets.is_empty() {
                break;
            }
            if again.is_some() {
                group.again.remove(&offset);
            } else {
                group.next += 1;
            }
            group.out.insert(offset);
            group.delivered += 1;
            offsets.push(offset);
            messages.push(Message { redelivered: again.is_some(), ..stored.message.clone() });
        }
        (offsets, messages)
    }

    pub(super) fn lose_first_acks(&mut self) {
        self.lost_acks.get_or_insert_default();
    }

    pub(super) fn ack(&mut self, group: &str, offsets: &[usize]) {
        let (lost, heard): (Vec<usize>, Vec<usize>) = offsets
            .iter()
            .partition(|offset| self.lost_acks.as_mut().is_some_and(|lost| lost.insert(**offset)));
        self.give_back(group, &lost);
        self.acked(group, &heard);
    }

    fn acked(&mut self, group: &str, offsets: &[usize]) {
        if let Some(group) = self.groups.get_mut(group) {
            for offset in offsets {
                // Missing in both if a cut returned the message and another source has it: a late
                // ack still counts.
                group.out.remove(offset);
                group.again.remove(offset);
            }
        }
    }

    pub(super) fn give_back(&mut self, group: &str, offsets: &[usize]) {
        if let Some(group) = self.groups.get_mut(group) {
            for offset in offsets {
                if group.out.remove(offset) {
                    group.again.insert(*offset);
                }
            }
        }
    }

    pub(super) fn give_back_all(&mut self) {
        for group in self.groups.values_mut() {
            group.again.append(&mut group.out);
        }
    }

    pub(super) fn delivered(&self, group: &str) -> usize {
        self.groups.get(group).map_or(0, |group| group.delivered)
    }

    pub(super) fn unacked(&self, group: &str) -> usize {
        self.groups.get(group).map_or(self.log.len(), |group| {
            self.log.len() - group.next + group.again.len() + group.out.len()
        })
    }
}
