//! The one way of a request that was read, by whichever door it came in (a message, a command, HTTP): to the store, sent again where no answer
//! came, and whom to wake.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::fleet::Heads;
use crate::job::Action;
use crate::reconnect::Backoff;
use crate::request::{Act, Schedule};
use crate::store::Store;
use crate::store::error::{Class, StoreError};
use crate::store::inbound::{Answer, Head, Scheduled};
use crate::telemetry::Metrics;
use crate::telemetry::trace::Traces;

/// How long a door waits for a store that does not answer.
pub trait Patience: Send {
    /// Waits before the request is sent again; false where it is given up, and the error is the answer.
    fn again(&mut self, error: &StoreError) -> impl Future<Output = bool> + Send;
}

/// The patience of a person: a few tries, and none where trying again would not help.
#[derive(Debug)]
pub struct Few {
    left: u32,
    backoff: Backoff,
}

impl Default for Few {
    fn default() -> Self {
        Few { left: 3, backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(1)) }
    }
}

impl Patience for Few {
    async fn again(&mut self, error: &StoreError) -> bool {
        if self.left == 0 || !matches!(error.class, Class::Io | Class::Timeout | Class::Readonly | Class::Moved | Class::Unserved) {
            return false;
        }
        self.left -= 1;
        clock::sleep(self.backoff.pause()).await;
        true
    }
}

/// Acts on one job: the answer, and the buckets whose readers must wake earlier than they think. Sent again, it changes nothing twice.
///
/// # Errors
/// The last of the store, once patience has run out: then it may have been applied or not.
pub async fn act(
    store: &Store,
    act: &mut Act,
    default_retry_ms: &[u64],
    patience: &mut impl Patience,
) -> Result<(Answer, Vec<Head>), StoreError> {
    let answer = loop {
        match store.act(act, default_retry_ms).await {
            Ok(answer) => break answer,
            Err(error) => {
                act.origin.check = true;
                if !patience.again(&error).await {
                    return Err(error);
                }
            }
        }
    };
    let heads = match (act.action, answer.due_ms) {
        (Action::Reschedule | Action::Fire | Action::Requeue | Action::Fail, Some(due_ms)) => {
            let bucket = store.keys().bucket_of(act.id.as_str());
            store.brokers().iter().map(|broker| Head { bucket, broker: broker.clone(), due_ms }).collect()
        }
        _ => Vec::new(),
    };
    Ok((answer, heads))
}

/// What a running instance applies requests with.
#[derive(Clone)]
pub struct Apply {
    /// The store.
    pub store: Arc<Store>,
    /// Whom to wake for new heads.
    pub heads: Heads,
    /// Counts.
    pub metrics: Metrics,
    /// Spans.
    pub traces: Traces,
    /// `delivery.retry`, ms.
    pub retry_ms: Vec<u64>,
}

impl Apply {
    /// Stores new jobs, and wakes who must publish them.
    ///
    /// # Errors
    /// As [`act`].
    pub async fn schedule(&self, schedules: &mut [Schedule], patience: &mut impl Patience) -> Result<Vec<Answer>, StoreError> {
        let Scheduled { answers, heads } = loop {
            match self.store.schedule(schedules).await {
                Ok(scheduled) => break scheduled,
                Err(error) => {
                    // What was applied of it must not be applied again.
                    schedules.iter_mut().for_each(|schedule| schedule.origin.check = true);
                    if !patience.again(&error).await {
                        return Err(error);
                    }
                }
            }
        };
        self.heads.wake(heads).await;
        Ok(answers)
    }

    /// Acts on one job, counts it, and wakes who must publish it.
    ///
    /// # Errors
    /// As [`act`].
    pub async fn act(&self, asked: &mut Act, patience: &mut impl Patience) -> Result<Answer, StoreError> {
        let (answer, heads) = act(&self.store, asked, &self.retry_ms, patience).await?;
        if asked.action == Action::Cancel {
            self.metrics.cancelled(answer.verdict);
        }
        self.heads.wake(heads).await;
        Ok(answer)
    }
}
