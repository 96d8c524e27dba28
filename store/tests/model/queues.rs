//! The scenes of queues: two jobs of one queue, two consumers, and the instance that rescues.

use crate::call::Set;
use crate::hand::Word;
use crate::scene::{Budget, Door, NEXT, NONE, NOW, Scene, X, Y, scene};
use crate::world::SPAN;

fn queue(
    name: &'static str,
    doors: &'static [Door],
    words: &'static [Word],
    budget: Budget,
) -> Scene {
    Scene { set: Set::Queue, words, ..scene(name, doors, budget) }
}

/// Every scene of queues.
pub(crate) fn queue_scenes() -> Vec<Scene> {
    use Door::{Cancel, End, Fail, Finish, Fire, Into, NewJob, Requeue, Reschedule};
    use Word::{Bury, Drop, Release, Touch};
    const FINISH: Word = Word::Finish;
    const FAIL: Word = Word::Fail;
    vec![
        Scene {
            pieces: true,
            ..queue(
                "queue: popped and finished",
                &[],
                &[FINISH],
                Budget { repeats: 2, ticks: 1, ..NONE },
            )
        },
        Scene {
            pieces: true,
            ..queue(
                "queue: a pop whose answer is lost",
                &[],
                &[FINISH],
                Budget { repeats: 1, losses: 1, ticks: 1, ..NONE },
            )
        },
        queue(
            "queue: taken back, and scheduled anew",
            &[NewJob(X, NOW)],
            &[FINISH],
            Budget { claims: 2, repeats: 1, losses: 1, ..NONE },
        ),
        Scene {
            gives_back: true,
            ..queue(
                "queue: given back before it was handed over",
                &[Cancel(X)],
                &[FAIL],
                Budget { repeats: 1, ticks: 1, ..NONE },
            )
        },
        Scene {
            due: [NEXT, NOW],
            early: true,
            gives_back: true,
            ..queue(
                "queue: popped before its time",
                &[Cancel(X), Cancel(Y)],
                &[FAIL],
                Budget { claims: 2, repeats: 1, ticks: 1, ..NONE },
            )
        },
        Scene {
            hurries: true,
            ..queue(
                "queue: a pop after its deadline",
                &[],
                &[FINISH],
                Budget { repeats: 1, losses: 1, ticks: 1, ..NONE },
            )
        },
        Scene {
            due: [NOW, NEXT],
            ..queue(
                "queue: fails, dies, requeued",
                &[Requeue(X)],
                &[FAIL],
                Budget { claims: 4, repeats: 1, ticks: 2, ..NONE },
            )
        },
        queue(
            "queue: released",
            &[Fail(Y)],
            &[Release(0), Release(SPAN)],
            Budget { repeats: 1, ticks: 1, ..NONE },
        ),
        Scene {
            long: true,
            ..queue(
                "queue: touched",
                &[],
                &[Touch, FINISH],
                Budget { claims: 3, repeats: 1, ticks: 3, ..NONE },
            )
        },
        queue(
            "queue: cancelled and scheduled anew while held",
            &[Cancel(X), NewJob(X, NOW)],
            &[FINISH, FAIL],
            Budget { repeats: 1, ..NONE },
        ),
        queue(
            "queue: replaced into another queue and to a broker",
            &[Into(X, NOW, Set::OtherQueue), Into(X, NOW, Set::Main)],
            &[FINISH],
            Budget { repeats: 1, ticks: 1, ..NONE },
        ),
        queue(
            "queue: replaced in the same queue",
            &[NewJob(X, NOW)],
            &[FAIL, FINISH],
            Budget { repeats: 1, ticks: 1, ..NONE },
        ),
        queue(
            "queue: the lease ends during the word",
            &[],
            &[FINISH, FAIL],
            Budget { claims: 4, repeats: 1, ticks: 2, crashes: 1, ..NONE },
        ),
        Scene {
            again: true,
            ..queue(
                "queue: timed out, and due at once",
                &[Cancel(Y)],
                &[FINISH],
                Budget { claims: 4, repeats: 1, ticks: 2, ..NONE },
            )
        },
        queue(
            "queue: finish and fail by id",
            &[Finish(X), Fail(Y)],
            &[FINISH],
            Budget { repeats: 1, ticks: 2, ..NONE },
        ),
        Scene {
            due: [NEXT, NEXT],
            early: true,
            ..queue(
                "queue: finish and fail by id before its time",
                &[Finish(X), Fail(Y)],
                &[FINISH],
                Budget { claims: 2, ticks: 1, ..NONE },
            )
        },
        queue(
            "queue: fail by id to the end",
            &[Fail(X), Fail(X), Requeue(X)],
            &[],
            Budget { claims: 3, repeats: 1, ticks: 2, ..NONE },
        ),
        Scene {
            due: [NEXT, NOW],
            ..queue(
                "queue: fired, rescheduled",
                &[Fire(X), Reschedule(X, NEXT), Fire(Y)],
                &[FAIL, FINISH],
                Budget { repeats: 1, ticks: 1, ..NONE },
            )
        },
        Scene {
            due: [NOW, NEXT],
            ..queue(
                "queue: purged",
                &[NewJob(X, NOW)],
                &[FAIL],
                Budget { purges: 1, redeliveries: 1, repeats: 1, ticks: 2, ..NONE },
            )
        },
        queue(
            "queue: too late for its consumer",
            &[Requeue(X)],
            &[Drop, Bury],
            Budget { repeats: 1, ..NONE },
        ),
        queue(
            "queue: actions on the dead",
            &[Fire(X), Reschedule(X, NEXT), Requeue(X), Finish(X)],
            &[Bury, FINISH],
            Budget { claims: 2, repeats: 1, ..NONE },
        ),
        queue(
            "queue: cancelled in any state",
            &[Cancel(X), Cancel(Y)],
            &[FAIL, Bury],
            Budget { repeats: 1, ticks: 1, ..NONE },
        ),
        queue(
            "queue: the end of a job in any state",
            &[End(X), NewJob(X, NOW), End(Y)],
            &[FAIL, Bury],
            Budget { repeats: 1, ticks: 1, ..NONE },
        ),
        Scene {
            words: &[FINISH, FAIL],
            ..scene(
                "queue: replaces the job of a broker",
                &[Into(X, NOW, Set::Queue)],
                Budget { repeats: 1, ticks: 1, ..NONE },
            )
        },
        queue(
            "queue: a message that comes again",
            &[NewJob(X, NOW), Cancel(Y)],
            &[FINISH],
            Budget { redeliveries: 1, ..NONE },
        ),
        queue(
            "queue: one failover",
            &[Cancel(X), NewJob(X, NOW)],
            &[FINISH],
            Budget { failovers: 1, losses: 1, ticks: 1, ..NONE },
        ),
        queue(
            "queue: two repeats",
            &[NewJob(X, NOW)],
            &[FINISH, FAIL],
            Budget { claims: 2, repeats: 2, ticks: 1, ..NONE },
        ),
        Scene {
            again: true,
            ..queue(
                "queue: one failover while a lease is rescued",
                &[],
                &[FAIL],
                Budget { claims: 4, failovers: 1, ticks: 2, ..NONE },
            )
        },
        queue(
            "queue: one failover, and the dead",
            &[Requeue(X), Cancel(X)],
            &[Bury, FINISH],
            Budget { failovers: 1, losses: 1, ..NONE },
        ),
        queue(
            "queue: one failover, and a message that comes again",
            &[Cancel(X), NewJob(X, NOW)],
            &[FINISH],
            Budget { failovers: 1, redeliveries: 1, purges: 1, ..NONE },
        ),
        queue(
            "queue: one failover, and a repeat",
            &[Cancel(X)],
            &[FINISH, FAIL],
            Budget { failovers: 1, repeats: 1, ticks: 1, ..NONE },
        ),
    ]
}

/// More than can be explored: for random walks.
pub(crate) fn everything_of_queues(again: bool) -> Scene {
    use Door::{Cancel, Fail, Finish, Fire, Into, NewJob, Requeue};
    const WORDS: &[Word] = &[Word::Finish, Word::Fail, Word::Release(0), Word::Touch];
    // A `fail` names its schedule by the due time: the schedules of one id are due at different
    // times.
    let doors: &[Door] = if again {
        &[Requeue(X), Finish(Y), Fire(X), NewJob(Y, NEXT), Cancel(X)]
    } else {
        &[Fail(X), Requeue(X), Into(X, NEXT, Set::OtherQueue), Cancel(Y), NewJob(Y, NOW)]
    };
    let budget = Budget {
        claims: 12,
        ticks: 6,
        repeats: 3,
        crashes: 2,
        losses: 2,
        failovers: 2,
        sweeps: 2,
        redeliveries: 2,
        purges: 2,
    };
    Scene {
        due: [NOW, NEXT],
        pieces: true,
        gives_back: true,
        long: again,
        hurries: !again,
        again,
        ..queue("everything of queues", doors, WORDS, budget)
    }
}
