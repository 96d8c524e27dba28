//! The faults of a run: which copies each one explains, and the recovery time of each.

mod counts;
mod explanation;
mod impact;
mod limits;
mod room;

use self::limits::{SLACK_US, timeout_us};
use self::room::room;
use super::timeline::Came;
use crate::chaos::fault::Effects;
use crate::chaos::history::{Fault, History, Job, Only, RunHeader, Scope};

/// A repeated message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy<'a> {
    pub(super) id: &'a str,
    pub(super) job: Option<&'a Job>,
    /// The arrival of the message before it.
    pub(super) first_us: i64,
    pub(super) again_us: i64,
    /// A copy of a job, which was in flight; else of a rejected request. Requests are redelivered
    /// as whole batches, however few of them were bad.
    pub(super) of_job: bool,
    /// The client library repeated an attempt that had arrived: no instance knows of this copy.
    pub(super) by_client: bool,
}

/// The faults of a run and the copies that they explain.
pub(super) struct FaultWindows<'a> {
    pub(super) head: &'a RunHeader,
    windows: Vec<FaultWindow<'a>>,
}

struct FaultWindow<'a> {
    fault: &'a Fault,
    /// The number of further copies that the fault may explain.
    room: u64,
    copies: Vec<Copy<'a>>,
}

impl FaultWindow<'_> {
    /// The number of copies that an instance must have counted.
    fn owed(&self) -> u64 {
        self.copies.iter().filter(|copy| !copy.by_client).count() as u64
    }
}

impl<'a> FaultWindows<'a> {
    pub(super) fn new(history: &'a History, faults: &'a [Fault]) -> FaultWindows<'a> {
        let windows = faults.iter().map(|fault| FaultWindow {
            fault,
            room: room(fault, history),
            copies: Vec::new(),
        });
        FaultWindows { head: &history.head, windows: windows.collect() }
    }

    pub(super) fn faults(&self) -> impl Iterator<Item = &'a Fault> {
        self.windows.iter().map(|window| window.fault)
    }

    /// The duration of a claim, µs.
    pub(super) fn lease_us(&self) -> i64 {
        self.head.lease_ms * 1000
    }

    /// The faults that were active between these times, or whose leases still ran.
    fn on(&self, from_us: i64, to_us: i64) -> impl Iterator<Item = &'a Fault> {
        let lease_us = self.lease_us();
        self.faults()
            .filter(move |fault| fault.began_us <= to_us && fault.healed_us + lease_us >= from_us)
    }

    /// The time between these two during which no fault was active, µs.
    pub(super) fn unbroken_us(&self, from_us: i64, to_us: i64) -> i64 {
        let mut broken: Vec<&Fault> = self.faults().collect();
        broken.sort_by_key(|fault| fault.began_us);
        let (mut sum_us, mut at_us) = (0, from_us);
        for fault in broken {
            sum_us += (fault.began_us.min(to_us) - at_us).max(0);
            at_us = at_us.max(fault.healed_us);
        }
        sum_us + (to_us - at_us).max(0)
    }

    /// The lateness of a job that the active fault does not affect, µs, and that fault. Only for
    /// jobs sent after the start of the fault.
    pub(super) fn beside_us(
        &self,
        (id, job): (&str, &Job),
        (sent_us, due_us): (i64, i64),
        at_us: i64,
    ) -> Option<(i64, &'a Fault)> {
        let beside = |fault: &'a Fault| {
            let Scope { from_us, only } = fault.beside.as_ref()?;
            let since_us = due_us.max(sent_us).max(*from_us);
            let late_us = at_us.min(fault.healed_us) - since_us;
            (sent_us >= fault.began_us && late_us > 0 && !only.concerns(id, job))
                .then_some((late_us, fault))
        };
        self.faults().filter_map(beside).max_by_key(|(late_us, _)| *late_us)
    }

    /// The time span in which the record of this job was unreadable, µs.
    pub(super) fn unreadable_us(&self, id: &str) -> Option<(i64, i64)> {
        self.faults().find_map(|fault| match fault.beside.as_ref()? {
            Scope { from_us, only: Only::Jobs(ids) } if ids.iter().any(|of| of == id) => {
                Some((*from_us, fault.healed_us))
            }
            _ => None,
        })
    }

    /// Whether a request for this job may have been rejected at this time because its bucket was
    /// unreadable. The rejection may arrive after the fault. A history without the bucket allows
    /// all.
    pub(super) fn refuses(&self, id: &str, job: &Job, at_us: i64) -> bool {
        self.on(at_us, at_us).any(|fault| {
            fault.kind.effects().refuses
                && fault.beside.as_ref().is_none_or(|beside| beside.only.concerns(id, job))
        })
    }

    /// Whether a publish of this job may have failed between these times.
    pub(super) fn fails_publish(&self, id: &str, job: &Job, from_us: i64, to_us: i64) -> bool {
        self.on(from_us, to_us).any(|fault| {
            let Effects { fails_publish, silences, .. } = fault.kind.effects();
            fails_publish || silences && fault.affects_only(id, job)
        })
    }

    /// The most that Redis's clock may have been ahead at this time, µs.
    pub(super) fn ahead_us(&self, at_us: i64) -> i64 {
        self.steps(at_us).map(|(_, most)| most).max().unwrap_or(0).max(0)
    }

    /// The most that Redis's clock may have been behind at this time, µs.
    pub(super) fn behind_us(&self, at_us: i64) -> i64 {
        self.steps(at_us).map(|(least, _)| -least).max().unwrap_or(0).max(0)
    }

    /// The least and the greatest error of Redis's clock at this time. A history without the
    /// direction of the jump allows both.
    fn steps(&self, at_us: i64) -> impl Iterator<Item = (i64, i64)> {
        let on =
            move |fault: &&Fault| fault.began_us <= at_us && at_us <= fault.healed_us + SLACK_US;
        self.faults().filter(on).filter_map(|fault| {
            match (fault.kind.allows().early_us, fault.clock_step_us) {
                (0, _) => None,
                (_, Some(step_us)) => Some((step_us, step_us)),
                (early_us, None) => Some((-early_us, early_us)),
            }
        })
    }

    /// Whether a fault of these kinds was active between these times, or leases from then still
    /// ran.
    pub(super) fn between(&self, of: fn(Effects) -> bool, from_us: i64, to_us: i64) -> bool {
        self.on(from_us, to_us).any(|fault| of(fault.kind.effects()))
    }

    /// Whether a promoted master may have forgotten writes for this job between these times.
    pub(super) fn rolls_back(&self, id: &str, from_us: i64, to_us: i64) -> bool {
        self.on(from_us, to_us).any(|fault| fault.rolls_back(id))
    }

    /// The largest jump that Redis's clock may have made between these times, µs.
    pub(super) fn jump_us(&self, from_us: i64, to_us: i64) -> i64 {
        let on = |fault: &Fault| fault.began_us <= to_us && from_us <= fault.healed_us + SLACK_US;
        let jumps = self.faults().filter(|fault| on(fault));
        jumps.map(|fault| fault.kind.allows().early_us).max().unwrap_or(0)
    }

    /// Whether the client library may have sent one attempt twice: a fault of the broker was active
    /// between the two, and they are within the time-out of a message. After other messages have
    /// timed out, librdkafka may repeat one that had arrived, with a new sequence number that the
    /// broker does not recognise.
    pub(super) fn sends_again(&self, one: &Came<'_>, other: &Came<'_>) -> bool {
        let (one_us, other_us) = (one.taken_us(), other.taken_us());
        let (from_us, to_us) = (one_us.min(other_us), one_us.max(other_us));
        one.what.attempt == other.what.attempt
            && self.head.broker == "kafka"
            && to_us - from_us <= timeout_us(self.head) + SLACK_US
            && self.between(|effects| effects.breaks_broker, from_us, to_us)
    }

    /// Whether the request was unacknowledged at a fault that causes redelivery, and this arrival
    /// follows the earlier one in time. The fault may take effect at any time until its end:
    /// RabbitMQ's permissions are withdrawn first, and its connections close seconds later.
    pub(super) fn hands_out_again(
        &self,
        sent_us: i64,
        due_ms: Option<i64>,
        (before_us, taken_us): (i64, i64),
    ) -> bool {
        let late_us = self.head.late_ms * 1000;
        self.faults().any(|fault| {
            let could_us = due_ms.unwrap_or_default().saturating_mul(1000).max(fault.healed_us);
            fault.kind.effects().requeues
                && fault.began_us <= taken_us
                && fault.healed_us >= sent_us - SLACK_US
                && before_us <= fault.healed_us + late_us
                && self.unbroken_us(sent_us, fault.began_us) <= SLACK_US
                && self.unbroken_us(could_us, taken_us) <= late_us
        })
    }

    /// Whether the request may be carried out once more, as another one: RabbitMQ does not number its
    /// messages, and this one was unacknowledged at a fault that causes redelivery.
    pub(super) fn may_repeat(&self, sent_us: i64) -> bool {
        self.head.broker == "amqp"
            && self.faults().any(|fault| {
                fault.kind.effects().requeues
                    && fault.healed_us >= sent_us - SLACK_US
                    && self.unbroken_us(sent_us, fault.began_us) <= SLACK_US
            })
    }

    /// Whether no fault was active between these times, and no lease from then still ran.
    pub(super) fn is_calm(&self, from_us: i64, to_us: i64) -> bool {
        self.on(from_us, to_us).next().is_none()
    }

    /// Until when an attempt in flight at this time may arrive: for a lease, or for a lease after
    /// the end of a fault that holds it back.
    pub(super) fn lands_by_us(&self, at_us: i64) -> i64 {
        let reach_us = self.lease_us() + SLACK_US;
        self.held_back(|effects| effects.holds_back, at_us, at_us + reach_us)
    }

    /// Until when a message that arrived at this time is read: a broker that is down delivers
    /// nothing.
    pub(super) fn read_by_us(&self, at_us: i64) -> i64 {
        self.held_back(|effects| effects.stops_broker, at_us - SLACK_US, at_us + SLACK_US)
    }

    /// This time, or a lease after the last of the faults of these kinds that were active from one
    /// time to the other.
    fn held_back(&self, of: fn(Effects) -> bool, from_us: i64, mut by_us: i64) -> i64 {
        for fault in self.faults().filter(|fault| of(fault.kind.effects())) {
            if fault.began_us <= by_us && fault.healed_us >= from_us {
                by_us = by_us.max(fault.healed_us + self.lease_us() + SLACK_US);
            }
        }
        by_us
    }
}
