//! RabbitMQ does not number its messages: a request that was handed out again and is read last
//! without the mark `redelivered` is a new job, whose attempts begin at 1 again ("rather a
//! duplicate than a loss"). Only around a fault that hands requests out again, and only of what
//! came by message.

use super::timeline::{Came, Timeline};
use super::windows::FaultWindows;
use crate::chaos::history::History;

/// The deliveries of one id in the order in which the broker has them, by the job that they are of.
pub(super) struct Redelivery<'a>(Vec<Vec<Came<'a>>>);

impl<'a> Redelivery<'a> {
    pub(super) fn of(history: &History, windows: &FaultWindows<'_>, timeline: &Timeline<'a>) -> Redelivery<'a> {
        let mut came = timeline.deliveries.clone();
        // Not in that in which they were read.
        came.sort_by_key(|came| (came.taken_us(), &came.what.place));
        let numbered = history.head.broker != "amqp" || !timeline.by_message;
        // While the first one lives, a request that is read again is known.
        let again = |before: &Came<'_>, came: &Came<'_>| {
            let arrived = (before.taken_us(), came.taken_us());
            !numbered && came.what.attempt == Some(1) && windows.hands_out_again(timeline.sent_us, came.what.due_ms, arrived)
        };
        let mut lives: Vec<Vec<Came<'a>>> = Vec::new();
        for came in came {
            match lives.last_mut() {
                Some(life) if !again(&life[life.len() - 1], &came) => life.push(came),
                _ => lives.push(vec![came]),
            }
        }
        Redelivery(lives)
    }

    /// Each of them; none of what never came.
    pub(super) fn each(&self) -> impl Iterator<Item = &[Came<'a>]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// How often it was carried out anew.
    pub(super) fn begun_again(&self) -> u64 {
        self.0.len().saturating_sub(1) as u64
    }

    /// Whether this is the first message of a job that was begun anew.
    pub(super) fn begins(&self, came: &Came<'_>) -> bool {
        self.0.iter().skip(1).any(|life| std::ptr::eq(life[0].what, came.what))
    }
}
