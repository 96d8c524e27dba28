//! The injection of faults, one after another, each with its entry in the history.

use std::collections::HashSet;
use std::time::Duration;

use dwell::clock;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{CHECK_INTERVAL, Campaign, Error, Options, RECOVERY_TIMEOUT};
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Fault, Op, Phase};
use crate::chaos::inject;
use crate::chaos::plan::{Plan, Step};
use crate::chaos::queue::faults::forget_more;
use crate::chaos::wait::{until, within};

/// The longest time of a fault with its heal.
const STRIKE_TIMEOUT: Duration = Duration::from_secs(180);
/// The longest wait: a lease, the broker's wait for a reader that is gone, and a margin. A job that
/// is outstanding after this is not waited for again: its dead letter may have been
/// refused.
const CALM_TIMEOUT: Duration = Duration::from_secs(14);

impl Campaign<'_> {
    /// Injects one fault after another until the time is over and enough are injected.
    pub(super) async fn inject_faults(&self, options: &Options) -> Result<(), Error> {
        let kinds = if options.only.is_empty() { FaultKind::all() } else { &options.only };
        let kinds: Vec<FaultKind> =
            kinds.iter().copied().filter(|kind| kind.applies(self.system.options())).collect();
        let end = clock::now() + options.duration;
        let mut recovery = Recovery::default();
        for (injected, step) in Plan::new(options.seed, &kinds, options.pace).enumerate() {
            if clock::now() >= end && injected >= options.least {
                break;
            }
            // A fault that ends an instance must not take counts with it.
            self.sample_all().await;
            let healed_us = self.inject_one(&step).await?.healed_us;
            let began = clock::now();
            // A job that fell due after the heal has arrived.
            let missed = format!("nothing arrived after {} was healed", step.kind);
            until(RECOVERY_TIMEOUT, missed, async || {
                Ok(self.recorder.newest_due_ms() * 1000 > healed_us)
            })
            .await?;
            let arrive_ms = began.elapsed().as_millis();
            let recovered = recovery.wait(self, healed_us).await;
            (self.say)(&format!(
                "  jobs arrive {arrive_ms} ms after, {recovered} {} ms after",
                began.elapsed().as_millis()
            ));
            clock::sleep(step.pause).await;
        }
        Ok(())
    }

    /// Injects a fault, and records its begin and its end.
    pub(super) async fn inject_one(&self, step: &Step) -> Result<Fault, Error> {
        let Step { kind, hold, .. } = *step;
        let record = |phase, fault| self.recorder.record("faults", phase, Op::Fault(fault));
        let now_us = clock::wall_us();
        let hold_us = i64::try_from(hold.as_micros()).unwrap_or(i64::MAX);
        record(Phase::Invoke, Fault::new(kind, (now_us, now_us + hold_us), String::new()));
        let mut rng = StdRng::seed_from_u64(step.seed);
        let injecting = Box::pin(inject::inject(kind, self.system, &mut rng, hold));
        let mut fault = match within(STRIKE_TIMEOUT, "it did not end", injecting).await {
            Ok(fault) => fault,
            Err(error) => {
                let during = (now_us, clock::wall_us());
                record(Phase::Info, Fault::new(kind, during, error.to_string()));
                return Err(Error::Unexpected(format!("{kind}: {error}")));
            }
        };
        if self.pops {
            forget_more(&mut fault, self.system);
        }
        let leases = fault.leases.unwrap_or_default();
        (self.say)(&format!(
            "{kind}: {}, {} ms, {} in flight, {} held",
            fault.detail,
            (fault.healed_us - fault.began_us) / 1000,
            leases.claimed,
            leases.held
        ));
        if let Some(forgotten) = &fault.forgotten {
            (self.say)(&format!("  another master for buckets {:?}", forgotten.buckets));
        }
        record(Phase::Ok, fault.clone());
        Ok(fault)
    }
}

/// The wait between two faults: until the backlog of the first has drained, so that each fault is
/// measured alone. The jobs that did not arrive in time.
#[derive(Default)]
struct Recovery(HashSet<String>);

impl Recovery {
    /// Waits until every job due before the heal is done, and no claim is older than the heal.
    /// Returns a text for people.
    async fn wait(&mut self, campaign: &Campaign<'_>, healed_us: i64) -> String {
        let Campaign { system, recorder, .. } = campaign;
        let began = clock::now();
        loop {
            let mut overdue = recorder.overdue(healed_us / 1000);
            overdue.retain(|id| !self.0.contains(id));
            let claimed = system.claimed_before(healed_us).await;
            if overdue.is_empty() && claimed == Some(0) {
                return "all is calm".to_owned();
            }
            if began.elapsed() >= CALM_TIMEOUT {
                let claimed =
                    claimed.map_or("an unknown number".to_owned(), |left| left.to_string());
                let said = format!("{} jobs still overdue and {claimed} claimed", overdue.len());
                self.0.extend(overdue);
                return said;
            }
            clock::sleep(CHECK_INTERVAL).await;
        }
    }
}
