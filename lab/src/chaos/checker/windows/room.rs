//! The number of copies that a fault may explain.

use super::limits::{SLACK_US, timeout_us};
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Event, Fault, HOST, History, Op};

/// The number of copies that a fault may explain.
pub(super) fn room(fault: &Fault, history: &History) -> u64 {
    let allowance = fault.kind.allows();
    // A publication without an answer ends at the publish timeout, and the next one takes its
    // place.
    let rounds = if fault.kind.effects().stops_instance {
        1
    } else {
        1 + (fault.healed_us - fault.began_us) / timeout_us(&history.head)
    };
    let rounds = u64::try_from(rounds).unwrap_or(1);
    let in_flight = if allowance.duplicates_of_in_flight { fault.in_flight * rounds } else { 0 };
    // Completions just before the fault, or by the abandoned master.
    let lost = |event: &&Event| match &event.op {
        Op::Deliver(what) => {
            (fault.began_us - SLACK_US..=fault.healed_us).contains(&event.t_us)
                && fault.rolls_back(&what.id)
        }
        _ => false,
    };
    let unreplicated =
        if fault.has_forgotten() { history.events.iter().filter(lost).count() as u64 } else { 0 };
    // Each request that the host takes loses its answer at once, and the next one takes its place.
    let unanswered = |event: &&Event| {
        matches!(event.op, Op::Deliver(_))
            && event.proc == HOST
            && (fault.began_us..=fault.healed_us).contains(&event.t_us)
    };
    let unanswered = if fault.kind == FaultKind::HostDropsAnswers {
        history.events.iter().filter(unanswered).count() as u64
    } else {
        0
    };
    in_flight + unreplicated + unanswered
}
