//! Pauses and purges a queue, and forgets empty ones.

use crate::store::admin::Admin;
use crate::store::answer::Items;
use crate::store::call::{CALL_BYTES, CALL_JOBS};
use crate::store::due_set::DueSet;
use crate::store::error::{Class, StoreError};
use crate::store::reader::active::SETS_PER_PIPELINE;
use crate::store::reader::lookup::JobState;
use crate::store::scripts::Name;

impl Admin {
    /// Makes a queue hand nothing out until it is resumed. Leases and their rescue go on. Repeat
    /// the call after an error. `most`: the most paused queues of the namespace after it. Each is a
    /// field in every bucket until someone resumes it, and every count reads all of them.
    ///
    /// # Errors
    /// [`Class::TooManyPaused`]: so many other queues are paused, and nothing changed. Else a master
    /// does not answer or refuses.
    pub async fn pause(&self, queue: &str, most: usize) -> Result<(), StoreError> {
        let _turn = self.pausing.lock().await;
        // A pause begins with the first bucket.
        let paused = self.namespace.active_queues_of(0).await?.paused;
        if paused.len() >= most && !paused.contains(queue) {
            let count = paused.len();
            let message =
                format!("{count} queues are paused, and this caller may pause {most} at most");
            return Err(StoreError::new(Class::TooManyPaused, message)
                .hint("resume queues that need no pause: the list of all queues names them; a queue that the settings name itself can be paused all the same"));
        }
        self.mark_paused(queue, |field, key| {
            let mut command = redis::cmd("HSET");
            command.arg(key).arg(field).arg(1);
            command
        })
        .await
    }

    /// Ends a pause.
    pub async fn resume(&self, queue: &str) -> Result<(), StoreError> {
        self.mark_paused(queue, |field, key| {
            let mut command = redis::cmd("HDEL");
            command.arg(key).arg(field);
            command
        })
        .await
    }

    async fn mark_paused(
        &self,
        queue: &str,
        command: impl Fn(&str, &str) -> redis::Cmd,
    ) -> Result<(), StoreError> {
        let field = format!("!{}", DueSet::Queue(queue));
        for bucket in 0..self.namespace.keys.buckets() {
            let command = command(&field, self.namespace.keys.queues(bucket));
            self.namespace.link.command("pausing a queue", &command).await?;
        }
        Ok(())
    }

    /// Removes the jobs of a queue in this state, except reserved ones, behind the durability gate.
    /// Returns their number. Repeat the call after an error.
    pub async fn purge(&self, queue: &str, state: JobState) -> Result<u64, StoreError> {
        let sets = [DueSet::Queue(queue).to_string()];
        // Jobs that become ready meanwhile stay.
        let ready_ms = self.namespace.read_clock().await? / 1000;
        let mut removed = 0;
        for bucket in 0..self.namespace.keys.buckets() {
            loop {
                let mut call = self.namespace.script_call(Name::Purge, bucket, &sets);
                call.arg(state.as_str()).arg(CALL_JOBS).arg(CALL_BYTES).arg(ready_ms);
                let mut items = Items::new("purge", self.namespace.durable_call(call).await?)?;
                removed += u64::try_from(items.int()?).unwrap_or(0);
                if items.int()? != 1 {
                    break;
                }
            }
        }
        Ok(removed)
    }

    /// Makes each bucket forget the queues of which it has no jobs: the queues of
    /// [`ActiveCounts::empty`](crate::store::reader::active::ActiveCounts). A job that came
    /// meanwhile stays known. A bucket that fails does not stop the others.
    pub async fn forget_queues(&self, empty: &[Vec<String>]) -> Result<(), StoreError> {
        let mut result = Ok(());
        for (bucket, queues) in (0..).zip(empty) {
            for queues in queues.chunks(SETS_PER_PIPELINE) {
                let sets: Vec<String> =
                    queues.iter().map(|queue| DueSet::Queue(queue).to_string()).collect();
                let call = self.namespace.script_call(Name::Forget, bucket, &sets);
                if let Err(error) = self.namespace.call(&call).await {
                    result = Err(error);
                    break;
                }
            }
        }
        result
    }
}
