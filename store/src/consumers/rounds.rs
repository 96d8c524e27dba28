//! The choice of the calls for the pops that ask for jobs of one queue.

use super::asking::{Asking, Line};
use super::heads::Heads;
use crate::clock::Instant;

/// The pops that ask for due jobs of a queue, and their calls that are out.
#[derive(Default)]
pub(super) struct Rounds {
    pub(super) line: Line,
    /// The buckets of the calls that are out for pops of the line.
    out: Vec<u16>,
}

/// A call that begins.
pub(super) struct Begun {
    pub(super) bucket: u16,
    /// Its number among the pops and looks of the queue.
    pub(super) number: u64,
    /// The jobs that it asks for.
    pub(super) jobs: usize,
    /// It is for pops of the line. The next ones wait for its answer.
    pub(super) is_of_line: bool,
    pub(super) pops: Vec<Asking>,
}

impl Begun {
    fn new(
        heads: &mut Heads,
        bucket: u16,
        pops: Vec<Asking>,
        is_of_line: bool,
        now: Instant,
    ) -> Begun {
        let jobs = pops.iter().map(|pop| pop.limits.most).sum();
        let number = heads.pop_begins(bucket, jobs, now);
        Begun { bucket, number, jobs, is_of_line, pops }
    }
}

impl Rounds {
    /// Begins a call for each large pop, and the calls of the line, each to the bucket whose first
    /// job is the oldest, but none of the line to a master with such a call. Returns them, and the
    /// pops for which no known job is due.
    pub(super) fn begin(&mut self, heads: &mut Heads, now: Instant) -> (Vec<Begun>, Vec<Asking>) {
        let (mut calls, mut unserved) = (Vec::new(), Vec::new());
        for pop in self.line.take_large() {
            match heads.oldest(now) {
                Some(bucket) => calls.push(Begun::new(heads, bucket, vec![pop], false, now)),
                None => unserved.push(pop),
            }
        }
        let (out, mut asked) = (self.out.clone(), None);
        while self.line.has_next() {
            let Some(bucket) = heads.oldest_beside(now, &out) else {
                if heads.oldest(now).is_none() {
                    unserved.extend(self.line.take_all());
                }
                break;
            };
            let asked = *asked.get_or_insert_with(|| self.line.asked());
            let pops = self.line.take(heads.share(bucket, asked, &out, now));
            // The last consumers went away meanwhile.
            if pops.is_empty() {
                break;
            }
            self.out.push(bucket);
            calls.push(Begun::new(heads, bucket, pops, true, now));
        }
        (calls, unserved)
    }

    /// A call of the line is over: the next ones may begin.
    pub(super) fn end(&mut self, bucket: u16) {
        if let Some(at) = self.out.iter().position(|at| *at == bucket) {
            self.out.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::asking::Awaited;
    use super::*;
    use crate::store::jobs::pop::PopLimits;

    /// Buckets of these masters with so many jobs each, all due at the same time.
    struct Queue {
        rounds: Rounds,
        heads: Heads,
        jobs: Vec<usize>,
        now: Instant,
        awaited: Vec<Awaited>,
    }

    impl Queue {
        fn new(homes: Option<Vec<usize>>, jobs: &[usize]) -> Queue {
            let now = crate::clock::now();
            let mut heads = Heads::new(u16::try_from(jobs.len()).unwrap(), homes.is_some());
            let (call, [buckets, _]) = heads.look_begins(homes, now);
            let due: Vec<Option<i64>> = jobs.iter().map(|jobs| (*jobs > 0).then_some(0)).collect();
            heads.looked(call, &buckets, Some(&due), now);
            let (rounds, now) = (Rounds::default(), now + Duration::from_secs(1));
            Queue { rounds, heads, jobs: jobs.to_vec(), now, awaited: Vec::new() }
        }

        /// So many pops of so many jobs each ask.
        fn join(&mut self, pops: usize, most: usize) {
            for _ in 0..pops {
                let limits =
                    PopLimits { ttr_ms: None, max_ttr_ms: 1, most, most_bytes: 1, room: None };
                let (pop, answer) = Asking::new(limits, true);
                self.rounds.line.join(pop);
                self.awaited.push(answer);
            }
        }

        fn begin(&mut self) -> Vec<Begun> {
            self.rounds.begin(&mut self.heads, self.now).0
        }

        /// A call is answered. Pops of one job without a job ask again.
        fn answer(&mut self, call: Begun) {
            let left = &mut self.jobs[usize::from(call.bucket)];
            let took = call.jobs.min(*left);
            *left -= took;
            let ahead_us = (*left > 0).then_some(-1_000_000);
            let took_of = (took, call.jobs);
            self.heads.pop_took(call.bucket, call.number, took_of, ahead_us, self.now);
            self.heads.pop_ends(call.bucket, call.jobs, self.now);
            self.rounds.end(call.bucket);
            self.rounds.line.rejoin(call.pops.into_iter().skip(took).collect());
        }
    }

    /// The jobs that calls ask of each bucket, in the order of the buckets.
    fn asked(calls: &[Begun]) -> Vec<(u16, usize)> {
        let mut asked: Vec<_> = calls.iter().map(|call| (call.bucket, call.jobs)).collect();
        asked.sort_unstable();
        asked
    }

    #[test]
    fn few_jobs_in_many_buckets_are_found_in_few_rounds() {
        let mut queue = Queue::new(None, &[1; 16]);
        queue.join(1, 1);
        let mut calls = queue.begin();
        // The others come while the first call is out.
        queue.join(15, 1);
        let mut rounds = 0;
        while !calls.is_empty() {
            rounds += 1;
            calls.into_iter().for_each(|call| queue.answer(call));
            calls = queue.begin();
        }
        assert_eq!((queue.jobs.iter().sum::<usize>(), queue.rounds.line.has_any()), (0, false));
        assert!(rounds <= 3, "{rounds}");
    }

    #[test]
    fn a_large_pop_waits_for_no_call_and_holds_none_up() {
        let mut queue = Queue::new(None, &[100, 100]);
        queue.join(1, 100);
        let large = queue.begin();
        assert_eq!((large.len(), large[0].is_of_line), (1, false));
        queue.join(1, 1);
        let first = queue.begin();
        assert_eq!((first.len(), first[0].is_of_line), (1, true));
        queue.join(1, 1);
        assert!(queue.begin().is_empty(), "the next one waits");
        queue.join(1, 100);
        assert_eq!(asked(&queue.begin()).len(), 1);
        first.into_iter().for_each(|call| queue.answer(call));
        assert_eq!(queue.begin().len(), 1);
    }

    #[test]
    fn pops_stay_in_the_line_where_the_jobs_are_on_a_busy_master() {
        // One master has a backlog, the other one two jobs.
        let mut queue = Queue::new(Some(vec![1, 0, 1]), &[1, 1000, 1]);
        queue.join(1, 1);
        let first = queue.begin();
        assert_eq!(asked(&first), [(1, 1)]);
        queue.join(100, 1);
        let beside = queue.begin();
        assert_eq!(asked(&beside), [(0, 8), (2, 8)]);
        assert!(queue.rounds.line.has_next(), "the others wait for the busy master");
        let (mut calls, mut rounds) = (beside, 0);
        calls.extend(first);
        while !calls.is_empty() {
            rounds += 1;
            assert!(rounds < 20);
            calls.into_iter().for_each(|call| queue.answer(call));
            calls = queue.begin();
        }
        assert_eq!((queue.jobs.iter().sum::<usize>(), queue.rounds.line.has_any()), (901, false));
    }
}
