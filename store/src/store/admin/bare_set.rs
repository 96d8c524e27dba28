//! A bare SET of a body, for measurements: the least cost of storing it. The keys are separate from
//! the keys of jobs.

use redis::Pipeline;

use crate::store::admin::Admin;
use crate::store::error::StoreError;

/// Keys in one pipeline.
const KEYS_PER_PIPELINE: u64 = 512;

impl Admin {
    /// Sets this many keys to this body, pipelined. [`Admin::unset`] removes them.
    pub async fn set(&self, keys: u64, body: &[u8]) -> Result<(), StoreError> {
        self.each("SET", keys, Some(body)).await
    }

    /// Removes the keys of [`Admin::set`].
    pub async fn unset(&self, keys: u64) -> Result<(), StoreError> {
        self.each("UNLINK", keys, None).await
    }

    async fn each(
        &self,
        word: &'static str,
        keys: u64,
        body: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let mut from = 0;
        while from < keys {
            let mut pipeline = Pipeline::new();
            for key in from..keys.min(from + KEYS_PER_PIPELINE) {
                let command = pipeline.cmd(word);
                // The keys are in the slot of one bucket, as a pipeline requires; no key of a job
                // contains `::`.
                command.arg(format!("{}::{key}", self.namespace.keys.jobs(0)));
                if let Some(body) = body {
                    command.arg(body);
                }
            }
            self.namespace.link.pipeline(word, &pipeline).await?;
            from += KEYS_PER_PIPELINE;
        }
        Ok(())
    }
}
