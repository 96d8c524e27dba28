//! Judges the recurring schedules of a bucket: each can be read, and its next time is in
//! `schedule_times` while it is not paused.

use redis::Pipeline;

use super::scan::Scan;
use super::{Fsck, Problem};
use crate::job::JobId;
use crate::schedule::Progress;
use crate::store::answer::score;
use crate::store::error::StoreError;
use crate::store::schedules::change::{Change, Changed};
use crate::store::schedules::{Read, look};

impl Fsck<'_> {
    /// Judges the three keys of a bucket.
    pub(super) async fn schedules(&mut self, bucket: u16) -> Result<(), StoreError> {
        let keys = self.store.keys.clone();
        for (key, command, leftover) in [
            (keys.schedule_times(bucket), "ZSCAN", Some(Problem::IndexWithoutRecord)),
            (keys.schedule_states(bucket), "HSCAN", Some(Problem::StateWithoutRecord)),
            (keys.schedules(bucket), "HSCAN", None),
        ] {
            let mut scan = Scan::of(command, key);
            while let Some(page) = scan.next(&self.store.link).await? {
                // A name, then a value or a score.
                for name in page.into_iter().step_by(2) {
                    match std::str::from_utf8(&name).ok().and_then(|id| JobId::new(id).ok()) {
                        Some(id) => self.judge_schedule(bucket, &id, leftover).await?,
                        None => self.tell(bucket, &name, Problem::BadId, false),
                    }
                }
            }
        }
        Ok(())
    }

    /// Judges an id. `leftover`: the problem of a key without the schedule; `None` for the key of
    /// the schedules themselves.
    async fn judge_schedule(
        &mut self,
        bucket: u16,
        id: &JobId,
        leftover: Option<Problem>,
    ) -> Result<(), StoreError> {
        let found = self.read_schedule(bucket, id).await?;
        let (problem, change) = match (found, leftover) {
            (Ok(None), Some(problem)) => (problem, change_of(id, None)),
            (Err(_), None) => {
                self.tell(bucket, id.as_str().as_bytes(), Problem::UnreadableRecord, false);
                return Ok(());
            }
            (Ok(Some(read)), None) => {
                if self.is_indexed(bucket, &read).await? {
                    return Ok(());
                }
                // The index was read of this very state, unless the schedule changed meanwhile.
                let again = self.read_schedule(bucket, id).await?;
                if !again.is_ok_and(|again| again.is_some_and(|again| again.state == read.state)) {
                    return Ok(());
                }
                (Problem::ScheduleTime, change_of(id, Some(&read)))
            }
            _ => return Ok(()),
        };
        let repaired = self.rules.repair
            && matches!(
                self.store.schedules.change(bucket, &[change]).await?[..],
                [Changed::Done { .. }]
            );
        self.tell(bucket, id.as_str().as_bytes(), problem, repaired);
        Ok(())
    }

    async fn read_schedule(
        &self,
        bucket: u16,
        id: &JobId,
    ) -> Result<Result<Option<Read>, StoreError>, StoreError> {
        let found = look(&self.store, bucket, &[id.as_str()]).await?.pop();
        Ok(found.map_or(Ok(None), |found| found.read))
    }

    /// Whether the index has the next time of the schedule.
    async fn is_indexed(&self, bucket: u16, read: &Read) -> Result<bool, StoreError> {
        let mut pipeline = Pipeline::new();
        pipeline
            .cmd("ZSCORE")
            .arg(self.store.keys.schedule_times(bucket))
            .arg(read.schedule.id.as_str());
        let answers = self.store.link.pipeline("looking a schedule up", &pipeline).await?;
        let Progress { is_paused, next_ms, .. } = read.schedule.progress;
        let wanted = next_ms.filter(|_| !is_paused);
        Ok(answers.into_iter().next().and_then(score) == wanted)
    }
}

/// The change that writes the next time of a schedule again, or removes what is left of one that
/// does not exist.
fn change_of(id: &JobId, read: Option<&Read>) -> Change {
    let progress = read.map(|read| {
        let was = &read.schedule.progress;
        Progress { revision: was.revision.wrapping_add(1), ..was.clone() }
    });
    Change {
        id: id.clone(),
        expected: read.map(|read| read.state.clone()),
        record: None,
        progress,
        make: Vec::new(),
        unless_alive: None,
        take: None,
    }
}
