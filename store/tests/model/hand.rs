//! The jobs and the acknowledgements of the consumers of queues.

use crate::call::Set;
use crate::world::SPAN;

/// A job in the hands of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Hand {
    /// The lease: the nonce of the pop.
    pub(crate) nonce: u8,
    pub(crate) set: Set,
    pub(crate) id: u8,
    /// Ghost. The schedule.
    pub(crate) number: u8,
    /// The place in the retry array, which has one wait.
    pub(crate) step: u16,
    /// The time at which the consumer gets the job, epoch ms.
    pub(crate) ready: i64,
}

/// A consumer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Consumer {
    pub(crate) hands: Vec<Hand>,
    /// A pop whose answer was lost.
    pub(crate) lost: Option<(u8, Set)>,
}

impl Consumer {
    pub(crate) fn is_idle(&self) -> bool {
        self.hands.is_empty() && self.lost.is_none()
    }
}

/// The lease action that ended a lease, if a repeat is answered alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Failed,
    Dead,
    Released,
}

/// The last hand-out of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Out {
    pub(crate) nonce: u8,
    /// The number of the consumer in the pop.
    pub(crate) consumer: i64,
    /// The end of the lease, epoch ms.
    pub(crate) until: i64,
    /// The time at which the consumer gets the job, epoch ms.
    pub(crate) ready: i64,
    /// The job was popped before that time.
    pub(crate) is_early: bool,
    pub(crate) end: Option<End>,
}

/// A lease action. The last two are actions of the store, on jobs that it popped too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    Finish,
    Fail,
    /// Gives the job back, due after so many ms.
    Release(i64),
    Touch,
    Drop,
    Bury,
}

impl Word {
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Word::Finish => "finish",
            Word::Fail => "fail",
            Word::Release(_) => "release",
            Word::Touch => "touch",
            Word::Drop => "drop",
            Word::Bury => "bury",
        }
    }

    /// The action in a trace.
    pub(crate) fn says(self) -> &'static str {
        match self {
            Word::Finish => "finishes",
            Word::Fail => "fails",
            Word::Release(0) => "releases",
            Word::Release(_) => "releases for later",
            Word::Touch => "touches",
            Word::Drop => "drops",
            Word::Bury => "buries as late",
        }
    }

    /// The argument of the lease action in a call.
    pub(crate) fn more(self, hand: &Hand) -> String {
        match self {
            Word::Finish | Word::Drop => String::new(),
            Word::Fail if hand.step == 0 => format!("+{SPAN}:failed"),
            Word::Fail => ":failed".to_owned(),
            Word::Release(wait_ms) => format!("+{wait_ms}"),
            Word::Touch => format!("+{SPAN}"),
            Word::Bury => "3:late".to_owned(),
        }
    }

    /// The verdict for a consumer that holds the job.
    pub(crate) fn verdict(self, hand: &Hand) -> &'static str {
        match self {
            Word::Finish => "finished",
            Word::Fail if hand.step == 0 => "failed",
            Word::Fail | Word::Bury => "dead",
            Word::Release(_) => "released",
            Word::Touch => "touched",
            Word::Drop => "dropped",
        }
    }

    /// The verdict once the lease has ended so, until the job is handed out again.
    pub(crate) fn repeated(self, end: Option<End>) -> Option<&'static str> {
        match (self, end?) {
            (Word::Fail, End::Failed) => Some("failed"),
            (Word::Fail, End::Dead) => Some("dead"),
            (Word::Release(_), End::Released) => Some("released"),
            _ => None,
        }
    }
}
