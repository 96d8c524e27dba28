//! The limits that hold jobs back.

use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::limits::Limited;
use crate::store::reader::Reader;

impl Reader {
    /// The limits of all instances that hold jobs back now, by name. Of a queue its ready jobs wait.
    pub async fn limited(&self) -> Result<Vec<Limited>, StoreError> {
        let mut limited = self.namespace.limited().await?;
        let queue_of = |limited: &Limited| DueSet::named(&limited.set).queue().map(str::to_owned);
        let queues: Vec<String> = limited.iter().filter_map(queue_of).collect();
        if queues.is_empty() {
            return Ok(limited);
        }
        let counts = self.queue_counts(&queues).await?;
        for one in &mut limited {
            let queue = queue_of(one);
            let found = counts.iter().find(|counts| Some(&counts.queue) == queue.as_ref());
            one.waiting = found.map_or(one.waiting, |counts| counts.ready);
        }
        Ok(limited)
    }
}
