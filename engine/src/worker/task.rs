//! Payloads of the application's own types.

use dwell_store::job::{Due, Job, JobId};
use dwell_store::request::NewJob;
use dwell_store::store::error::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;

/// A payload, stored as JSON, whose type names its queue: the handler of the queue gets it back, in
/// this process, in another one, or after a restart.
///
/// A stored task outlives the program that stored it. Give new fields a default
/// (`#[serde(default)]`), and keep the names of old ones.
pub trait Task: Serialize + DeserializeOwned + Send + 'static {
    /// The queue of the tasks of this type: 1 to 255 letters, digits, `.`, `_` and `-`.
    const QUEUE: &'static str;

    /// A new job for this task, under a random id. Id, retry array, TTR and headers may be set
    /// before [`Client::schedule`].
    ///
    /// # Errors
    /// [`Rejected`](crate::ErrorKind::Rejected) where the task cannot be written as JSON.
    fn schedule(&self, due: impl Into<Due>) -> Result<NewJob, StoreError> {
        let body = serde_json::to_vec(self).map_err(|error| {
            StoreError::rejected(format!(
                "a task for `{}` cannot be written as JSON: {error}",
                Self::QUEUE
            ))
        })?;
        Ok(NewJob::new(Job::for_queue(Self::QUEUE, body), due))
    }
}

impl Client {
    /// Stores a task, durably by the time this returns. Answers the id, by which it can be
    /// cancelled.
    ///
    /// # Errors
    /// As [`Task::schedule`] and [`schedule`](Client::schedule). After an error of Redis the task
    /// may be stored: to repeat it safely, keep the job that [`Task::schedule`] makes, and send
    /// that job again.
    pub async fn enqueue<T: Task + Sync>(
        &self,
        task: &T,
        due: impl Into<Due>,
    ) -> Result<JobId, StoreError> {
        let new_job = task.schedule(due)?;
        self.schedule(&new_job).await?;
        Ok(new_job.id)
    }
}

/// The task of a body, or why it cannot be read.
pub(super) fn read<T: Task>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| {
        format!("the payload cannot be read as {}: {error}", std::any::type_name::<T>())
    })
}
