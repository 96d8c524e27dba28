//! Jobs that run again. RabbitMQ does not number its messages: if a redelivered request is stored
//! last by the reader that got it without the mark `redelivered`, it is a new job, whose attempts
//! count from 1 again ("rather a duplicate than a loss"). This is allowed only around a fault that
//! causes redelivery, and only for requests by message.

use super::timeline::{Came, Timeline};
use super::windows::FaultWindows;

/// The deliveries of one id in the broker's order, grouped by the job that they belong to.
pub(super) struct Redelivery<'a>(Vec<Vec<Came<'a>>>);

impl<'a> Redelivery<'a> {
    pub(super) fn of(windows: &FaultWindows<'_>, timeline: &Timeline<'a>) -> Redelivery<'a> {
        let mut came = timeline.deliveries.clone();
        // The broker's order may differ from the order of reading.
        came.sort_by_key(|came| (came.taken_us(), &came.what.place));
        let numbered = windows.head.broker != "amqp" || !timeline.by_message;
        // While the first job exists, a redelivered request is recognised.
        let again = |before: &Came<'_>, came: &Came<'_>| {
            let arrived = (before.taken_us(), came.taken_us());
            !numbered
                && came.what.attempt == Some(1)
                && windows.hands_out_again(timeline.sent_us, came.what.due_ms, arrived)
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

    /// The groups; none without deliveries.
    pub(super) fn each(&self) -> impl Iterator<Item = &[Came<'a>]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// The number of times that the job ran again.
    pub(super) fn begun_again(&self) -> u64 {
        self.0.len().saturating_sub(1) as u64
    }

    /// Whether this is the first message of a job that runs again.
    pub(super) fn begins(&self, came: &Came<'_>) -> bool {
        self.0.iter().skip(1).any(|life| std::ptr::eq(life[0].what, came.what))
    }
}
