//! The one way of a request that was read, by whichever door it came in (a message, a command, HTTP): to the store, sent again where no answer
//! came, and whom to wake.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::fleet::WakeUps;
use crate::job::{Action, Verdict};
use crate::reconnect::Backoff;
use crate::request::{Act, Request};
use crate::store::Store;
use crate::store::batch::{Applied, RequestRef};
use crate::store::error::{Class, StoreError};
use crate::store::schedule::{Answer, WakeUp};
use crate::telemetry::Metrics;
use crate::telemetry::trace::Traces;

mod together;

pub use together::Together;

/// How long a door waits for a store that does not answer.
pub trait Patience: Send {
    /// Waits before the request is sent again; false where it is given up, and the error is the answer.
    fn again(&mut self, error: &StoreError) -> impl Future<Output = bool> + Send;

    /// Whether the request in this place is to be sent again. One whose caller went away is not: the caller may have asked for something else since.
    fn is_wanted(&self, _place: usize) -> bool {
        true
    }
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

/// Requests on their way to the store, and what is answered so far.
pub struct Sent<'a> {
    requests: &'a mut [Request],
    answers: Vec<Result<Answer, StoreError>>,
    /// Places of those that are to be sent.
    open: Vec<usize>,
}

impl<'a> Sent<'a> {
    /// None of them was sent yet.
    #[must_use]
    pub fn new(requests: &'a mut [Request]) -> Self {
        let unsent = || Err(StoreError::new(Class::Other, "redis: a request was not sent"));
        Sent { answers: requests.iter().map(|_| unsent()).collect(), open: (0..requests.len()).collect(), requests }
    }

    /// Sends those that have no answer yet, in their order; the buckets whose readers must wake earlier than they think.
    pub async fn send(&mut self, store: &Store, default_retry_ms: &[u64]) -> Vec<WakeUp> {
        let (mut sending, mut all_heads) = (std::mem::take(&mut self.open), Vec::new());
        while !sending.is_empty() {
            let asked: Vec<RequestRef<'_>> = sending.iter().map(|at| (&self.requests[*at]).into()).collect();
            let Applied { answers, wake_ups } = store.apply(&asked, default_retry_ms).await;
            all_heads.extend(wake_ups);
            for (at, answer) in std::mem::take(&mut sending).into_iter().zip(answers) {
                match &answer {
                    Ok(Answer { verdict: Verdict::Duplicate, .. }) if self.requests[at].take_another_id() => sending.push(at),
                    // What cannot be read would fail again.
                    Err(error) if !error.is_unreadable() => {
                        // It may have been applied, and must not be applied again.
                        self.requests[at].origin_mut().check = true;
                        self.open.push(at);
                    }
                    _ => {}
                }
                self.answers[at] = answer;
            }
        }
        self.open.sort_unstable();
        all_heads
    }

    /// Sends no others again.
    fn keep(&mut self, is_wanted: impl Fn(usize) -> bool) {
        self.open.retain(|at| is_wanted(*at));
    }

    /// Why some are to be sent again; `None` where each has its answer.
    #[must_use]
    pub fn failed(&self) -> Option<&StoreError> {
        self.open.first().and_then(|at| self.answers[*at].as_ref().err())
    }

    /// One a request, in their order. One that is unreadable is of that request alone; any other error may have been applied or not.
    #[must_use]
    pub fn answers(self) -> Vec<Result<Answer, StoreError>> {
        self.answers
    }
}

/// What a running instance applies requests with.
#[derive(Clone)]
pub struct Apply {
    /// The store.
    pub store: Arc<Store>,
    /// Whom to wake for wake-ups.
    pub wake_ups: WakeUps,
    /// Counts.
    pub metrics: Metrics,
    /// Spans.
    pub traces: Traces,
    /// `delivery.retry`, ms.
    pub retry_ms: Vec<u64>,
    /// Calls that arrive together.
    pub together: Together,
}

impl Apply {
    /// Applies requests, those for one id in their order, behind one pass of the durability gate; counts them, and wakes who must publish. Each
    /// has its own answer, as of [`Sent::answers`]: patience is for all of them.
    pub async fn all(&self, requests: &mut [Request], patience: &mut impl Patience) -> Vec<Result<Answer, StoreError>> {
        let mut sent = Sent::new(requests);
        loop {
            let wake_ups = sent.send(&self.store, &self.retry_ms).await;
            self.wake_ups.wake(wake_ups).await;
            match sent.failed() {
                Some(error) if patience.again(error).await => sent.keep(|at| patience.is_wanted(at)),
                _ => break,
            }
        }
        let answers = sent.answers();
        for (request, answer) in requests.iter().zip(&answers) {
            if let (Request::Act(Act { action: Action::Cancel, .. }), Ok(answer)) = (request, answer) {
                self.metrics.cancelled(answer.verdict);
            }
        }
        answers
    }

    /// Applies a request together with those that arrive at the same time, with the patience of a person.
    ///
    /// # Errors
    /// The last of the store: it may have been applied or not.
    pub async fn one(&self, request: Request) -> Result<Answer, StoreError> {
        let answer = self.together.join(request);
        // Who asked may go away; who came with them does not.
        let apply = self.clone();
        tokio::spawn(async move {
            if let Some(mut group) = apply.together.leave().await {
                let answers = apply.all(&mut group.requests, &mut group.callers).await;
                group.callers.answer(answers);
            }
        });
        answer.await.unwrap_or_else(|_| Err(StoreError::new(Class::Other, "the instance ended before the store answered")))
    }
}
