//! Judges the jobs of a bucket: every id in every key.

mod broker;
mod hold;
mod quarantine;
mod suspect;

use std::collections::{BTreeSet, VecDeque};

use self::suspect::{Checked, Suspect};
use super::scan::Scan;
use super::{Fsck, Problem};
use crate::job::JobId;
use crate::store::answer::Items;
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::record;
use crate::store::scripts::Name;

/// The most checks of a repaired id: more than the problems that can hide others.
const MAX_REPAIR_ROUNDS: u8 = 8;

/// The verdict of the script on one id.
struct Verdict {
    at: usize,
    problem: Problem,
    repaired: bool,
    detail: Vec<u8>,
}

impl Verdict {
    /// The queue whose sets the script needs to judge the id, by `=` and its name.
    fn needs_queue(&self) -> Option<String> {
        let set = std::str::from_utf8(&self.detail)
            .ok()
            .filter(|_| self.problem == Problem::MetaBroker)?;
        DueSet::named(set).is_of_queue().then(|| set.to_owned())
    }
}

impl Fsck<'_> {
    /// Judges every id of a bucket.
    pub(super) async fn bucket(&mut self, bucket: u16) -> Result<(), StoreError> {
        let mut checked = Checked::default();
        let mut scan = Scan::of("HSCAN", self.store.keys.jobs(bucket));
        while let Some(page) = scan.next(&self.store.link).await? {
            let mut suspects = VecDeque::new();
            let mut page = page.into_iter();
            while let (Some(id), Some(record)) = (page.next(), page.next()) {
                let record = bytes::Bytes::from(record);
                let job = record::decode(record.clone()).ok().map(|read| read.job);
                let set = job.as_ref().map(DueSet::of).filter(|set| set.is_of_queue());
                let queue = set.map(|set| set.to_string());
                if checked.is_new(&id, queue.as_deref()) {
                    let unreadable = if job.is_some() { Vec::new() } else { record.to_vec() };
                    suspects.push_back(Suspect {
                        unreadable,
                        ..Suspect::new(id, queue.into_iter().collect())
                    });
                }
            }
            self.jobs += suspects.len() as u64;
            self.classify(bucket, suspects).await?;
        }
        let claimed = self
            .store
            .claimed_jobs(bucket)
            .await?
            .into_iter()
            .map(|claimed| claimed.id.into_bytes())
            .filter(|id| checked.is_new(id, None));
        let claimed = claimed.map(|id| Suspect::new(id, Vec::new())).collect();
        self.classify(bucket, claimed).await?;
        let keys = &self.store.keys;
        let mut sets = vec![
            ("ZSCAN", keys.held(bucket).to_owned(), None),
            ("ZSCAN", keys.dead(bucket).to_owned(), None),
        ];
        sets.push(("HSCAN", keys.state(bucket).to_owned(), None));
        for set in self.sets(bucket) {
            let queue = DueSet::named(&set).is_of_queue().then(|| set.clone());
            sets.extend(keys.sets(bucket, &set).map(|key| ("ZSCAN", key, queue.clone())));
        }
        for (command, key, queue) in sets {
            let mut scan = Scan::of(command, &key);
            while let Some(page) = scan.next(&self.store.link).await? {
                // The empty field of state holds the last known master.
                let ids = page
                    .into_iter()
                    .step_by(2)
                    .filter(|id| !id.is_empty() && checked.is_new(id, queue.as_deref()));
                let suspects =
                    ids.map(|id| Suspect::new(id, queue.iter().cloned().collect())).collect();
                self.classify(bucket, suspects).await?;
            }
        }
        Ok(())
    }

    /// Judges the moved jobs in their own buckets: they may have other damage too.
    pub(super) async fn judge_moved(&mut self) -> Result<(), StoreError> {
        for (bucket, id) in std::mem::take(&mut self.moved) {
            self.classify(bucket, [Suspect::new(id, Vec::new())].into()).await?;
        }
        Ok(())
    }

    async fn classify(
        &mut self,
        bucket: u16,
        mut suspects: VecDeque<Suspect>,
    ) -> Result<(), StoreError> {
        while !suspects.is_empty() {
            let (judged, verdicts) = self.ask(bucket, &suspects).await?;
            let mut judged: Vec<Suspect> =
                suspects.drain(..judged.clamp(1, suspects.len())).collect();
            let mut again: Vec<usize> = Vec::new();
            for verdict in verdicts {
                let Some(suspect) = judged.get_mut(verdict.at) else { continue };
                if let Some(queue) = verdict.needs_queue().filter(|queue| {
                    !suspect.queues.contains(queue) && suspect.rounds < MAX_REPAIR_ROUNDS
                }) {
                    suspect.queues.push(queue);
                    again.push(verdict.at);
                    continue;
                }
                if self
                    .take(bucket, &suspect.id, verdict.problem, verdict.repaired, verdict.detail)
                    .await?
                    && suspect.rounds < MAX_REPAIR_ROUNDS
                {
                    again.push(verdict.at);
                }
            }
            for (at, suspect) in judged.into_iter().enumerate() {
                if again.contains(&at) {
                    suspects.push_back(Suspect { rounds: suspect.rounds + 1, ..suspect });
                }
            }
        }
        Ok(())
    }

    /// Asks the script. Returns the number of checked ids, and the verdicts.
    async fn ask(
        &self,
        bucket: u16,
        suspects: &VecDeque<Suspect>,
    ) -> Result<(usize, Vec<Verdict>), StoreError> {
        let queues: BTreeSet<&String> =
            suspects.iter().take(CALL_JOBS).flat_map(|suspect| &suspect.queues).collect();
        let mut call = self.call_with_quarantine(Name::FsckJobs, bucket, queues.into_iter());
        call.arg(u8::from(self.rules.repair))
            .arg(self.rules.lease_ms)
            .arg(self.rules.sweep.dead_retention_ms)
            .arg(CALL_BYTES);
        for suspect in suspects.iter().take(CALL_JOBS) {
            call.arg(&suspect.id[..])
                .arg(self.odd(bucket, &suspect.id))
                .arg(&suspect.unreadable[..]);
        }
        let mut items = Items::new("fsck_jobs", self.store.call(&call).await?)?;
        let judged = usize::try_from(items.int()?).unwrap_or(0);
        let mut verdicts = Vec::new();
        while items.left() >= 4 {
            let at = usize::try_from(items.int()? - 1).unwrap_or(usize::MAX);
            let word = items.text()?;
            let problem = Problem::of_word(&word).ok_or_else(|| {
                StoreError::new(
                    Class::Script,
                    format!("redis: fsck_jobs answered `{word}` instead of a problem"),
                )
            })?;
            verdicts.push(Verdict {
                at,
                problem,
                repaired: items.int()? == 1,
                detail: items.bytes()?.to_vec(),
            });
        }
        Ok((judged, verdicts))
    }

    /// The problem of an id that no script can detect.
    fn odd(&self, bucket: u16, id: &[u8]) -> &'static str {
        match std::str::from_utf8(id) {
            Ok(text) if JobId::new(text).is_ok() => {
                if self.store.keys.bucket_of(text) == bucket {
                    ""
                } else {
                    "bucket"
                }
            }
            _ => "id",
        }
    }

    /// Completes a repair that a script of one bucket cannot make, and reports the finding. Returns
    /// whether to check the id again.
    async fn take(
        &mut self,
        bucket: u16,
        id: &[u8],
        problem: Problem,
        repaired: bool,
        detail: Vec<u8>,
    ) -> Result<bool, StoreError> {
        match problem {
            Problem::MetaBroker => {
                let broker = String::from_utf8_lossy(&detail).into_owned();
                // An instance with this broker joined after the start of this run: no damage.
                if !self.brokers.contains(&broker) && self.store.has_joined(&broker).await? {
                    return Ok(true);
                }
                // Reported once. Its jobs are checked after the broker is added.
                if self.brokers.insert(broker.clone()) {
                    let repaired = self.rules.repair;
                    if repaired {
                        self.store.add_broker(&broker).await?;
                    }
                    (self.found)(super::Finding { bucket: None, id: broker, problem, repaired });
                }
                return Ok(self.rules.repair);
            }
            Problem::LeaseExpired if self.rules.repair && !repaired => {
                let repaired = self.end_hold(bucket, id, &detail).await?;
                self.tell(bucket, id, problem, repaired);
                return Ok(repaired);
            }
            Problem::WrongBucket if repaired => self.move_home(bucket, id, &detail).await?,
            _ => {}
        }
        self.tell(bucket, id, problem, repaired);
        Ok(repaired)
    }

    /// Judges the leases of a bucket: each needs its jobs, their bits and a deadline.
    pub(super) async fn leases(&mut self, bucket: u16) -> Result<(), StoreError> {
        let mut call = self.store.script_call(Name::FsckLeases, bucket, &self.sets(bucket));
        call.arg(u8::from(self.rules.repair)).arg(self.rules.lease_ms);
        let mut items = Items::new("fsck_leases", self.store.call(&call).await?)?;
        while items.left() > 0 {
            let name = items
                .bytes()?
                .iter()
                .fold("lease ".to_owned(), |name, byte| format!("{name}{byte:02x}"));
            self.tell(bucket, name.as_bytes(), Problem::LeaseWithoutOwner, self.rules.repair);
        }
        Ok(())
    }
}
