//! Destinations that answer late beside a prompt one: who waits, and how often jobs are claimed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use dwell_connectors::{BrokerConfig, memory};

use super::*;
use crate::clock;

const MS: Duration = Duration::from_millis(1);
const SIZE: usize = 300;
const JOBS: usize = 10_000;

fn destinations() -> Destinations {
    let connector = BrokerConfig::Memory(memory::Config::from(&memory::Broker::new()));
    let settings = Broker { connector, allow: vec!["*".to_owned()] };
    Destinations::new("memory".into(), settings, None, 1024, 64 << 20)
}

/// The jobs of some destinations that answer after `took`.
struct Late {
    took: Duration,
    names: Vec<Destination>,
    /// When each job is due, and its destination.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Since when each claimed job waits, and its destination.
    waiting: Vec<(Instant, usize)>,
    /// When each answer comes, and from which destination.
    answers: VecDeque<(Instant, usize)>,
    claims: usize,
    confirmed: usize,
}

impl Late {
    /// Answers come, and jobs are claimed, at most 128 of them.
    fn turn(&mut self, destinations: &mut Destinations, now: Instant) {
        while self.answers.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, of)) = self.answers.pop_front()
        {
            let response = Response::Confirmed(self.took);
            destinations.responded(&self.names[of], SIZE, response, now);
            self.confirmed += 1;
        }
        let mut ready = std::mem::take(&mut self.waiting);
        for _ in 0..128 {
            let Some(Reverse((at, of))) = self.due.pop() else { break };
            if at > now {
                self.due.push(Reverse((at, of)));
                break;
            }
            self.claims += 1;
            ready.push((now, of));
        }
        for (since, of) in ready {
            match destinations.admit(&self.names[of], SIZE, self.waiting.len(), since, now) {
                Admission::Granted => self.answers.push_back((now + self.took, of)),
                Admission::Wait { .. } => self.waiting.push((since, of)),
                Admission::GiveBack(wait) => self.due.push(Reverse((now + wait, of))),
            }
        }
    }
}

#[test]
fn jobs_of_late_destinations_delay_no_other_and_are_not_claimed_over_and_over() {
    for (count, took) in [(1, 600), (1, 1000), (1, 1900), (1, 4000), (8, 1900), (40, 1900)] {
        let (mut destinations, began) = (destinations(), clock::now());
        let prompt = Destination::new("prompt");
        let mut late = Late {
            took: took * MS,
            names: (0..count).map(|n| Destination::new(format!("late-{n}"))).collect(),
            due: BinaryHeap::new(),
            waiting: Vec::new(),
            answers: VecDeque::new(),
            claims: 0,
            confirmed: 0,
        };
        // Their latency is known.
        for name in late.names.iter().chain([&prompt]) {
            let took = if *name == prompt { MS } else { late.took };
            assert_eq!(destinations.admit(name, SIZE, 0, began, began), Admission::Granted);
            destinations.responded(name, SIZE, Response::Confirmed(took), began);
        }
        late.due.extend((0..JOBS).map(|n| Reverse((began, n % count))));
        for turn in 0..6000 {
            let now = began + turn * 10 * MS;
            late.turn(&mut destinations, now);
            assert!(late.waiting.len() <= 128, "{count} after {took} ms: {}", late.waiting.len());
            // A prompt one has several messages in flight at once.
            for _ in 0..8 {
                let admission = destinations.admit(&prompt, SIZE, late.waiting.len(), now, now);
                assert_eq!(admission, Admission::Granted, "{count} after {took} ms, turn {turn}");
            }
            (0..8).for_each(|_| {
                destinations.responded(&prompt, SIZE, Response::Confirmed(MS), now);
            });
        }
        assert_eq!(late.confirmed, JOBS, "{count} after {took} ms");
        assert!(late.claims < 9 * JOBS, "{count} after {took} ms: {} claims", late.claims);
    }
}

#[test]
fn jobs_that_wait_for_late_destinations_take_no_wait_from_those_of_prompt_ones() {
    let (mut destinations, now) = (destinations(), clock::now());
    let [late, prompt] = ["late", "prompt"].map(Destination::new);
    for (name, took) in [(&late, 1900 * MS), (&prompt, MS)] {
        assert_eq!(destinations.admit(name, SIZE, 0, now, now), Admission::Granted);
        destinations.responded(name, SIZE, Response::Confirmed(took), now);
    }
    let mut fill = |name: &Destination| {
        (0..1024).map(|_| destinations.admit(name, SIZE, 0, now, now)).last().unwrap()
    };
    assert_eq!(fill(&late), Admission::Wait { late: true });
    assert_eq!(fill(&prompt), Admission::Wait { late: false });
    assert_eq!(
        destinations.admit(&prompt, SIZE, MAX_WAITING_JOBS, now, now),
        Admission::Wait { late: false }
    );
    assert!(matches!(
        destinations.admit(&late, SIZE, MAX_WAITING_JOBS, now, now),
        Admission::GiveBack(_)
    ));
}
