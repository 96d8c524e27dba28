//! The pops that ask for jobs of one queue, until a call serves them.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::guard::PoppedJobs;
use super::heads::SHARED_JOBS;
use crate::clock::{self, Instant};
use crate::store::call::CALL_JOBS;
use crate::store::error::{Class, StoreError};
use crate::store::jobs::pop::PopLimits;

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
    /// The time since which it asks.
    since: Instant,
    /// A call left it without a job.
    is_again: bool,
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
            Asking {
                limits,
                number: 0,
                since: clock::now(),
                is_again: false,
                goes_on,
                answer,
                silence: Some(silence),
            },
            Awaited { answer: answered, silence: silent },
        )
    }

    /// Asks for so many jobs that it shares no call.
    fn is_large(&self) -> bool {
        self.limits.most >= SHARED_JOBS
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

/// Leaves these pops so many jobs together, the first ones first. Returns those without any.
pub(super) fn cut(pops: &mut Vec<Asking>, mut left: usize) -> Vec<Asking> {
    let mut without = Vec::new();
    for mut pop in std::mem::take(pops) {
        pop.limits.most = pop.limits.most.min(left);
        left -= pop.limits.most;
        if pop.limits.most == 0 {
            without.push(pop);
        } else {
            pops.push(pop);
        }
    }
    without
}

/// The pops that ask, in their order.
#[derive(Default)]
pub(super) struct Line {
    pops: VecDeque<Asking>,
    /// The pops that share no call. They do not wait for others.
    large: Vec<Asking>,
    /// The number of the last one that joined.
    last: u64,
}

impl Line {
    /// Adds a pop at the end.
    pub(super) fn join(&mut self, pop: Asking) {
        self.last += 1;
        let pop = Asking { number: self.last, ..pop };
        if pop.is_large() {
            self.large.push(pop);
        } else {
            self.pops.push_back(pop);
        }
    }

    /// Puts pops that a call left without a job back where they were in order.
    pub(super) fn rejoin(&mut self, pops: Vec<Asking>) {
        for pop in pops {
            let pop = Asking { is_again: true, ..pop };
            if pop.is_large() {
                self.large.push(pop);
            } else {
                let at = self.pops.partition_point(|other| other.number < pop.number);
                self.pops.insert(at, pop);
            }
        }
    }

    /// Whether a pop asks that may share a call. Those at the front whose consumer went away leave.
    pub(super) fn has_next(&mut self) -> bool {
        while self.pops.front().is_some_and(Asking::is_given_up) {
            self.pops.pop_front();
        }
        !self.pops.is_empty()
    }

    /// Whether a pop asks.
    pub(super) fn has_any(&mut self) -> bool {
        !self.large.is_empty() || self.has_next()
    }

    /// The jobs that those which share calls ask for together, and whether a call left one of them
    /// without a job. Those whose consumer went away leave.
    pub(super) fn asked(&mut self) -> (usize, bool) {
        self.pops.retain(|pop| !pop.is_given_up());
        let jobs = self.pops.iter().map(|pop| pop.limits.most).sum();
        (jobs, self.pops.iter().any(|pop| pop.is_again))
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
            pops.extend(self.pops.pop_front());
        }
        pops
    }

    /// Takes the pops that share no call.
    pub(super) fn take_large(&mut self) -> Vec<Asking> {
        self.large.retain(|pop| !pop.is_given_up());
        std::mem::take(&mut self.large)
    }

    /// Takes all pops that may share a call.
    pub(super) fn take_all(&mut self) -> VecDeque<Asking> {
        std::mem::take(&mut self.pops)
    }

    /// Takes all pops.
    pub(super) fn take_every(&mut self) -> Vec<Asking> {
        let mut pops = self.take_large();
        pops.extend(self.take_all());
        pops
    }

    /// Takes those that ask since this time or longer.
    pub(super) fn take_since(&mut self, time: Instant) -> Vec<Asking> {
        let (older, newer): (Vec<_>, Vec<_>) =
            self.take_all().into_iter().partition(|pop| pop.since <= time);
        self.pops = newer.into();
        older
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
        assert_eq!((most(&first), most(&second)), (vec![1, 2], vec![3, 4]));
        assert_eq!(line.asked(), (5, false));
        // Their calls left them without a job, that of the later ones first.
        line.rejoin(second);
        line.rejoin(first);
        assert_eq!(line.asked(), (15, true));
        assert_eq!((most(&line.take(10)), line.asked()), (vec![1, 2, 3, 4], (5, false)));
        assert_eq!((line.take_all().len(), line.asked(), line.has_any()), (1, (0, false), false));
    }

    #[test]
    fn pops_share_a_call_as_far_as_it_has_room() {
        let (mut line, _awaited) = line(&[7; 20]);
        assert_eq!(line.take(1000).len(), CALL_JOBS / 7);
        assert_eq!(line.take(1000).len(), 20 - CALL_JOBS / 7);
        assert!(line.take(1000).is_empty());
    }

    #[test]
    fn the_first_pops_get_what_there_is() {
        let (mut pops, _answers): (Vec<_>, Vec<_>) = [2, 3, 1].map(asking).into_iter().unzip();
        assert_eq!(most(&cut(&mut pops, 4)), [0]);
        assert_eq!(most(&pops), [2, 2]);
        assert_eq!((cut(&mut pops, 0).len(), pops.len()), (2, 0));
    }

    #[test]
    fn large_pops_share_no_call() {
        let (mut line, _awaited) = line(&[1, SHARED_JOBS, CALL_JOBS, 1]);
        assert_eq!(most(&line.take_large()), [SHARED_JOBS, CALL_JOBS]);
        assert_eq!((most(&line.take(100)), line.has_any()), (vec![1, 1], false));
        let (large, _answer) = asking(SHARED_JOBS);
        line.rejoin(vec![large]);
        assert!(line.has_any() && !line.has_next());
    }

    #[test]
    fn pops_that_ask_for_less_time_stay() {
        let (mut line, mut awaited) = line(&[1, 2]);
        let time = clock::now();
        let (mut later, answer) = asking(3);
        later.since = time + std::time::Duration::from_millis(1);
        line.join(later);
        awaited.push(answer);
        assert_eq!((most(&line.take_since(time)), most(&line.take(9))), (vec![1, 2], vec![3]));
    }

    #[test]
    fn pops_whose_consumers_went_away_leave() {
        let (mut line, mut awaited) = line(&[1, 2, 3, 4, 5]);
        for at in [4, 2, 0] {
            awaited.remove(at);
        }
        assert_eq!(line.asked(), (6, false));
        awaited.remove(0);
        assert_eq!((most(&line.take(100)), line.has_next()), (vec![4], false));
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
