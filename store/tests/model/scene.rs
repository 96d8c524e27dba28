//! The initial programs: the requests that come, and the number of failures that may happen.

use crate::call::{Set, Sets};
use crate::hand::Word;

/// A request of a producer, an operator or a consumer, by a message. `x` and `y` are 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Door {
    /// A new job, due at this tick, in the set of the scene.
    NewJob(u8, i64),
    /// A new job that debounces, due at this tick, in the set of the scene.
    Debounce(u8, i64),
    /// A new job, due at this tick, in this set.
    Into(u8, i64, Set),
    Cancel(u8),
    /// The end of the first schedule has come, whatever its state.
    End(u8),
    /// Due at this tick.
    Reschedule(u8, i64),
    Fire(u8),
    Finish(u8),
    Fail(u8),
    Requeue(u8),
}

impl Door {
    pub(crate) fn id(self) -> u8 {
        match self {
            Door::NewJob(id, _)
            | Door::Debounce(id, _)
            | Door::Into(id, ..)
            | Door::Cancel(id)
            | Door::Reschedule(id, _) => id,
            Door::End(id)
            | Door::Fire(id)
            | Door::Finish(id)
            | Door::Fail(id)
            | Door::Requeue(id) => id,
        }
    }

    pub(crate) fn verb(self) -> &'static str {
        match self {
            Door::NewJob(..) => "schedule",
            Door::Debounce(..) => "debounce",
            Door::Into(_, _, Set::Main) => "schedule for a broker",
            Door::Into(..) => "schedule for another queue",
            Door::Cancel(_) => "cancel",
            Door::End(_) => "the end",
            Door::Reschedule(..) => "reschedule",
            Door::Fire(_) => "fire",
            Door::Finish(_) => "finish",
            Door::Fail(_) => "fail",
            Door::Requeue(_) => "requeue",
        }
    }
}

/// The number of each of these events that may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Claims and rescues.
    pub(crate) claims: u8,
    /// The clock moves on: leases and TTRs end, waits are over.
    pub(crate) ticks: u8,
    /// A call is carried out once more, at any later moment.
    pub(crate) repeats: u8,
    /// An instance is killed.
    pub(crate) crashes: u8,
    /// The answer of a claim is lost.
    pub(crate) losses: u8,
    /// The master is lost, and with it the last writes.
    pub(crate) failovers: u8,
    pub(crate) sweeps: u8,
    /// A message comes again, at any later moment.
    pub(crate) redeliveries: u8,
    pub(crate) purges: u8,
}

/// A scene.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) doors: &'static [Door],
    pub(crate) budget: Budget,
    /// The due times of x and y, ticks.
    pub(crate) due: [i64; 2],
    /// Claims and pops may take jobs before their time, and give them back.
    pub(crate) early: bool,
    /// Attempts may fail, and jobs die.
    pub(crate) fails: bool,
    /// Brokers may refuse a message.
    pub(crate) refuses: bool,
    /// The consumer confirms.
    pub(crate) held: bool,
    /// A claim or a rescue may take one job only. The consumers that share a pop take one each.
    pub(crate) pieces: bool,
    /// The set of x and y.
    pub(crate) set: Set,
    /// The lease actions of consumers; the first one also for two jobs in one call.
    pub(crate) words: &'static [Word],
    /// Leases of consumers last longer than a tick.
    pub(crate) long: bool,
    /// Consumers may go away before a job reached them.
    pub(crate) gives_back: bool,
    /// Pops have a deadline, within their tick.
    pub(crate) hurries: bool,
    /// A job that its consumer did not acknowledge is due again at once.
    pub(crate) again: bool,
}

impl Scene {
    /// The sets that requests may change.
    pub(crate) fn sets(&self) -> Sets {
        let has_queue =
            self.set.is_queue() || self.doors.iter().any(|door| matches!(door, Door::Into(..)));
        if has_queue { Sets::All } else { Sets::Of(self.set) }
    }
}

pub(crate) const X: u8 = 0;
pub(crate) const Y: u8 = 1;
pub(crate) const NEXT: i64 = 1;
/// Beyond the longest wait of a job that debounces.
const LATER: i64 = 3;
pub(crate) const NOW: i64 = 0;

pub(crate) fn scene(name: &'static str, doors: &'static [Door], budget: Budget) -> Scene {
    Scene {
        name,
        doors,
        budget,
        due: [NOW, NOW],
        early: false,
        fails: false,
        refuses: false,
        held: false,
        pieces: false,
        set: Set::Main,
        words: &[],
        long: false,
        gives_back: false,
        hurries: false,
        again: false,
    }
}

pub(crate) const NONE: Budget = Budget {
    claims: 3,
    ticks: 0,
    repeats: 0,
    crashes: 0,
    losses: 0,
    failovers: 0,
    sweeps: 0,
    redeliveries: 0,
    purges: 0,
};

/// Every scene.
pub(crate) fn scenes() -> Vec<Scene> {
    use Door::{Cancel, Debounce, Fail, Finish, Fire, NewJob, Requeue, Reschedule};
    vec![
        scene(
            "settles in pieces, repeated, cancel and schedule anew",
            &[Cancel(X), NewJob(X, NOW)],
            Budget { repeats: 1, ticks: 1, crashes: 1, ..NONE },
        ),
        scene(
            "replaced twice while out",
            &[NewJob(X, NOW), NewJob(X, NOW)],
            Budget { repeats: 1, ticks: 1, ..NONE },
        ),
        scene(
            "replace, cancel, schedule of one id",
            &[NewJob(X, NOW), Cancel(X), NewJob(X, NOW)],
            Budget { claims: 2, repeats: 1, ..NONE },
        ),
        Scene {
            pieces: true,
            ..scene(
                "rescue of a lease in pieces, and repeated",
                &[Cancel(Y)],
                Budget { ticks: 2, repeats: 1, crashes: 1, ..NONE },
            )
        },
        scene(
            "the owner of a half settled lease dies",
            &[Cancel(X), NewJob(X, NEXT)],
            Budget { claims: 4, ticks: 2, crashes: 2, ..NONE },
        ),
        Scene {
            fails: true,
            refuses: true,
            ..scene(
                "retry, bury, release",
                &[NewJob(X, NOW), Requeue(Y)],
                Budget { claims: 2, repeats: 1, ticks: 1, ..NONE },
            )
        },
        Scene {
            held: true,
            ..scene(
                "held for its consumer: finish, fail",
                &[Finish(X), Fail(Y)],
                Budget { ticks: 2, repeats: 1, ..NONE },
            )
        },
        Scene {
            held: true,
            ..scene(
                "held, finished, scheduled anew",
                &[Finish(X), NewJob(X, NOW)],
                Budget { ticks: 1, repeats: 1, ..NONE },
            )
        },
        Scene {
            held: true,
            ..scene(
                "held, its owner dies, failed",
                &[Fail(X)],
                Budget { claims: 4, ticks: 3, crashes: 1, ..NONE },
            )
        },
        scene(
            "a claim whose answer is lost",
            &[NewJob(X, NOW), Cancel(Y)],
            Budget { repeats: 1, ticks: 1, losses: 1, ..NONE },
        ),
        Scene {
            due: [NEXT, NOW],
            refuses: true,
            early: true,
            ..scene(
                "claimed early and given back",
                &[Reschedule(X, NEXT), Fire(Y)],
                Budget { claims: 2, repeats: 1, ticks: 1, ..NONE },
            )
        },
        scene(
            "one failover, cancel and schedule anew",
            &[Cancel(X), NewJob(X, NOW)],
            Budget { failovers: 1, ticks: 1, ..NONE },
        ),
        scene(
            "one failover, a sweep, a reschedule and a cancel",
            &[Reschedule(X, NEXT), Cancel(X)],
            Budget { failovers: 1, sweeps: 1, ticks: 1, ..NONE },
        ),
        scene(
            "one failover while a lease is rescued",
            &[NewJob(X, NOW)],
            Budget { failovers: 1, ticks: 1, ..NONE },
        ),
        scene(
            "a cancel that comes again",
            &[NewJob(X, NOW), Cancel(X), NewJob(X, NOW)],
            Budget { claims: 2, redeliveries: 1, ..NONE },
        ),
        scene(
            "a schedule that comes again",
            &[NewJob(X, NOW), NewJob(X, NOW), Fire(Y)],
            Budget { claims: 2, redeliveries: 1, ticks: 1, ..NONE },
        ),
        scene("two repeats", &[NewJob(X, NOW), Cancel(Y)], Budget { repeats: 2, ticks: 1, ..NONE }),
        scene(
            "one failover, and a repeat",
            &[Cancel(X), NewJob(X, NOW)],
            Budget { failovers: 1, repeats: 1, ticks: 1, ..NONE },
        ),
        scene(
            "one failover, and a message that comes again",
            &[Cancel(X), NewJob(X, NOW)],
            Budget { failovers: 1, redeliveries: 1, sweeps: 1, ticks: 1, ..NONE },
        ),
        Scene {
            fails: true,
            ..scene(
                "one failover, attempts that fail",
                &[Cancel(X), Requeue(Y)],
                Budget { failovers: 1, ticks: 1, ..NONE },
            )
        },
        Scene {
            fails: true,
            refuses: true,
            ..scene(
                "debounced: out, given back, failed",
                &[Debounce(X, LATER), Debounce(X, LATER)],
                Budget { claims: 2, ticks: 2, ..NONE },
            )
        },
        scene(
            "debounced: rescheduled, fired",
            &[Debounce(X, LATER), Reschedule(X, LATER), Fire(X), Debounce(X, LATER)],
            Budget { claims: 1, ticks: 1, redeliveries: 1, ..NONE },
        ),
        scene(
            "debounced: replaced, cancelled",
            &[Debounce(X, LATER), NewJob(X, LATER), Cancel(X), Debounce(X, LATER)],
            Budget { claims: 1, ticks: 1, failovers: 1, ..NONE },
        ),
        Scene {
            held: true,
            ..scene(
                "one failover, held for its consumer",
                &[Finish(X), Fail(Y)],
                Budget { failovers: 1, ticks: 1, ..NONE },
            )
        },
    ]
}

/// More than can be explored: for random walks.
pub(crate) fn everything(held: bool) -> Scene {
    use Door::{Cancel, Fail, Finish, Fire, NewJob, Reschedule};
    let doors: &[Door] = if held {
        &[Fail(X), NewJob(Y, NEXT), Finish(Y), Fire(Y), Cancel(X)]
    } else {
        &[Cancel(X), NewJob(X, NOW), NewJob(Y, NEXT), Reschedule(Y, NEXT), Cancel(Y)]
    };
    let budget = Budget {
        claims: 9,
        ticks: 5,
        repeats: 3,
        crashes: 2,
        losses: 2,
        failovers: 2,
        sweeps: 2,
        redeliveries: 2,
        purges: 0,
    };
    Scene {
        due: [NOW, NEXT],
        early: true,
        fails: !held,
        refuses: true,
        held,
        pieces: true,
        ..scene("everything", doors, budget)
    }
}
