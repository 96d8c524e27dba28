//! Recurring schedules of the load: some go on, some are paused and resumed, some are cancelled, and
//! some have a count.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::draw::{Action, NOTE_HEADER, Plan, message};
use super::request::Request;
use crate::chaos::history::{Job, Recurring, digest};

/// The schedules at once at the start, and from one to the next after that, ms.
const AT_START: i64 = 12;
const INTERVAL_MS: i64 = 4000;
/// From the request to the first time, ms.
const LEAD_MS: std::ops::Range<i64> = 2000..4000;
/// The interval of a schedule, ms.
const EVERY_MS: std::ops::Range<i64> = 2000..10_000;
/// `delay-count`
const COUNT: std::ops::Range<u64> = 1..8;
/// From the request to a pause or a cancel, and from the pause to the resume, ms.
const ACTION_MS: std::ops::Range<i64> = 5000..30_000;
const PAUSE_MS: std::ops::Range<i64> = 1000..15_000;
/// The begin of the ids.
const PREFIX: &str = "every-";

/// Draws schedules.
pub(super) struct Schedules {
    rng: StdRng,
    targets: Vec<String>,
    /// The prefix of this run's ids.
    run: String,
    next: u32,
}

/// A schedule, and the control requests for it.
pub(super) struct DrawnSchedule {
    pub(super) id: String,
    pub(super) request: Request,
    pub(super) plans: Vec<Plan>,
}

/// Whether this is the id of a schedule.
pub(super) fn is_schedule(id: &str) -> bool {
    id.starts_with(PREFIX)
}

impl Schedules {
    pub(super) fn new(seed: u64, targets: Vec<String>) -> Schedules {
        let rng = StdRng::seed_from_u64(seed.rotate_left(32));
        Schedules { rng, targets, run: format!("{PREFIX}{seed:x}"), next: 0 }
    }

    /// The next schedule until now, of a load that began at this time.
    pub(super) fn until(
        &mut self,
        now_ms: i64,
        began_ms: i64,
        instances: usize,
    ) -> Option<DrawnSchedule> {
        let wanted = AT_START + (now_ms - began_ms) / INTERVAL_MS;
        (i64::from(self.next) < wanted).then(|| self.draw(now_ms, instances))
    }

    fn draw(&mut self, now_ms: i64, instances: usize) -> DrawnSchedule {
        self.next += 1;
        let id = format!("{}-{}", self.run, self.next);
        let target = self.targets[self.rng.random_range(0..self.targets.len())].clone();
        // A quarter each: without an end, paused and resumed, with a count, and cancelled.
        let kind = self.next % 4;
        let count = (kind == 2).then(|| self.rng.random_range(COUNT));
        let every_ms = self.rng.random_range(EVERY_MS);
        let note = every_ms.to_string();
        let job = Job {
            due_ms: now_ms + self.rng.random_range(LEAD_MS),
            target,
            digest: digest(id.as_bytes(), [(NOTE_HEADER, &*note)]),
            recurring: Some(Recurring { every_ms, count }),
            ..Job::default()
        };
        let at_ms = now_ms + self.rng.random_range(ACTION_MS);
        let resume_ms = at_ms + self.rng.random_range(PAUSE_MS);
        // A pause has no message.
        let instance = (instances > 0).then(|| self.rng.random_range(0..instances));
        let by_any = instance.filter(|_| self.rng.random());
        let plan = |action, at_ms, door| Plan { at_ms, action, due_ms: None, door, seen: None };
        let plans = match kind {
            1 if instance.is_some() => vec![
                plan(Action::Pause, at_ms, instance),
                plan(Action::Resume, resume_ms, instance),
            ],
            3 => vec![plan(Action::Cancel, at_ms, by_any)],
            _ => Vec::new(),
        };
        let message = message(&id, &job, id.clone(), note);
        let request = Request::job(&id, job, message, None);
        DrawnSchedule { id, request, plans }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::Op;

    #[test]
    fn one_seed_is_one_series_of_schedules_of_every_kind() {
        let drawn = |seed| {
            let mut schedules = Schedules::new(seed, vec!["a".to_owned()]);
            std::iter::from_fn(|| schedules.until(100_000, 0, 2)).collect::<Vec<_>>()
        };
        let ops = |drawn: &[DrawnSchedule]| -> Vec<_> {
            drawn.iter().map(|drawn| drawn.request.op.clone()).collect()
        };
        let (one, same, other) = (drawn(7), drawn(7), drawn(8));
        assert_eq!(one.len(), 37);
        assert_eq!(ops(&one), ops(&same));
        assert_ne!(ops(&one), ops(&other));
        assert!(one.iter().all(|drawn| is_schedule(&drawn.id)));
        for action in [Action::Pause, Action::Resume, Action::Cancel] {
            assert!(one.iter().any(|of| of.plans.iter().any(|plan| plan.action == action)));
        }
        let has_count = |drawn: &DrawnSchedule| match &drawn.request.op {
            Op::Schedule(schedule) => schedule
                .job
                .as_ref()
                .and_then(|job| job.recurring)
                .is_some_and(|recurring| recurring.count.is_some()),
            _ => false,
        };
        assert!(one.iter().any(has_count));
    }
}
