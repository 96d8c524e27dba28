//! The sorted sets in which a list looks for its jobs.

use super::query::Query;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::reader::Reader;
use crate::store::reader::lookup::JobState;

impl Reader {
    /// The wanted sets of each bucket: the sets of the brokers, and of the queues of which it has
    /// jobs.
    pub(super) async fn sets_of(&self, query: &Query) -> Result<Vec<Vec<String>>, StoreError> {
        let mut sets = match &query.queue {
            Some(queue) => {
                vec![vec![DueSet::Queue(queue).to_string()]; self.namespace.keys.buckets().into()]
            }
            None => self
                .namespace
                .active_queues()
                .await?
                .iter()
                .map(|active| self.namespace.sets_with(active))
                .collect(),
        };
        sets.iter_mut().for_each(|sets| sets.retain(|set| query.wants(DueSet::named(set).queue())));
        Ok(sets)
    }

    /// The sets of the reserved or dead jobs, with their buckets.
    pub(super) async fn keys_of(&self, query: &Query) -> Result<Vec<(u16, String)>, StoreError> {
        let keys = &self.namespace.keys;
        if query.state != JobState::Dead {
            return Ok((0..keys.buckets())
                .map(|bucket| (bucket, keys.held(bucket).to_owned()))
                .collect());
        }
        let has_brokers = query.queue.is_none() && query.wants(None);
        let mut found = Vec::new();
        for (bucket, sets) in (0..).zip(self.sets_of(query).await?) {
            found.extend(has_brokers.then(|| (bucket, keys.dead(bucket).to_owned())));
            let of_queues = sets.iter().filter(|set| DueSet::named(set).is_of_queue());
            found.extend(of_queues.map(|set| (bucket, keys.dead_of(bucket, set))));
        }
        Ok(found)
    }
}
