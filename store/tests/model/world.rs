//! A state of the exploration: the data of Redis, the knowledge of each party, and the events that
//! may still happen. A ghost is known to the checks alone: no script and no instance reads it.

use std::rc::Rc;

use dwell_store::store::record::StateRecord;

use crate::call::Set;
use crate::hand::{Consumer, Hand, Out, Word};
use crate::redis::Moment;
use crate::scene::{Budget, Scene};
use crate::view::ClaimName;

/// Numbers of schedules and messages: 1 and 2 belong to x and y, the doors follow. 0 is no number.
pub(crate) const NUMBERS: usize = 8;
/// The number of the first door.
pub(crate) const FIRST_DOOR: u8 = 3;

/// The beginning, epoch ms, and the step of the clock, ms. Everything that ends does so within one
/// tick, and nothing of it within the same.
const BEGIN: i64 = 1_700_000_000_000;
pub(crate) const TICK: i64 = 10_000;
/// A lease, a wait, a pause or a TTR, ms.
pub(crate) const SPAN: i64 = 9_000;

/// This tick, epoch ms.
pub(crate) fn at(tick: i64) -> i64 {
    BEGIN + tick * TICK
}

/// The data that a failover takes back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    /// The store, by its number.
    pub(crate) store: u32,
    /// Ghost. The schedules that must be there, by id; 0: none.
    pub(crate) lives: [u8; 2],
    /// Ghost. The schedules in each claim.
    pub(crate) lent: Vec<(ClaimName, Vec<u8>)>,
    /// Ghost. The earliest time to publish the next attempt of a schedule, epoch ms.
    pub(crate) earliest: [i64; NUMBERS],
    /// Ghost. The first request of the burst of a schedule that debounces, epoch ms; 0: it does not.
    pub(crate) first: [i64; NUMBERS],
    /// Ghost. The life of a schedule: a schedule that a reschedule begins belongs to the life
    /// before.
    pub(crate) life: [u8; NUMBERS],
    /// Ghost. The last hand-out of each job of a queue to a consumer.
    pub(crate) outs: [Option<Out>; 2],
    /// Ghost. Bits of the nonces of pops that handed out a job.
    pub(crate) popped: u16,
    /// Ghost. Bits of the nonces of pops whose jobs were all taken back.
    pub(crate) unpopped: u16,
    /// Ghost. By id: the set of its last job, if that job was finished.
    pub(crate) finished: [Option<Set>; 2],
}

/// The phase of an instance's work on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Claimed,
    Published,
    /// The job was taken over, and is sent back.
    Rescued,
}

/// A job in the hands of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token {
    pub(crate) lease: ClaimName,
    pub(crate) position: u8,
    pub(crate) id: u8,
    pub(crate) set: Set,
    pub(crate) has_state: bool,
    /// The encoded state when the claim began.
    pub(crate) state: Rc<[u8]>,
    /// The earliest time to publish, epoch ms.
    pub(crate) ready: i64,
    /// The time from which nothing is published, epoch ms.
    pub(crate) deadline: i64,
    /// Ghost. The schedule.
    pub(crate) number: u8,
    /// Ghost. The earliest allowed time to publish this attempt, epoch ms.
    pub(crate) earliest: i64,
    pub(crate) phase: Phase,
}

impl Token {
    pub(crate) fn state(&self) -> StateRecord {
        StateRecord::decode(&self.state).expect("encoded by the answer of a claim")
    }
}

/// An instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) tokens: Vec<Token>,
    /// The nonce of a claim whose answer was lost.
    pub(crate) lost: Option<u8>,
}

impl Owner {
    pub(crate) fn is_idle(&self) -> bool {
        self.tokens.is_empty() && self.lost.is_none()
    }
}

/// The ways in which jobs leave their claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Complete,
    Hold,
    Release {
        pause_ms: i64,
        unpublished: bool,
    },
    Retry,
    /// Due again at once, at the next step.
    Again,
    Die,
    Bury,
}

/// A call of an instance, a consumer or a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Claim {
        nonce: u8,
        most: u8,
        ahead_ms: i64,
    },
    Rescue {
        nonce: u8,
        most: u8,
    },
    Reclaim {
        nonce: u8,
    },
    Settle {
        how: How,
        tokens: Vec<Token>,
    },
    /// The index of a door, and whether the message came before.
    Door {
        index: u8,
        again: bool,
    },
    Sweep,
    /// `until`: the tick after which the caller has given the call up.
    Pop {
        nonce: u8,
        set: Set,
        most: u8,
        until: Option<u8>,
        ahead_ms: i64,
    },
    /// No ids: all of the pop. `is_early`: the jobs reached nobody before their time.
    Unpop {
        nonce: u8,
        is_early: bool,
        set: Set,
        ids: Vec<u8>,
    },
    Word {
        word: Word,
        hands: Vec<Hand>,
    },
    /// The state: `scheduled`, `ready` or `dead`.
    Purge(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) stored: Stored,
    /// The states since the last write that waited for replicas: a failover may go back to them.
    pub(crate) history: Vec<Stored>,
    pub(crate) tick: u8,
    /// The number of lost masters.
    pub(crate) failovers: u8,
    pub(crate) owners: [Owner; 2],
    pub(crate) consumers: [Consumer; 2],
    /// Bits of the doors that were used.
    pub(crate) used: u8,
    pub(crate) budget: Budget,
    /// The index of the door, due and attempt of each message that may come again.
    pub(crate) named: Vec<(u8, i64, u8)>,
    /// A call that is still under way, or is carried out once more.
    pub(crate) later: Option<Op>,
    pub(crate) nonces: u8,
    /// Ghost. The last published attempt of each life.
    pub(crate) published: [u8; NUMBERS],
    /// Ghost. Claims of each life, or its hand-outs to consumers.
    pub(crate) claims: [u8; NUMBERS],
    /// Ghost. Bits of the lives that may not be published any more.
    pub(crate) over: u8,
}

impl World {
    /// The state before anything happened.
    pub(crate) fn begin(scene: &Scene, store: u32) -> World {
        let mut life = [0; NUMBERS];
        (0..).zip(&mut life).for_each(|(number, life)| *life = number);
        let mut earliest = [0; NUMBERS];
        (earliest[1], earliest[2]) = (at(scene.due[0]), at(scene.due[1]));
        World {
            stored: Stored {
                store,
                lives: [1, 2],
                lent: Vec::new(),
                earliest,
                first: [0; NUMBERS],
                life,
                outs: [None, None],
                popped: 0,
                unpopped: 0,
                finished: [None; 2],
            },
            history: Vec::new(),
            tick: 0,
            failovers: 0,
            owners: Default::default(),
            consumers: Default::default(),
            used: 0,
            named: Vec::new(),
            budget: scene.budget,
            later: None,
            nonces: 0,
            published: [0; NUMBERS],
            claims: [0; NUMBERS],
            over: 0,
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        at(self.tick.into())
    }

    /// The moment at which this call is carried out. No two claims have one `created`: the µs tell
    /// the calls that write a claim apart, and the first copy of a call from the second.
    pub(crate) fn moment(&self, op: Option<&Op>) -> Moment {
        let copy = u8::from(op.is_some() && self.later.as_ref() == op);
        let stamp = match op {
            Some(Op::Claim { nonce, .. } | Op::Rescue { nonce, .. }) => 2 + 2 * nonce + copy,
            _ => 1,
        };
        moment(self.now_ms(), stamp, self.failovers)
    }

    /// The world without differences that have no effect any more.
    pub(crate) fn canonical(&self) -> World {
        let mut world = self.clone();
        // Both instances are alike, and both consumers.
        world.owners.sort();
        world.consumers.sort();
        let mut known = [false; NUMBERS];
        for stored in std::iter::once(&self.stored).chain(&self.history) {
            let lent = stored.lent.iter().flat_map(|(_, numbers)| numbers);
            stored.lives.iter().chain(lent).for_each(|number| known[usize::from(*number)] = true);
        }
        let (mut later, mut said): (&[Token], &[Hand]) = (&[], &[]);
        match &self.later {
            Some(Op::Settle { tokens, .. }) => later = tokens,
            Some(Op::Word { hands, .. }) => said = hands,
            _ => {}
        }
        for hand in self.consumers.iter().flat_map(|consumer| &consumer.hands).chain(said) {
            known[usize::from(hand.number)] = true;
        }
        for token in self.owners.iter().flat_map(|owner| &owner.tokens).chain(later) {
            known[usize::from(token.number)] = true;
        }
        let mut is_life = [false; NUMBERS];
        for number in (0..NUMBERS).filter(|number| known[*number]) {
            is_life[usize::from(self.stored.life[number])] = true;
        }
        for stored in std::iter::once(&mut world.stored).chain(&mut world.history) {
            for number in (0..NUMBERS).filter(|number| !known[*number]) {
                (stored.earliest[number], stored.life[number]) = (0, 0);
                stored.first[number] = 0;
            }
        }
        for life in (0..NUMBERS).filter(|life| !is_life[*life]) {
            (world.published[life], world.claims[life]) = (0, 0);
            world.over &= !(1 << life);
        }
        world
    }

    /// Whether a failover may have taken a claim back that an instance still works on.
    pub(crate) fn is_rolled(&self) -> bool {
        self.failovers > 0
    }

    /// The life of a schedule.
    pub(crate) fn life(&self, number: u8) -> usize {
        self.stored.life[usize::from(number)].into()
    }

    /// Nothing of this life may be published from now on.
    pub(crate) fn end_life(&mut self, life: usize) {
        self.over |= 1 << life;
    }

    /// The due time and the attempt that the message of this door named.
    pub(crate) fn named(&self, index: u8) -> (i64, u8) {
        self.named
            .iter()
            .find(|(door, ..)| *door == index)
            .map_or((0, 0), |(_, due, attempt)| (*due, *attempt))
    }

    /// Gives this id another job, or none (0).
    pub(crate) fn replace(&mut self, id: usize, number: u8) {
        (self.stored.lives[id], self.stored.outs[id]) = (number, None);
        self.stored.finished[id] = None;
    }

    pub(crate) fn is_over(&self, life: usize) -> bool {
        self.over >> life & 1 == 1
    }
}

/// `failovers`: the number of earlier masters.
pub(crate) fn moment(now_ms: i64, stamp: u8, failovers: u8) -> Moment {
    const MASTERS: [&str; 3] = [
        "run_id:a\r\nmaster_replid2:0\r\n",
        "run_id:b\r\nmaster_replid2:b1\r\n",
        "run_id:c\r\nmaster_replid2:c1\r\n",
    ];
    Moment { now_us: now_ms * 1000 + i64::from(stamp), info: MASTERS[usize::from(failovers)] }
}
