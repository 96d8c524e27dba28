//! The steps of a random run.

use proptest::prelude::*;

use super::reference::How;

#[derive(Debug, Clone)]
pub(super) enum Op {
    /// A new inbound message; in both, 2 is a time far ahead.
    Schedule {
        id: u8,
        due: usize,
        body: u8,
        policy: u8,
    },
    Act {
        id: u8,
        action: usize,
        due: usize,
        seen_due: u8,
        seen_attempt: u8,
        wait_is_over: bool,
        /// Not by a message: it never comes again.
        is_call: bool,
    },
    /// The last this many inbound messages come again, in order.
    Redeliver {
        last: usize,
    },
    Claim {
        by: usize,
        over: bool,
        early: bool,
    },
    /// A claim whose answer is lost: the instance's next claim takes it back first.
    LoseClaim {
        by: usize,
        early: bool,
    },
    Publish {
        by: usize,
        which: prop::sample::Index,
    },
    Settle {
        by: usize,
        which: prop::sample::Index,
        how: How,
    },
    Rescue {
        by: usize,
        over: bool,
    },
    /// A claim is carried out once more: its lease may be over by then, and nobody knows of
    /// another.
    RepeatClaim {
        which: prop::sample::Index,
        early: bool,
    },
    /// A settle is carried out once more.
    RepeatSettle {
        which: prop::sample::Index,
    },
    Crash {
        by: usize,
    },
    /// The replica has everything.
    CatchUp,
    FailOver,
}

pub(super) fn op(ids: u8) -> impl Strategy<Value = Op> {
    let how = prop_oneof![
        4 => Just(How::Complete),
        1 => Just(How::Drop),
        2 => any::<bool>().prop_map(|over| How::Hold { over }),
        2 => any::<bool>().prop_map(|ripe| How::Release { ripe }),
        3 => any::<bool>().prop_map(|ripe| How::Retry { ripe }),
        1 => Just(How::Die),
        2 => Just(How::Bury),
    ];
    prop_oneof![
        5 => (0..ids, 0..3_usize, 0..2_u8, 0..5_u8).prop_map(|(id, due, body, policy)| Op::Schedule { id, due, body, policy }),
        5 => (0..ids, 0..6_usize, 0..3_usize, 0..4_u8, 0..4_u8, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(id, action, due, seen_due, seen_attempt, wait_is_over, is_call)| Op::Act { id, action, due, seen_due, seen_attempt, wait_is_over, is_call }),
        2 => (1..6_usize).prop_map(|last| Op::Redeliver { last }),
        6 => (0..2_usize, prop::bool::weighted(0.3), prop::bool::weighted(0.3)).prop_map(|(by, over, early)| Op::Claim { by, over, early }),
        1 => (0..2_usize, any::<bool>()).prop_map(|(by, early)| Op::LoseClaim { by, early }),
        5 => (0..2_usize, any::<prop::sample::Index>()).prop_map(|(by, which)| Op::Publish { by, which }),
        7 => (0..2_usize, any::<prop::sample::Index>(), how).prop_map(|(by, which, how)| Op::Settle { by, which, how }),
        3 => (0..2_usize, any::<bool>()).prop_map(|(by, over)| Op::Rescue { by, over }),
        1 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(which, early)| Op::RepeatClaim { which, early }),
        2 => any::<prop::sample::Index>().prop_map(|which| Op::RepeatSettle { which }),
        1 => (0..2_usize).prop_map(|by| Op::Crash { by }),
        1 => Just(Op::CatchUp),
        1 => Just(Op::FailOver),
    ]
}
