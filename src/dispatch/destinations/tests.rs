//! Destinations that answer late beside a prompt one: who waits, and how often jobs are claimed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use dwell_connectors::{BrokerConfig, memory};

use super::*;
use crate::clock;

const MS: Duration = Duration::from_millis(1);
const SIZE: usize = 300;
const JOBS: usize = 10_000;

fn destinations() -> Destinations {
    let connector = BrokerConfig::Memory(memory::Config::from(&memory::Broker::new()));
    let settings = Broker { connector, allow: vec!["*".to_owned()], limits: BTreeMap::new() };
    Destinations::new("memory".into(), settings, None, 1024, 64 << 20)
}

/// The jobs of some destinations that answer after `took`, each to at most so many requests at a
/// time: the others wait there.
struct Late {
    took: Duration,
    requests: usize,
    names: Vec<Destination>,
    /// When each job is due, and its destination.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Since when each claimed job waits, and its destination.
    waiting: Vec<(Instant, usize)>,
    /// When each answer comes, from which destination, and when the message was sent.
    answers: BinaryHeap<Reverse<(Instant, usize, Instant)>>,
    /// When the last requests of each destination are answered.
    busy: Vec<VecDeque<Instant>>,
    claims: usize,
    confirmed: usize,
    /// When the last job was confirmed.
    last: Instant,
}

impl Late {
    /// Answers come, and jobs are claimed, at most 128 of them.
    fn turn(&mut self, destinations: &mut Destinations, now: Instant) {
        while self.answers.peek().is_some_and(|Reverse((at, ..))| *at <= now)
            && let Some(Reverse((_, of, sent))) = self.answers.pop()
        {
            let response = Response::Confirmed(now - sent);
            destinations.responded(&self.names[of], SIZE, response, now);
            (self.confirmed, self.last) = (self.confirmed + 1, now);
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
                Admission::Granted => self.send(of, now),
                Admission::Wait { .. } => self.waiting.push((since, of)),
                Admission::GiveBack(wait) => self.due.push(Reverse((now + wait, of))),
            }
        }
    }

    fn send(&mut self, of: usize, now: Instant) {
        let busy = &mut self.busy[of];
        let free = if busy.len() < self.requests { None } else { busy.pop_front() };
        let answered = free.map_or(now, |free| free.max(now)) + self.took;
        busy.push_back(answered);
        self.answers.push(Reverse((answered, of, now)));
    }
}

#[test]
fn jobs_of_late_destinations_delay_no_other_and_are_not_claimed_over_and_over() {
    const ANY: usize = usize::MAX;
    for (count, took, requests) in [
        (1, 100, 100),
        (1, 200, 256),
        (1, 300, 256),
        (1, 600, ANY),
        (2, 600, ANY),
        (1, 1000, ANY),
        (1, 1900, ANY),
        (1, 4000, ANY),
        (8, 1900, ANY),
        (40, 1900, ANY),
    ] {
        let (mut destinations, began) = (destinations(), clock::now());
        let prompt = Destination::new("prompt");
        let mut late = Late {
            took: took * MS,
            requests,
            names: (0..count).map(|n| Destination::new(format!("late-{n}"))).collect(),
            due: BinaryHeap::new(),
            waiting: Vec::new(),
            answers: BinaryHeap::new(),
            busy: vec![VecDeque::new(); count],
            claims: 0,
            confirmed: 0,
            last: began,
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
            let waiting = late.waiting.len();
            assert!(waiting <= 128 || late.took < SHARE_WAIT, "{count} after {took} ms: {waiting}");
            // A prompt one has several messages in flight at once.
            for _ in 0..8 {
                let admission = destinations.admit(&prompt, SIZE, late.waiting.len(), now, now);
                assert_eq!(admission, Admission::Granted, "{count} after {took} ms, turn {turn}");
            }
            (0..8).for_each(|_| {
                destinations.responded(&prompt, SIZE, Response::Confirmed(MS), now);
            });
            if late.confirmed == JOBS {
                break;
            }
        }
        assert_eq!(late.confirmed, JOBS, "{count} after {took} ms");
        assert!(late.claims < 9 * JOBS, "{count} after {took} ms: {} claims", late.claims);
        // Each has half of what the other slow ones leave of seven eighths of the window.
        let at_once = requests.min(1024 * 7 / 8 / (count + 1));
        let least = late.took * u32::try_from(JOBS / (count * at_once) + 1).unwrap();
        let drain = late.last - began;
        let bound = least + least / 4 + Duration::from_secs(5);
        assert!(drain < bound, "{count} after {took} ms: {drain:?}, {least:?} at best");
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
