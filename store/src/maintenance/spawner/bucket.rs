//! The work on the due schedules of one bucket.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::known::Known;
use super::tell::Teller;
use super::unanswered::Unanswered;
use super::{LEAD, Spawner};
use crate::clock::{self, Instant};
use crate::policy::occurrences::{Hindrances, Plan, plan};
use crate::reconnect::jitter;
use crate::schedule::Overlap;
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::schedules::Read;
use crate::store::schedules::change::{Change, Changed};
use crate::store::schedules::heads::{Head, Heads, Look};
use crate::store::schedules::spawn::Answers;

/// The interval between looks, which a large fleet spreads: a schedule that another instance put
/// may have an earlier time than all others.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Each instance leaves a due schedule to those before it for this long, so that they do not do
/// the same work twice.
const RANK_DELAY_MS: i64 = 30;
/// Instances of higher ranks wait no longer than this one.
const MAX_RANK: u32 = 8;
/// The most schedules that one look finds.
const LOOK_SCHEDULES: usize = 512;
/// The most looks in a row at one bucket: then the others have their turn.
const MAX_LOOKS: usize = 64;

/// A bucket.
pub(super) struct Bucket<'a> {
    spawner: &'a Spawner,
    number: u16,
    known: Known,
    teller: Teller,
    /// The plans of the call that failed last: at most those of one.
    unanswered: Vec<Unanswered>,
    /// The last look failed.
    is_failing: bool,
    /// The time of the next look.
    pub(super) look_at: Instant,
}

/// A due schedule that this instance serves.
struct Due {
    read: Read,
    hindrances: Hindrances,
    /// The time that decides, epoch ms.
    now_ms: i64,
}

impl<'a> Bucket<'a> {
    pub(super) fn new(spawner: &'a Spawner, number: u16) -> Self {
        let (known, look_at) = (Known::default(), clock::now());
        let teller = Teller::new(spawner.options.observer.clone());
        let unanswered = Vec::new();
        Bucket { spawner, number, known, teller, unanswered, is_failing: false, look_at }
    }

    /// The next look.
    pub(super) fn look(&mut self, now: Instant) -> Look {
        let now_ms = self.spawner.store.now_ms();
        Look {
            bucket: self.number,
            from_ms: self.known.begin_look(now, now_ms),
            to_ms: now_ms + lead_ms(),
            skip: 0,
            most: LOOK_SCHEDULES,
        }
    }

    /// Makes what a look found due, and what is due behind, and sets the time of the next look.
    pub(super) async fn work(
        &mut self,
        look: Look,
        heads: Result<Heads, StoreError>,
        stop: &CancellationToken,
    ) {
        let now = clock::now();
        self.look_at =
            now + self.spawner.fleet.borrow().shared(LOOK_INTERVAL / 2).max(LOOK_INTERVAL);
        if let Some(all_at) = self.known.all_at() {
            self.look_at = self.look_at.min(all_at);
        }
        let worked = match heads {
            Ok(heads) => self.make_all(look, heads, stop).await,
            Err(error) => Err(error),
        };
        let was_failing = std::mem::replace(&mut self.is_failing, worked.is_err());
        let Err(error) = worked else { return };
        self.known.look_at_all();
        self.look_at = clock::now() + jitter(LOOK_INTERVAL);
        if was_failing || error.is_away() {
            tracing::debug!(bucket = self.number, %error, "due schedules wait, trying again");
        } else {
            tracing::warn!(
                bucket = self.number, %error, hint = error.hint,
                "due schedules wait, trying again"
            );
        }
    }

    async fn make_all(
        &mut self,
        mut look: Look,
        mut heads: Heads,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        // Before another change hides what became of them.
        self.tell_unanswered().await?;
        for _ in 0..MAX_LOOKS {
            let found = heads.found;
            if let Some(next_ms) = heads.next_ms {
                self.expect(next_ms - lead_ms());
            }
            let unreadable = found - heads.due.len();
            look.skip += self.make(heads.due).await? + unreadable;
            // A backlog waits for the next instance: the drain has a limit.
            if found < look.most || stop.is_cancelled() {
                return Ok(());
            }
            heads = self.spawner.store.schedules.heads(&[look]).await?.pop().unwrap_or_default();
        }
        self.look_again();
        Ok(())
    }

    /// Makes the occurrences of these schedules. Returns how many of them stay where they are.
    async fn make(&mut self, due: Vec<Head>) -> Result<usize, StoreError> {
        let all = due.len();
        let ready: Vec<Head> = due.into_iter().filter(|head| self.is_ready(head)).collect();
        let mut stayed = all - ready.len();
        let ids: Vec<_> = ready.iter().map(|head| &head.id).collect();
        let sizes = self.spawner.store.schedules.sizes(self.number, &ids).await?;
        let mut weighed = ready.into_iter().zip(sizes).peekable();
        while weighed.peek().is_some() {
            let (mut part, mut bytes) = (Vec::new(), 0_usize);
            while let Some((head, size)) = weighed.next_if(|(_, size)| {
                part.is_empty() || (part.len() < CALL_JOBS && bytes + size <= CALL_BYTES)
            }) {
                bytes += size;
                part.push(head);
            }
            stayed += self.make_part(part).await?;
        }
        Ok(stayed)
    }

    /// The same for so many schedules as may be in memory together.
    async fn make_part(&mut self, part: Vec<Head>) -> Result<usize, StoreError> {
        let ids: Vec<_> = part.iter().map(|head| head.id.clone()).collect();
        let reads = self.spawner.store.schedules.read_each(self.number, &ids).await?;
        let (all, mut due) = (part.len(), Vec::new());
        for (head, read) in part.into_iter().zip(reads) {
            due.extend(self.due(head, read));
        }
        let mut stayed = all - due.len();
        while !due.is_empty() {
            let (mut again, mark) = (Vec::new(), self.spawner.mark);
            let planned = std::mem::take(&mut due).into_iter().filter_map(|due| {
                let most = due.read.most();
                let mut plan = plan(&due.read.schedule, due.now_ms, &due.hindrances, most)?;
                if let Some(progress) = &mut plan.progress {
                    progress.revision = progress.revision.saturating_add(mark);
                }
                Some((due, plan))
            });
            let mut planned: Vec<(Due, Plan)> = planned.collect();
            while !planned.is_empty() {
                let rest = planned.split_off(fitting(&planned));
                let call = std::mem::replace(&mut planned, rest);
                stayed += self.apply(call, &mut again).await?;
            }
            due = again;
        }
        Ok(stayed)
    }

    /// Applies plans in one call. Adds to `again` what needs another plan. Returns how many
    /// schedules stay where they are.
    async fn apply(
        &mut self,
        call: Vec<(Due, Plan)>,
        again: &mut Vec<Due>,
    ) -> Result<usize, StoreError> {
        let changes: Vec<Change> = call.iter().map(|(due, plan)| due.read.change(plan)).collect();
        let store = &self.spawner.store;
        let Answers { of_changes, failed, unanswered } =
            store.schedules.change_each(self.number, &changes).await;
        let (mut wake_ups, mut stayed) = (Vec::new(), 0);
        let mut asked = call.into_iter().zip(changes);
        for (answer, ((mut due, plan), change)) in of_changes.into_iter().zip(asked.by_ref()) {
            let id = &due.read.schedule.id;
            match answer {
                Ok(Changed::Done { wake_up, .. }) => {
                    wake_ups.extend(wake_up);
                    let made = change.make.iter().map(|made| (&made.id, made.due_ms));
                    self.teller.tell(&due.read.schedule, &plan, made, clock::now());
                    match plan.progress.and_then(|progress| progress.next_ms) {
                        // A call made a part of what is due.
                        Some(next_ms) if next_ms <= due.now_ms => self.look_again(),
                        Some(next_ms) => self.expect(next_ms - lead_ms()),
                        None => {}
                    }
                }
                Ok(changed) if changed.hinders(&mut due.hindrances) => again.push(due),
                // Another instance was faster, or the schedule was put again.
                Ok(_) => {
                    stayed += 1;
                    self.look_again();
                }
                Err(error) => {
                    stayed += 1;
                    if self.known.is_news(id) {
                        tracing::warn!(%id, %error, "the occurrences of a schedule cannot be made");
                    }
                    let next_ms = due.read.schedule.progress.next_ms.unwrap_or_default();
                    self.known.leave_alone(Head { id: id.clone(), next_ms }, clock::now());
                }
            }
        }
        if !wake_ups.is_empty() {
            (self.spawner.options.wake)(wake_ups);
        }
        let Some(error) = failed else { return Ok(stayed) };
        let left = asked.take(unanswered);
        self.unanswered.extend(
            left.map(|((due, plan), change)| Unanswered::new(due.read.schedule, plan, change)),
        );
        Err(error)
    }

    /// Tells of the plans of a failed call that Redis had applied: the failure may have come after
    /// that. The others are made like all that is due.
    async fn tell_unanswered(&mut self) -> Result<(), StoreError> {
        if self.unanswered.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = self.unanswered.iter().map(|one| one.schedule.id.clone()).collect();
        let found = self.spawner.store.schedules.read_each(self.number, &ids).await?;
        for (one, found) in std::mem::take(&mut self.unanswered).into_iter().zip(found) {
            if found.is_ok_and(|found| one.is_applied(found.as_ref())) {
                let made = one.made.iter().map(|(id, due_ms)| (id, *due_ms));
                self.teller.tell(&one.schedule, &one.plan, made, clock::now());
            }
        }
        Ok(())
    }

    /// The schedule, if it is due, can be read, and is this instance's to make. Another one stays
    /// where it is.
    fn due(&mut self, head: Head, read: Result<Option<Read>, StoreError>) -> Option<Due> {
        let (now, now_ms) = (clock::now(), self.spawner.store.now_ms());
        let read = match read {
            Ok(Some(read)) => read,
            // The schedule ended meanwhile, or its entry is damage.
            Ok(None) => {
                self.known.leave_alone(head, now);
                return None;
            }
            Err(error) => {
                if self.known.is_news(&head.id) {
                    tracing::warn!(
                        id = %head.id, %error, hint = error.hint,
                        "a schedule cannot be read, its occurrences are not made"
                    );
                }
                self.known.leave_alone(head, now);
                return None;
            }
        };
        let options = &self.spawner.options;
        let owner = DueSet::of(&read.schedule.job);
        let next_ms = read.schedule.progress.next_ms.filter(|_| (options.serves)(owner));
        if next_ms != Some(head.next_ms)
            || read.schedule.progress.is_paused
            || read.schedule.timetable().is_none()
        {
            // Another instance's, or it was changed since the look.
            if let Some(next_ms) = next_ms {
                self.expect(next_ms - lead_ms());
            }
            self.known.leave_alone(head, now);
            return None;
        }
        let is_full = owner.queue().is_some_and(|queue| (options.is_full)(queue));
        let name = owner.name();
        self.known.learn(&head.id, &name);
        let mut ready_ms = self.ready_ms(&head, &name);
        if read.schedule.timing.overlap == Overlap::Skip {
            // Not ahead: the occurrence before may end until then.
            ready_ms += lead_ms();
        }
        if now_ms < ready_ms {
            self.expect(ready_ms);
            return None;
        }
        let hindrances = Hindrances { is_full, ..Hindrances::default() };
        Some(Due { read, hindrances, now_ms: now_ms.max(head.next_ms) })
    }

    /// Whether a schedule may be this instance's to make now, as far as is known without a read.
    fn is_ready(&mut self, head: &Head) -> bool {
        if self.known.is_left_alone(head) {
            return false;
        }
        let Some(owner) = self.known.owner(&head.id) else { return true };
        let ready_ms = self.ready_ms(head, owner);
        let is_ready = ready_ms <= self.spawner.store.now_ms();
        if !is_ready {
            self.expect(ready_ms);
        }
        is_ready
    }

    /// From when on a schedule is this instance's to make, epoch ms: those before it come first.
    fn ready_ms(&self, head: &Head, owner: &str) -> i64 {
        let rank = self.spawner.fleet.borrow().rank(self.number, owner).min(MAX_RANK);
        head.next_ms - lead_ms() + i64::from(rank) * RANK_DELAY_MS
    }

    /// The next look is at once, and begins at the first schedule.
    fn look_again(&mut self) {
        self.known.look_from_first();
        self.look_at = clock::now();
    }

    /// The next look is at this time at the latest, epoch ms.
    fn expect(&mut self, at_ms: i64) {
        let ahead_us = at_ms.saturating_mul(1000).saturating_sub(self.spawner.store.now_us());
        self.look_at = self.look_at.min(clock::now() + clock::micros(ahead_us));
    }
}

/// How many of these plans one call applies, at least 1.
fn fitting(planned: &[(Due, Plan)]) -> usize {
    let (mut jobs, mut bytes) = (0, 0_usize);
    let fits = |(due, plan): &&(Due, Plan)| {
        jobs += plan.make.len().max(1);
        bytes = bytes.saturating_add(plan.make.len().saturating_mul(due.read.bytes_of_one()));
        jobs <= CALL_JOBS && bytes <= CALL_BYTES
    };
    planned.iter().take_while(fits).count().max(1).min(planned.len())
}

/// [`LEAD`], ms.
fn lead_ms() -> i64 {
    i64::try_from(LEAD.as_millis()).unwrap_or(0)
}
