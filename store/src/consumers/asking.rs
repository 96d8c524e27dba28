//! The pops that ask for jobs of one queue, until a call serves them.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::guard::PoppedJobs;
use crate::store::call::CALL_JOBS;
use crate::store::error::{Class, StoreError};
use crate::store::queue::pop::PopLimits;

/// The answer to a pop that asks.
pub(super) enum Answer {
    /// The jobs of a call.
    Popped(PoppedJobs),
    /// The queue is paused.
    Paused,
    /// No known job is due.
    NoneDue,
}

/// A pop that asks for jobs of a queue.
pub(super) struct Asking {
    /// What it asks for.
    pub(super) limits: PopLimits,
    /// Its number in the line.
    number: u64,
    /// Whether it asks the next bucket, where a call leaves it without a job.
    goes_on: bool,
    answer: oneshot::Sender<Result<Answer, StoreError>>,
    /// Tells the pop that its master does not answer; `None`: it knows.
    silence: Option<oneshot::Sender<()>>,
}

/// The answer that a pop waits for. Dropped, the jobs of the answer go back.
pub(super) struct Awaited {
    answer: oneshot::Receiver<Result<Answer, StoreError>>,
    silence: oneshot::Receiver<()>,
}

impl Asking {
    pub(super) fn new(limits: PopLimits, goes_on: bool) -> (Asking, Awaited) {
        let (answer, answered) = oneshot::channel();
        let (silence, silent) = oneshot::channel();
        (
            Asking { limits, number: 0, goes_on, answer, silence: Some(silence) },
            Awaited { answer: answered, silence: silent },
        )
    }

    /// The consumer went away.
    fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    /// Has the pop go on with other masters.
    pub(super) fn is_silent(&mut self) {
        if let Some(silence) = self.silence.take() {
            let _ = silence.send(());
        }
    }

    /// Whether it asks again after an answer without a job.
    pub(super) fn asks_again(&self) -> bool {
        self.goes_on && self.silence.is_some()
    }

    /// Gives the pop its answer. The jobs go back if its consumer went away.
    pub(super) fn answer(self, answer: Result<Answer, StoreError>) {
        let _ = self.answer.send(answer);
    }
}

impl Awaited {
    /// The answer, or the wait for it once its master is known not to answer.
    pub(super) async fn or_silence(mut self) -> Result<Result<Answer, StoreError>, Awaited> {
        let answer = tokio::select! {
            biased;
            answer = &mut self.answer => Some(ended(answer)),
            Ok(()) = &mut self.silence => None,
        };
        answer.ok_or(self)
    }

    /// The answer, however late it is.
    pub(super) async fn late(self) -> Result<Answer, StoreError> {
        ended(self.answer.await)
    }
}

/// The answer of a call, whose task may have ended without one.
fn ended(
    answer: Result<Result<Answer, StoreError>, oneshot::error::RecvError>,
) -> Result<Answer, StoreError> {
    answer.unwrap_or_else(|_| Err(StoreError::new(Class::Other, "the process ended during a pop")))
}

/// The pops that ask, in their order.
#[derive(Default)]
pub(super) struct Line {
    pops: VecDeque<Asking>,
    /// The jobs that they ask for.
    jobs: usize,
    /// The number of the last one that joined.
    last: u64,
}

impl Line {
    /// Adds a pop at the end.
    pub(super) fn join(&mut self, pop: Asking) {
        self.last += 1;
        self.jobs += pop.limits.most;
        self.pops.push_back(Asking { number: self.last, ..pop });
    }

    /// Puts pops that a call left without a job back where they were in order.
    pub(super) fn rejoin(&mut self, pops: Vec<Asking>) {
        for pop in pops {
            let at = self.pops.partition_point(|other| other.number < pop.number);
            self.jobs += pop.limits.most;
            self.pops.insert(at, pop);
        }
    }

    /// Whether a pop asks. Those at the front whose consumer went away leave.
    pub(super) fn has_next(&mut self) -> bool {
        while self.pops.front().is_some_and(Asking::is_given_up) {
            self.leave_first();
        }
        !self.pops.is_empty()
    }

    /// The jobs that all ask for.
    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Takes the first pops that together ask for so many jobs, as far as one call has room.
    pub(super) fn take(&mut self, jobs: usize) -> Vec<Asking> {
        let (mut pops, mut taken) = (Vec::new(), 0);
        while taken < jobs && self.has_next() {
            let most = self.pops.front().map_or(0, |pop| pop.limits.most);
            if taken > 0 && taken + most > CALL_JOBS {
                break;
            }
            taken += most;
            pops.extend(self.leave_first());
        }
        pops
    }

    /// Takes all pops.
    pub(super) fn take_all(&mut self) -> VecDeque<Asking> {
        self.jobs = 0;
        std::mem::take(&mut self.pops)
    }

    fn leave_first(&mut self) -> Option<Asking> {
        let first = self.pops.pop_front();
        self.jobs -= first.as_ref().map_or(0, |pop| pop.limits.most);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(most: usize) -> (Asking, Awaited) {
        let limits = PopLimits { ttr_ms: None, max_ttr_ms: 1, most, most_bytes: 1, room: None };
        Asking::new(limits, true)
    }

    /// A line of pops that ask for so many jobs each.
    fn line(most: &[usize]) -> (Line, Vec<Awaited>) {
        let (mut line, mut awaited) = (Line::default(), Vec::new());
        for most in most {
            let (pop, answer) = asking(*most);
            line.join(pop);
            awaited.push(answer);
        }
        (line, awaited)
    }

    fn most(pops: &[Asking]) -> Vec<usize> {
        pops.iter().map(|pop| pop.limits.most).collect()
    }

    #[test]
    fn pops_leave_in_their_order_until_they_ask_for_enough() {
        let (mut line, _awaited) = line(&[1, 2, 3, 4, 5]);
        let (first, second) = (line.take(3), line.take(7));
        assert_eq!((most(&first), most(&second), line.jobs()), (vec![1, 2], vec![3, 4], 5));
        // Their calls left them without a job, that of the later ones first.
        line.rejoin(second);
        line.rejoin(first);
        assert_eq!((line.jobs(), most(&line.take(10)), line.jobs()), (15, vec![1, 2, 3, 4], 5));
        assert_eq!((line.take_all().len(), line.jobs(), line.has_next()), (1, 0, false));
    }

    #[test]
    fn pops_share_a_call_as_far_as_it_has_room() {
        let (mut line, _awaited) = line(&[1, CALL_JOBS, 1]);
        assert_eq!(most(&line.take(8)), [1]);
        assert_eq!(most(&line.take(8)), [CALL_JOBS], "one that asks for enough shares no call");
        assert_eq!(most(&line.take(8)), [1]);
        assert!(line.take(8).is_empty());
    }

    #[test]
    fn pops_whose_consumers_went_away_leave() {
        let (mut line, mut awaited) = line(&[1, 2, 3, 4, 5]);
        for at in [4, 2, 0] {
            awaited.remove(at);
        }
        assert_eq!((most(&line.take(100)), line.has_next(), line.jobs()), (vec![2, 4], false, 0));
    }

    #[tokio::test]
    async fn a_pop_goes_on_where_its_master_is_silent_and_gets_a_late_answer() {
        let (mut pop, answer) = asking(1);
        assert!(pop.asks_again());
        pop.is_silent();
        let late = answer.or_silence().await.err().expect("no answer yet");
        assert!(!pop.asks_again());
        pop.answer(Ok(Answer::Paused));
        assert!(matches!(late.late().await, Ok(Answer::Paused)));
        let (pop, answer) = asking(1);
        drop(pop);
        let lost = answer.or_silence().await.ok().expect("the end of the call");
        assert_eq!(lost.err().map(|error| error.class), Some(Class::Other));
    }
}
