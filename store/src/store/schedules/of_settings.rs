//! The schedules of settings: what a request would change, and the end of one that no settings have
//! any more.

use std::time::Duration;

use super::change::{Change, Changed};
use super::{Schedules, codec};
use crate::job::JobId;
use crate::request::NewSchedule;
use crate::store::error::StoreError;

/// How often a schedule is read again that changed meanwhile.
const MAX_TRIES: usize = 3;

impl Schedules {
    /// Whether this request would change the schedule of its id, as it is now; `None`: no schedule
    /// has the id.
    pub async fn would_change(&self, new: &NewSchedule) -> Result<Option<bool>, StoreError> {
        let bucket = self.namespace.keys().bucket_of(new.id.as_str());
        let read = self.read(bucket, std::slice::from_ref(&new.id)).await?.pop().flatten();
        Ok(read.map(|read| read.digest != codec::digest(new)))
    }

    /// Ends a schedule of the settings that no instance named within `ttl`. Nothing happens to a
    /// schedule that came through another door, nor to one that is named again or changes
    /// meanwhile. The occurrences that were made stay. `None`: it changed again and again, ask
    /// later. `Some(true)`: it is ended.
    pub async fn end_forgotten(
        &self,
        id: &JobId,
        ttl: Duration,
    ) -> Result<Option<bool>, StoreError> {
        let bucket = self.namespace.keys().bucket_of(id.as_str());
        for _ in 0..MAX_TRIES {
            let read = self.read(bucket, std::slice::from_ref(id)).await?.pop().flatten();
            let Some(read) = read.filter(|read| read.schedule.from_settings) else {
                return Ok(Some(false));
            };
            // An instance names its schedules before it stores them. What is stored after this
            // reading changes the state; an instance that stores the same again is told by the
            // name's end, see `declare_schedules`.
            if !self.namespace.is_forgotten_schedule(id, ttl).await? {
                return Ok(Some(false));
            }
            let end = Change {
                id: id.clone(),
                expected: Some(read.state),
                record: None,
                progress: None,
                make: Vec::new(),
                unless_alive: None,
                take: None,
            };
            if let Some(Changed::Done { .. }) = self.change(bucket, &[end]).await?.pop() {
                return Ok(Some(true));
            }
        }
        Ok(None)
    }
}
