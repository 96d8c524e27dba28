//! The consumers of jobs that they confirm themselves: each treats a message as the job's words
//! say.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell::clock;
use rand::RngExt;
use tokio::sync::mpsc::UnboundedReceiver;

use super::SEND_INTERVAL;
use super::draw::{Action, Plan, Seen};
use super::producer::Producer;
use super::request::Request;
use crate::chaos::history::{Consumer, Word};

/// The longest wait for a link to the broker.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// The working time of a consumer, ms.
const WORK_MS: std::ops::Range<i64> = 0..300;
/// The time from the end of the TTR to a late word, ms.
const LATE_WORD_MS: std::ops::Range<i64> = 50..900;
/// Until the second of two words, ms.
const SECOND_WORD_DELAY_MS: i64 = 150;

/// A message that its consumer confirms.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) id: String,
    pub(super) due_ms: i64,
    pub(super) attempt: u32,
    pub(super) consumer: Consumer,
}

/// Sends the words of all consumers, by messages and over HTTP, until dropped.
pub(super) async fn confirm(mut producer: Producer, mut received: UnboundedReceiver<Received>) {
    let mut words = Words::new();
    let mut number = 0;
    loop {
        clock::sleep(SEND_INTERVAL).await;
        while let Ok(message) = received.try_recv() {
            for (at_ms, action) in said(&message, clock::wall_ms()) {
                number += 1;
                let seen = Some(Seen { due_ms: message.due_ms, attempt: message.attempt, number });
                // Half of the words go over HTTP.
                let door = rand::rng().random_range(0..2 * producer.instances().max(1));
                let door = (door < producer.instances()).then_some(door);
                let plan = Plan { at_ms, action, due_ms: None, door, seen };
                words.insert((at_ms, number), (message.id.clone(), plan));
            }
        }
        let later = words.split_off(&(clock::wall_ms(), u64::MAX));
        let now = std::mem::replace(&mut words, later);
        let (by_http, messages): (Words, Words) =
            now.into_iter().partition(|(_, (_, plan))| plan.door.is_some());
        producer.send(requests(&by_http)).await;
        if messages.is_empty() {
            continue;
        }
        if clock::timeout(READY_TIMEOUT, producer.ready()).await == Some(true) {
            producer.send(requests(&messages)).await;
        } else {
            // A consumer without a broker says it once there is one.
            words.extend(messages);
        }
    }
}

/// The words, by time and number, each with the id of its job.
type Words = BTreeMap<(i64, u64), (String, Plan)>;

fn requests(words: &Words) -> Vec<Request> {
    words.values().map(|(id, plan)| Request::control(id, plan)).collect()
}

/// The words about a message: when, epoch ms, and which.
fn said(message: &Received, now_ms: i64) -> Vec<(i64, Action)> {
    let mut rng = rand::rng();
    let soon_ms = now_ms + rng.random_range(WORK_MS);
    let later_ms = soon_ms + SECOND_WORD_DELAY_MS;
    match message.consumer.word(message.attempt) {
        Word::Finish => vec![(soon_ms, Action::Finish)],
        Word::FinishTwice => vec![(soon_ms, Action::Finish), (later_ms, Action::Finish)],
        Word::FinishLate => {
            let ttr_ms = i64::try_from(message.consumer.ttr_ms).unwrap_or(i64::MAX);
            vec![(now_ms + ttr_ms + rng.random_range(LATE_WORD_MS), Action::Finish)]
        }
        Word::Fail => vec![(soon_ms, Action::Fail)],
        Word::FailThenFinish => vec![(soon_ms, Action::Fail), (later_ms, Action::Finish)],
        Word::Silent => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_says_what_its_words_are() {
        let said = |words: &[Word]| {
            let consumer = Consumer { ttr_ms: 5000, words: words.to_vec() };
            said(&Received { id: "a".to_owned(), due_ms: 7, attempt: 1, consumer }, 1000)
        };
        assert!(said(&[Word::Silent]).is_empty());
        assert_eq!(
            said(&[Word::FailThenFinish]).iter().map(|(_, action)| *action).collect::<Vec<_>>(),
            [Action::Fail, Action::Finish]
        );
        assert!(said(&[Word::FinishLate])[0].0 > 6000 && said(&[Word::Finish])[0].0 < 6000);
        assert_eq!(said(&[Word::FinishTwice]).len(), 2);
    }
}
