//! The faults of a run: which copies each one explains, and the recovery time of each.

mod counts;

use dwell::dispatch::LEASE_MARGIN;

use super::Wrong;
use super::timeline::{Came, Timeline};
use super::verdict::{FaultImpact, Verdict};
use crate::chaos::fault::{Effects, FaultKind};
use crate::chaos::history::{Event, Fault, HOST, History, Job, Only, Op, RunHeader, Scope};

/// The tolerance, µs: for the time between the publication of a message and its read, and for the
/// samples of instances, one a second.
const SLACK_US: i64 = 2_000_000;

/// The longest time from the end of a lease until the job is published again, µs: scan of its
/// bucket, claim and publication.
const MAX_TAKE_OVER_US: i64 = 5_000_000;

/// The age up to which a killed server may lose acknowledgements, µs: `sync_interval` of JetStream is two
/// minutes.
const MAX_LOST_ACK_AGE_US: i64 = 150_000_000;

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
    head: &'a RunHeader,
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
    fn owed(&self) -> usize {
        self.copies.iter().filter(|copy| !copy.by_client).count()
    }
}

impl<'a> FaultWindows<'a> {
    pub(super) fn new(history: &'a History, faults: &'a [Fault]) -> FaultWindows<'a> {
        let windows = faults.iter().map(|fault| FaultWindow { fault, room: room(fault, history), copies: Vec::new() });
        FaultWindows { head: &history.head, windows: windows.collect() }
    }

    /// The time between these two during which no fault was active, µs.
    pub(super) fn unbroken_us(&self, from_us: i64, to_us: i64) -> i64 {
        let mut broken: Vec<(i64, i64)> = self.windows.iter().map(|window| (window.fault.began_us, window.fault.healed_us)).collect();
        broken.sort_unstable();
        let (mut sum_us, mut at_us) = (0, from_us);
        for (began_us, healed_us) in broken {
            sum_us += (began_us.min(to_us) - at_us).max(0);
            at_us = at_us.max(healed_us);
        }
        sum_us + (to_us - at_us).max(0)
    }

    /// The lateness of a job that the active fault does not affect, µs, and that fault. Only for jobs sent
    /// after the start of the fault.
    pub(super) fn beside_us(&self, (id, job): (&str, &Job), (sent_us, due_us): (i64, i64), at_us: i64) -> Option<(i64, &'a Fault)> {
        let beside = |window: &FaultWindow<'a>| {
            let fault = window.fault;
            let Scope { from_us, only } = fault.beside.as_ref()?;
            let since_us = due_us.max(sent_us).max(*from_us);
            let late_us = at_us.min(fault.healed_us) - since_us;
            (sent_us >= fault.began_us && late_us > 0 && !only.concerns(id, job)).then_some((late_us, fault))
        };
        self.windows.iter().filter_map(beside).max_by_key(|(late_us, _)| *late_us)
    }

    /// The time span in which the record of this job was unreadable, µs.
    pub(super) fn unreadable_us(&self, id: &str) -> Option<(i64, i64)> {
        self.windows.iter().map(|window| window.fault).find_map(|fault| match &fault.beside {
            Some(Scope { from_us, only: Only::Jobs(ids) }) if ids.iter().any(|of| of == id) => Some((*from_us, fault.healed_us)),
            _ => None,
        })
    }

    /// Whether a request for this job may have been rejected at this time because its bucket was
    /// unreadable. The rejection may arrive after the fault. A history without the bucket allows
    /// all.
    pub(super) fn refuses(&self, id: &str, job: &Job, at_us: i64) -> bool {
        let reach_us = self.head.lease_ms * 1000;
        self.windows.iter().map(|window| window.fault).any(|fault| {
            let concerned = fault.beside.as_ref().is_none_or(|beside| beside.only.concerns(id, job));
            concerned && fault.kind.effects().refuses && (fault.began_us..=fault.healed_us + reach_us).contains(&at_us)
        })
    }

    /// Whether a publish of this job may have failed between these times.
    pub(super) fn fails_publish(&self, id: &str, job: &Job, from_us: i64, to_us: i64) -> bool {
        let reach_us = self.head.lease_ms * 1000;
        self.between(|effects| effects.fails_publish, from_us, to_us)
            || self.windows.iter().map(|window| window.fault).any(|fault| {
                let concerned = fault.beside.as_ref().is_some_and(|beside| beside.only.concerns(id, job));
                concerned && fault.kind.effects().silences && fault.began_us <= to_us && fault.healed_us + reach_us >= from_us
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
        let on = move |window: &&FaultWindow<'_>| window.fault.began_us <= at_us && at_us <= window.fault.healed_us + SLACK_US;
        self.windows.iter().filter(on).filter_map(|window| match (window.fault.kind.allows().early_us, window.fault.clock_step_us) {
            (0, _) => None,
            (_, Some(step_us)) => Some((step_us, step_us)),
            (early_us, None) => Some((-early_us, early_us)),
        })
    }

    /// Whether a fault of these kinds was active between these times, or leases from then still
    /// ran.
    pub(super) fn between(&self, of: fn(Effects) -> bool, from_us: i64, to_us: i64) -> bool {
        let reach_us = self.head.lease_ms * 1000;
        self.windows
            .iter()
            .any(|FaultWindow { fault, .. }| of(fault.kind.effects()) && fault.began_us <= to_us && fault.healed_us + reach_us >= from_us)
    }

    /// Whether a promoted master may have forgotten writes for this job between these times.
    pub(super) fn rolls_back(&self, id: &str, from_us: i64, to_us: i64) -> bool {
        let reach_us = self.head.lease_ms * 1000;
        let on = |fault: &Fault| fault.began_us <= to_us && fault.healed_us + reach_us >= from_us;
        self.windows.iter().any(|window| on(window.fault) && window.fault.rolls_back(id))
    }

    /// The largest jump that Redis's clock may have made between these times, µs.
    pub(super) fn jump_us(&self, from_us: i64, to_us: i64) -> i64 {
        let on = |fault: &Fault| fault.began_us <= to_us && from_us <= fault.healed_us + SLACK_US;
        self.windows.iter().filter(|window| on(window.fault)).map(|window| window.fault.kind.allows().early_us).max().unwrap_or(0)
    }

    /// Whether the client library may have sent one message at both times: a fault of the broker
    /// was active between them, and they are within the time-out of a message. After other messages
    /// have timed out, librdkafka may repeat one that had arrived, with a new sequence number that
    /// the broker does not recognise.
    pub(super) fn sends_again(&self, one_us: i64, other_us: i64) -> bool {
        let (from_us, to_us) = (one_us.min(other_us), one_us.max(other_us));
        to_us - from_us <= timeout_us(self.head) + SLACK_US && self.between(|effects| effects.breaks_broker, from_us, to_us)
    }

    /// Whether the request was unacknowledged at a fault that causes redelivery, and this arrival
    /// follows the earlier one in time. The fault may take effect at any time until its end:
    /// RabbitMQ's permissions are withdrawn first, and its connections close seconds later.
    pub(super) fn hands_out_again(&self, sent_us: i64, due_ms: Option<i64>, (before_us, taken_us): (i64, i64)) -> bool {
        let late_us = self.head.late_ms * 1000;
        self.windows.iter().map(|window| window.fault).any(|fault| {
            let could_us = due_ms.unwrap_or_default().saturating_mul(1000).max(fault.healed_us);
            fault.kind.effects().requeues
                && fault.began_us <= taken_us
                && fault.healed_us >= sent_us - SLACK_US
                && before_us <= fault.healed_us + late_us
                && self.unbroken_us(sent_us, fault.began_us) <= SLACK_US
                && self.unbroken_us(could_us, taken_us) <= late_us
        })
    }

    /// Whether the request was read again from the start of its stream: the consumer was created
    /// again, after a killed server had lost acknowledgements. JetStream stores the removal of a
    /// message later.
    fn is_read_anew(&self, copy: &Copy<'_>) -> bool {
        let late_us = self.head.late_ms * 1000;
        let forgot = |fault: &Fault| {
            fault.kind == FaultKind::BrokerKill && (copy.first_us..=copy.first_us + MAX_LOST_ACK_AGE_US).contains(&fault.began_us)
        };
        let anew = |fault: &Fault| {
            fault.kind == FaultKind::ConsumerDeleted && (fault.began_us..=fault.healed_us + late_us).contains(&copy.again_us)
        };
        let faults = || self.windows.iter().map(|window| window.fault);
        !copy.of_job
            && faults().filter(|kill| forgot(kill)).any(|kill| faults().any(|fault| anew(fault) && kill.began_us <= fault.healed_us))
    }

    /// Until when an attempt in flight at this time may arrive: for a lease, or for a lease after
    /// the end of a fault that holds it back.
    pub(super) fn lands_by_us(&self, at_us: i64) -> i64 {
        let reach_us = self.head.lease_ms * 1000 + SLACK_US;
        let mut by_us = at_us + reach_us;
        for FaultWindow { fault, .. } in &self.windows {
            if fault.kind.effects().holds_back && fault.began_us <= by_us && fault.healed_us >= at_us {
                by_us = by_us.max(fault.healed_us + reach_us);
            }
        }
        by_us
    }

    /// Until when a message that arrived at this time is read: a broker that is down delivers
    /// nothing.
    pub(super) fn read_by_us(&self, at_us: i64) -> i64 {
        let mut by_us = at_us + SLACK_US;
        for FaultWindow { fault, .. } in &self.windows {
            if fault.kind.effects().stops_broker && fault.began_us <= by_us && fault.healed_us >= at_us - SLACK_US {
                by_us = by_us.max(fault.healed_us + self.head.lease_ms * 1000 + SLACK_US);
            }
        }
        by_us
    }

    /// Assigns each copy to a fault that explains it, and reports the others.
    pub(super) fn explain(&mut self, mut copies: Vec<Copy<'a>>, verdict: &mut Verdict) {
        let (reach_us, late_us) = (self.head.lease_ms * 1000 + SLACK_US, self.head.late_ms * 1000);
        copies.sort_by_key(|copy| copy.first_us);
        for copy in copies {
            let is_read_anew = self.is_read_anew(&copy);
            let explains = |window: &&mut FaultWindow<'_>| {
                let Fault { began_us, healed_us, .. } = *window.fault;
                // The claims of a dead instance are taken over within the lease and five seconds. A
                // batch is redelivered after the broker's own time-out.
                let again_us = if copy.of_job { self.head.lease_ms * 1000 + MAX_TAKE_OVER_US } else { late_us };
                // A silent target affects only its own jobs.
                let concerns = |beside: &Scope| copy.job.is_some_and(|job| beside.only.concerns(copy.id, job));
                // A master that is replaced affects its own buckets.
                (!window.fault.kind.replaces_master() || !copy.of_job || window.fault.rolls_back(copy.id))
                    && (!window.fault.kind.effects().silences || window.fault.beside.as_ref().is_some_and(concerns))
                    && (window.room > 0 || !copy.of_job)
                    && copy.first_us >= began_us - reach_us
                    && copy.first_us <= healed_us + reach_us
                    && (began_us..=healed_us + again_us).contains(&copy.again_us)
            };
            // Prefers a fault that was active between the two arrivals to one whose leases still
            // ran, and among the latter the last one.
            let turn = |window: &&mut FaultWindow<'_>| ((copy.first_us - window.fault.healed_us).max(0), window.fault.healed_us);
            match self.windows.iter_mut().filter(explains).min_by_key(turn) {
                Some(window) => {
                    if copy.of_job {
                        window.room -= 1;
                        window.copies.push(copy);
                    }
                    verdict.counts.duplicates += 1;
                }
                None if is_read_anew => verdict.counts.duplicates += 1,
                None => {
                    let after_ms = (copy.again_us - copy.first_us) / 1000;
                    verdict.find(Wrong::Unexplained, format!("{}: again {after_ms} ms after the first, at {}", copy.id, copy.again_us));
                }
            }
        }
    }

    /// The impact of each fault.
    pub(super) fn impacts<'b>(&self, timelines: impl Iterator<Item = &'b Timeline<'b>> + Clone) -> Vec<FaultImpact> {
        let lease_us = self.head.lease_ms * 1000;
        let healed_before =
            |began_us: i64| self.windows.iter().map(|window| window.fault.healed_us).filter(|at_us| *at_us <= began_us).max();
        let owes_from =
            |window: &FaultWindow<'_>| (window.fault.began_us - lease_us).max(healed_before(window.fault.began_us).unwrap_or(i64::MIN));
        self.windows.iter().map(|window| impact(window, owes_from(window), timelines.clone())).collect()
    }
}

/// The publish timeout, µs.
fn timeout_us(head: &RunHeader) -> i64 {
    let margin_ms = i64::try_from(LEASE_MARGIN.as_millis()).unwrap_or(i64::MAX);
    (head.lease_ms - margin_ms).max(1) * 1000
}

/// The number of copies that a fault may explain.
fn room(fault: &Fault, history: &History) -> u64 {
    let allowance = fault.kind.allows();
    // A publication without an answer ends at the publish timeout, and the next one takes its
    // place.
    let rounds = if fault.kind.effects().stops_instance { 1 } else { 1 + (fault.healed_us - fault.began_us) / timeout_us(&history.head) };
    let rounds = u64::try_from(rounds).unwrap_or(1);
    let in_flight = if allowance.duplicates_of_in_flight { fault.in_flight * rounds } else { 0 };
    // Completions just before the fault, or by the abandoned master.
    let lost = |event: &&Event| match &event.op {
        Op::Deliver(what) => (fault.began_us - SLACK_US..=fault.healed_us).contains(&event.t_us) && fault.rolls_back(&what.id),
        _ => false,
    };
    let unreplicated = if fault.has_forgotten() { history.events.iter().filter(lost).count() as u64 } else { 0 };
    // Each request that the host takes loses its answer at once, and the next one takes its place.
    let unanswered = |event: &&Event| {
        matches!(event.op, Op::Deliver(_)) && event.proc == HOST && (fault.began_us..=fault.healed_us).contains(&event.t_us)
    };
    let unanswered = if fault.kind == FaultKind::HostDropsAnswers { history.events.iter().filter(unanswered).count() as u64 } else { 0 };
    in_flight + unreplicated + unanswered
}

/// The impact of a fault on the jobs due from `owes_from_us` on.
fn impact<'a>(window: &FaultWindow<'_>, owes_from_us: i64, timelines: impl Iterator<Item = &'a Timeline<'a>>) -> FaultImpact {
    let Fault { kind, began_us, healed_us, in_flight, detail, .. } = window.fault.clone();
    let duplicates = window.copies.len() as u64;
    let mut impact = FaultImpact {
        kind: kind.to_string(),
        began_us,
        healed_us,
        in_flight,
        duplicates,
        overdue: 0,
        first_us: None,
        last_us: None,
        lateness_us: 0,
        beside_us: None,
        detail,
    };
    // After the heal: the first arrival, and the earliest possible one.
    let mut after: Option<(i64, i64)> = None;
    for timeline in timelines {
        let Some(came @ Came { what, .. }) = timeline.deliveries.first() else { continue };
        let at_us = came.taken_us();
        let (Some(due_ms), false) = (what.due_ms, timeline.job.is_none_or(|job| job.absent)) else { continue };
        let due_us = due_ms * 1000;
        if at_us >= healed_us {
            let could_us = due_us.max(timeline.sent_us);
            let (first_us, since_us) = after.unwrap_or((at_us, could_us));
            after = Some((first_us.min(at_us), since_us.min(could_us)));
        }
        // Jobs claimed at the start of the fault were due before it. Jobs due before the heal of an
        // earlier fault belong to that one.
        if !(owes_from_us..healed_us).contains(&due_us) {
            continue;
        }
        impact.lateness_us = impact.lateness_us.max(at_us - due_us);
        let served = |beside: &&Scope, job: &&Job| {
            (timeline.certain && timeline.sent_us >= began_us) && beside.from_us <= due_us && !beside.only.concerns(&what.id, job)
        };
        if window.fault.beside.as_ref().zip(timeline.job).is_some_and(|(beside, job)| served(&beside, &job)) {
            impact.beside_us = impact.beside_us.max(Some(at_us - due_us.max(timeline.sent_us)));
        }
        if at_us >= healed_us {
            let after_us = at_us - healed_us;
            impact.overdue += 1;
            impact.last_us = Some(impact.last_us.map_or(after_us, |last| last.max(after_us)));
        }
    }
    impact.first_us = after.map(|(first_us, since_us)| (first_us - since_us.max(healed_us)).max(0));
    impact
}
