//! The number of jobs that fall due in each step of time.

use redis::{Pipeline, Value};

use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::reader::Reader;
use crate::store::reader::active::SETS_PER_PIPELINE;
use crate::store::reader::list::QueueFilter;

impl Reader {
    /// Counts the jobs in `due` per step of `step_ms`, from now on. Returns the begin of each step
    /// (epoch ms) and its count. `queues`: only jobs of these.
    pub async fn horizon(
        &self,
        step_ms: u64,
        steps: u32,
        queues: Option<&QueueFilter>,
    ) -> Result<Vec<(i64, u64)>, StoreError> {
        let now_ms = self.namespace.read_clock().await? / 1000;
        let begin = |step: u32| now_ms.saturating_add_unsigned(step_ms.saturating_mul(step.into()));
        let mut counts: Vec<(i64, u64)> = (0..steps).map(|step| (begin(step), 0)).collect();
        for (bucket, active) in (0..).zip(self.namespace.active_queues().await?) {
            let mut sets = self.namespace.sets_with(&active);
            sets.retain(|set| {
                queues.is_none_or(|filter| {
                    DueSet::named(set).queue().is_some_and(|queue| filter.wants(queue))
                })
            });
            for sets in sets.chunks(SETS_PER_PIPELINE) {
                let mut pipeline = Pipeline::new();
                for set in sets {
                    let due = self.namespace.keys.due(bucket, set);
                    for step in 0..steps {
                        pipeline
                            .cmd("ZCOUNT")
                            .arg(&due)
                            .arg(begin(step))
                            .arg(format!("({}", begin(step + 1)));
                    }
                }
                if pipeline.is_empty() {
                    continue;
                }
                let answers = self.namespace.link.pipeline("counting ahead", &pipeline).await?;
                for (at, answer) in answers.into_iter().enumerate() {
                    if let (Value::Int(count), Some((_, sum))) =
                        (answer, counts.get_mut(at % steps as usize))
                    {
                        *sum += u64::try_from(count).unwrap_or(0);
                    }
                }
            }
        }
        Ok(counts)
    }
}
