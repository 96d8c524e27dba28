//! Lists schedules in the order of their ids. No index has that order: a list reads all ids, and
//! the records of a page.

use super::Schedules;
use super::query::{ScheduleFilter, SchedulePage, ScheduleQuery};
use crate::job::JobId;
use crate::schedule::StoredSchedule;
use crate::store::error::StoreError;

/// The most schedules that one call reads.
const MAX_READ: usize = 20_000;
/// The most bytes of bodies, headers and expressions in a page.
const PAGE_BYTES: usize = 4 << 20;
/// The most schedules of a page while all are walked through.
const WALK_LIMIT: usize = 512;

impl Schedules {
    /// The schedule of this id.
    pub async fn find(&self, id: &JobId) -> Result<Option<StoredSchedule>, StoreError> {
        let bucket = self.namespace.keys.bucket_of(id.as_str());
        Ok(self.read_one(bucket, id).await?.map(|read| read.schedule))
    }

    /// A page of schedules. A schedule that changes during the call may be listed or not. One that
    /// cannot be read is not listed. The page may be short, or empty, and have a cursor: a call
    /// reads at most 20 000 schedules.
    pub async fn list(&self, query: &ScheduleQuery) -> Result<SchedulePage, StoreError> {
        let ScheduleQuery { filter, limit, after } = query;
        let mut page = SchedulePage::default();
        if *limit == 0 {
            return Ok(page);
        }
        let mut ids = self.ids(filter.paused).await?;
        ids.retain(|id| {
            filter.is_for_id(id) && after.as_ref().is_none_or(|after| id.as_str() > after.as_str())
        });
        ids.sort_unstable();
        let (mut rest, mut looked_at, mut bytes) = (&ids[..], 0, 0);
        while !rest.is_empty() {
            let wanted = match has_filter(filter) {
                true => rest.len(),
                false => rest.len().min(limit - page.schedules.len()),
            };
            let count = self.readable_at_once(&rest[..wanted]).await?;
            let (part, others) = rest.split_at(count);
            rest = others;
            looked_at += count;
            let mut found = self.read_these(part).await?.into_iter();
            while let Some(schedule) = found.next().map(|read| read.schedule) {
                if !filter.is_for(&schedule) {
                    continue;
                }
                let job = &schedule.job;
                bytes += job.body.len() + job.headers.footprint() + schedule.timing.text.len();
                page.schedules.push(schedule);
                if page.schedules.len() >= *limit || bytes >= PAGE_BYTES {
                    let has_more = !rest.is_empty() || found.next().is_some();
                    let last = page.schedules.last();
                    page.next = last.filter(|_| has_more).map(|last| last.id.as_str().to_owned());
                    return Ok(page);
                }
            }
            if looked_at >= MAX_READ && !rest.is_empty() {
                page.next = part.last().map(|last| last.as_str().to_owned());
                return Ok(page);
            }
        }
        Ok(page)
    }

    /// The schedules of the settings.
    pub async fn of_settings(&self) -> Result<Vec<StoredSchedule>, StoreError> {
        let mut found = Vec::new();
        let all = ScheduleFilter::default();
        self.each(&all, |schedule| {
            if schedule.from_settings {
                found.push(schedule);
            }
        })
        .await?;
        Ok(found)
    }

    /// Hands over every schedule that is wanted, in the order of ids.
    pub(super) async fn each(
        &self,
        filter: &ScheduleFilter,
        mut found: impl FnMut(StoredSchedule),
    ) -> Result<(), StoreError> {
        let mut query = ScheduleQuery { filter: filter.clone(), limit: WALK_LIMIT, after: None };
        loop {
            let page = self.list(&query).await?;
            page.schedules.into_iter().for_each(&mut found);
            let Some(next) = page.next else { return Ok(()) };
            query.after = Some(next);
        }
    }
}

/// Whether only the record shows if a schedule is wanted.
fn has_filter(filter: &ScheduleFilter) -> bool {
    let ScheduleFilter { q: _, paused: _, queue, target, missed_since_ms, own_queues } = filter;
    queue.is_some() || target.is_some() || missed_since_ms.is_some() || own_queues.is_some()
}
