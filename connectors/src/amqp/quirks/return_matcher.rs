//! Finds out which publications were returned, although confirms carry the wrong returned messages.
//!
//! - Behaviour: RabbitMQ returns an unroutable message before it confirms the message. lapin 4.12
//!   gives a returned message to whichever confirm it completes next (`complete_pending` in
//!   `src/acknowledgement.rs`, `get_waiting_message` in `src/returned_messages.rs`; since
//!   amqp-rs/lapin#252). So a confirm may carry the returned message of another publication, while
//!   its own still waits.
//! - Workaround: each publication has a mark, and a confirm is judged only when no returned message
//!   of its publication can be waiting any more.
//! - May go when lapin gives each returned message to the confirm of its own publication.
//!
//! When a confirm is judged:
//!
//! - It carries no message: then none was waiting, its own included, and every message returned
//!   before is on one of the confirms that are ready now.
//! - It carries the message of another publication: once a later publication was returned, or a
//!   later confirm carries no message, or no confirm is outstanding.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

/// The header that marks a publication without a `message_id`, or whose `message_id` is already in
/// flight.
const MARK_HEADER: &str = "delayed-publication";

/// The verdict on one publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::amqp) enum PublishVerdict {
    /// Confirmed and not returned.
    Taken,
    /// Returned: no queue took it.
    Returned,
    /// Nacked.
    Nacked,
    /// Confirmed, but a message without a mark was returned.
    Unclear,
}

/// The kind of a confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::amqp) enum ConfirmKind {
    Ack,
    Nack,
}

/// The publications on one channel by number; numbers increase in the order of publishing.
#[derive(Debug, Default)]
pub(in crate::amqp) struct ReturnMatcher {
    /// The publications that are identified by their message id.
    by_id: HashMap<ShortString, u64>,
    /// Returned and not judged yet.
    returned: HashSet<u64>,
    /// The highest number that was returned.
    latest: u64,
    /// Confirmed since the last judgement, and whether the confirm carried another publication's
    /// message.
    fresh: Vec<(u64, ConfirmKind, bool)>,
    /// Confirmed before and not judged: each carried another publication's message.
    waiting: Vec<(u64, ConfirmKind)>,
    /// A confirm since the last judgement carried no message.
    calm: bool,
    /// A message without a mark was returned.
    strays: bool,
}

impl ReturnMatcher {
    /// Marks a publication.
    pub(in crate::amqp) fn mark(
        &mut self,
        number: u64,
        properties: BasicProperties,
    ) -> BasicProperties {
        // A mark in the received message would look like one of ours.
        let foreign =
            properties.headers().as_ref().is_some_and(|headers| headers.contains_key(MARK_HEADER));
        let by_id = match properties.message_id().clone().map(|id| self.by_id.entry(id)) {
            Some(Entry::Vacant(free)) => {
                free.insert(number);
                true
            }
            Some(Entry::Occupied(_)) | None => false,
        };
        // Nearly every publication: its headers are not copied.
        if by_id && !foreign {
            return properties;
        }
        let mut headers = FieldTable::default();
        for (name, value) in properties
            .headers()
            .iter()
            .flat_map(|headers| headers.inner())
            .filter(|(name, _)| name.as_str() != MARK_HEADER)
        {
            headers.insert(name.clone(), value.clone());
        }
        if !by_id {
            headers.insert(MARK_HEADER.into(), AMQPValue::LongLongInt(number.cast_signed()));
        }
        properties.with_headers(headers)
    }

    /// Records a confirm, and the message that it carried, if any.
    pub(in crate::amqp) fn confirmed(
        &mut self,
        number: u64,
        kind: ConfirmKind,
        carried: Option<&BasicProperties>,
    ) {
        let Some(carried) = carried else {
            self.calm = true;
            return self.fresh.push((number, kind, false));
        };
        let returned = self.number(carried);
        match returned {
            Some(returned) => {
                self.returned.insert(returned);
                self.latest = self.latest.max(returned);
            }
            None => self.strays = true,
        }
        self.fresh.push((number, kind, returned != Some(number)));
    }

    fn number(&self, properties: &BasicProperties) -> Option<u64> {
        let mark =
            properties.headers().as_ref().and_then(|headers| headers.inner().get(MARK_HEADER));
        match mark {
            Some(AMQPValue::LongLongInt(number)) => Some(number.cast_unsigned()),
            _ => self.by_id.get(properties.message_id().as_ref()?).copied(),
        }
    }

    /// Judges all publications that can be judged. Call it after every ready confirm is recorded.
    /// `all`: no other confirm is outstanding.
    pub(in crate::amqp) fn classify(&mut self, all: bool) -> Vec<(u64, PublishVerdict)> {
        let (calm, strays) = (std::mem::take(&mut self.calm), std::mem::take(&mut self.strays));
        let mut verdicts = Vec::with_capacity(self.fresh.len());
        let mut waiting = Vec::new();
        let earlier = std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|(number, kind)| (number, kind, !calm));
        for (number, kind, open) in earlier.chain(std::mem::take(&mut self.fresh)) {
            let returned = self.returned.remove(&number);
            if open && !all && !returned && self.latest < number {
                waiting.push((number, kind));
                continue;
            }
            let verdict = match kind {
                _ if returned => PublishVerdict::Returned,
                ConfirmKind::Nack => PublishVerdict::Nacked,
                ConfirmKind::Ack if strays => PublishVerdict::Unclear,
                ConfirmKind::Ack => PublishVerdict::Taken,
            };
            verdicts.push((number, verdict));
        }
        self.waiting = waiting;
        verdicts
    }

    /// Forgets the mark of a publication.
    pub(in crate::amqp) fn forget(&mut self, number: u64, id: Option<&ShortString>) {
        if let Some(id) = id
            && self.by_id.get(id) == Some(&number)
        {
            self.by_id.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Publications 1 to `count`, every second one with a message id.
    fn published(count: u64) -> (ReturnMatcher, Vec<BasicProperties>) {
        let mut matcher = ReturnMatcher::default();
        let marked = (1..=count).map(|number| {
            let properties = BasicProperties::default();
            let properties = if number % 2 == 0 {
                properties.with_message_id(format!("m{number}").into())
            } else {
                properties
            };
            matcher.mark(number, properties)
        });
        let marked = marked.collect();
        (matcher, marked)
    }

    fn sorted(mut verdicts: Vec<(u64, PublishVerdict)>) -> Vec<(u64, PublishVerdict)> {
        verdicts.sort_by_key(|(number, _)| *number);
        verdicts
    }

    #[test]
    fn a_message_on_the_wrong_confirm_is_told_by_its_mark() {
        let (mut matcher, sent) = published(4);
        // 3 was returned, and the confirm of 1 carries it.
        matcher.confirmed(1, ConfirmKind::Ack, Some(&sent[2]));
        matcher.confirmed(2, ConfirmKind::Nack, None);
        matcher.confirmed(3, ConfirmKind::Ack, None);
        let verdicts = sorted(matcher.classify(false));
        assert_eq!(
            verdicts,
            [
                (1, PublishVerdict::Taken),
                (2, PublishVerdict::Nacked),
                (3, PublishVerdict::Returned)
            ]
        );
        matcher.confirmed(4, ConfirmKind::Ack, Some(&sent[3]));
        assert_eq!(matcher.classify(true), [(4, PublishVerdict::Returned)]);
    }

    #[test]
    fn a_confirm_that_carries_an_earlier_message_waits_for_its_own() {
        let (mut matcher, sent) = published(6);
        // 2 and 3 were returned, and the confirm of 3 carries 2: its own message is still to come.
        matcher.confirmed(3, ConfirmKind::Ack, Some(&sent[1]));
        assert_eq!(matcher.classify(false), []);
        matcher.confirmed(2, ConfirmKind::Ack, Some(&sent[2]));
        assert_eq!(
            sorted(matcher.classify(false)),
            [(2, PublishVerdict::Returned), (3, PublishVerdict::Returned)]
        );

        // As before, but 5 was not returned: a confirm without a message shows that, or a later
        // return.
        for later in [None, Some(&sent[5])] {
            let (mut matcher, _) = published(6);
            matcher.confirmed(5, ConfirmKind::Ack, Some(&sent[3]));
            assert_eq!(matcher.classify(false), []);
            matcher.confirmed(1, ConfirmKind::Ack, later);
            assert_eq!(
                sorted(matcher.classify(false)),
                [(1, PublishVerdict::Taken), (5, PublishVerdict::Taken)]
            );
            matcher.confirmed(4, ConfirmKind::Ack, None);
            assert_eq!(matcher.classify(false), [(4, PublishVerdict::Returned)]);
        }
        let (mut matcher, _) = published(6);
        matcher.confirmed(5, ConfirmKind::Ack, Some(&sent[3]));
        assert_eq!(matcher.classify(true), [(5, PublishVerdict::Taken)]);
    }

    #[test]
    fn a_message_id_that_is_in_flight_twice_gets_a_mark() {
        let mut matcher = ReturnMatcher::default();
        let same = || BasicProperties::default().with_message_id("same".into());
        let (first, second) = (matcher.mark(1, same()), matcher.mark(2, same()));
        assert!(
            first.headers().is_none()
                && second
                    .headers()
                    .as_ref()
                    .is_some_and(|headers| headers.contains_key(MARK_HEADER))
        );
        matcher.confirmed(1, ConfirmKind::Ack, Some(&second));
        matcher.confirmed(2, ConfirmKind::Ack, None);
        assert_eq!(
            sorted(matcher.classify(true)),
            [(1, PublishVerdict::Taken), (2, PublishVerdict::Returned)]
        );
        matcher.forget(2, Some(&"same".into()));
        assert!(matcher.mark(3, same()).headers().is_some(), "the first is still out");
        matcher.forget(1, Some(&"same".into()));
        assert!(matcher.mark(4, same()).headers().is_none());
    }

    #[test]
    fn a_mark_that_came_with_the_message_is_not_ours() {
        let (mut matcher, _) = published(1);
        let mut headers = FieldTable::default();
        headers.insert(MARK_HEADER.into(), AMQPValue::LongLongInt(1));
        headers.insert("kept".into(), AMQPValue::Void);
        let marked = matcher.mark(
            2,
            BasicProperties::default().with_message_id("own".into()).with_headers(headers),
        );
        let headers = marked.headers().clone().unwrap_or_default();
        assert!(!headers.contains_key(MARK_HEADER) && headers.contains_key("kept"));
    }

    #[test]
    fn an_unmarked_message_leaves_the_others_unclear() {
        let (mut matcher, _) = published(2);
        matcher.confirmed(1, ConfirmKind::Ack, Some(&BasicProperties::default()));
        matcher.confirmed(2, ConfirmKind::Ack, None);
        assert_eq!(
            sorted(matcher.classify(true)),
            [(1, PublishVerdict::Unclear), (2, PublishVerdict::Unclear)]
        );
    }
}
