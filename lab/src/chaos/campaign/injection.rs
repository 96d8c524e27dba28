//! The injection of faults, one after another, each with its entry in the history.

use std::time::Duration;

use dwell::clock;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::recovery::Recovery;
use super::{Campaign, RECOVERY_TIMEOUT};
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{Fault, Op, Phase};
use crate::chaos::inject;
use crate::chaos::plan::{Plan, Step};

/// The longest time of a fault with its heal.
const STRIKE_TIMEOUT: Duration = Duration::from_secs(180);

impl Campaign<'_> {
    /// Injects one fault after another until the time is over and enough are injected.
    pub(super) async fn inject_faults(&self) -> Result<(), String> {
        let kinds =
            if self.options.only.is_empty() { FaultKind::all() } else { &self.options.only };
        let kinds: Vec<FaultKind> =
            kinds.iter().copied().filter(|kind| kind.applies(self.system.options())).collect();
        let until = clock::now() + self.options.duration;
        let mut recovery = Recovery::default();
        for (injected, step) in Plan::new(self.options.seed, &kinds, self.options.pace).enumerate()
        {
            if clock::now() >= until && injected >= self.options.least {
                break;
            }
            // A fault that ends an instance must not take counts with it.
            self.sample_all().await;
            let healed_us = self.inject_one(&step).await?;
            let began = clock::now();
            // A job that fell due after the heal has arrived.
            if !self
                .until(RECOVERY_TIMEOUT, || self.recorder.newest_due_ms() * 1000 > healed_us)
                .await
            {
                return Err(format!(
                    "nothing arrived within {} s after {} was healed",
                    RECOVERY_TIMEOUT.as_secs(),
                    step.kind
                ));
            }
            let arrive_ms = began.elapsed().as_millis();
            let recovered = recovery.wait(self.system, self.recorder, healed_us).await;
            (self.options.say)(&format!(
                "  jobs arrive {arrive_ms} ms after, {recovered} {} ms after",
                began.elapsed().as_millis()
            ));
            clock::sleep(step.pause).await;
        }
        Ok(())
    }

    async fn inject_one(&self, step: &Step) -> Result<i64, String> {
        let entry = |began_us, healed_us, detail| Fault {
            kind: step.kind,
            began_us,
            healed_us,
            in_flight: 0,
            detail,
            clock_step_us: None,
            beside: None,
            leases: None,
            forgotten: None,
        };
        let now_us = clock::wall_us();
        let hold_us = i64::try_from(step.hold.as_micros()).unwrap_or(i64::MAX);
        self.recorder.record(
            "faults",
            Phase::Invoke,
            Op::Fault(entry(now_us, now_us + hold_us, String::new())),
        );
        let mut rng = StdRng::seed_from_u64(step.seed);
        let injected = clock::timeout(
            STRIKE_TIMEOUT,
            Box::pin(inject::inject(step.kind, self.system, &mut rng, step.hold)),
        )
        .await;
        let error = match injected {
            Some(Ok(injected)) => {
                let took_ms = (injected.healed_us - injected.began_us) / 1000;
                let (inject::Injected { leases, detail, forgotten, .. }, healed_us) =
                    (&injected, injected.healed_us);
                (self.options.say)(&format!(
                    "{}: {detail}, {took_ms} ms, {} in flight, {} held",
                    step.kind, leases.claimed, leases.held
                ));
                if let Some(forgotten) = forgotten {
                    (self.options.say)(&format!(
                        "  another master for buckets {:?}",
                        forgotten.buckets
                    ));
                }
                let fault = Fault::from(injected);
                self.recorder.record("faults", Phase::Ok, Op::Fault(fault));
                return Ok(healed_us);
            }
            Some(Err(error)) => error.to_string(),
            None => format!("it took more than {} s", STRIKE_TIMEOUT.as_secs()),
        };
        self.recorder.record(
            "faults",
            Phase::Info,
            Op::Fault(entry(now_us, clock::wall_us(), error.clone())),
        );
        Err(format!("{}: {error}", step.kind))
    }
}
