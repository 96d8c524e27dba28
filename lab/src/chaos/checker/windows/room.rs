//! The number of copies that a fault may explain.

use super::limits::{SLACK_US, timeout_us};
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Fault, HOST, History, Op};

/// The number of copies that a fault may explain.
pub(super) fn room(fault: &Fault, history: &History) -> u64 {
    let Fault { kind, began_us, healed_us, in_flight, .. } = *fault;
    // A publication without an answer ends at the publish timeout, and the next one takes its
    // place.
    let turns = (healed_us - began_us) / timeout_us(&history.head);
    let turns = if kind.effects().stops_instance { 0 } else { u64::try_from(turns).unwrap_or(0) };
    let copied = if kind.allows().duplicates_of_in_flight { in_flight * (1 + turns) } else { 0 };
    // Each request that the host takes loses its answer at once, and the next one takes its place.
    let loses_answers = kind == FaultKind::HostDropsAnswers;
    if !loses_answers && !fault.has_forgotten() {
        return copied;
    }
    let delivered = history.events.iter().map(|event| {
        let Op::Deliver(what) = &event.op else { return 0 };
        // Completions just before the fault, or by the abandoned master.
        let is_forgotten =
            (began_us - SLACK_US..=healed_us).contains(&event.t_us) && fault.rolls_back(&what.id);
        let is_unanswered =
            loses_answers && event.proc == HOST && (began_us..=healed_us).contains(&event.t_us);
        u64::from(is_forgotten) + u64::from(is_unanswered)
    });
    copied + delivered.sum::<u64>()
}
