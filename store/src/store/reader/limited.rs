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
        limited.retain_mut(|one| {
            let Some(queue) = queue_of(one) else { return true };
            let found = counts.iter().find(|counts| counts.queue == queue);
            one.waiting = found.map_or(one.waiting, |counts| counts.ready);
            // Consumers asked for more jobs than there are.
            one.waiting > 0
        });
        Ok(limited)
    }
}
