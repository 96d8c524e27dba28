//! The answer of a handler, and the lease action that follows from it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use dwell_store::job::Job;
use dwell_store::store::jobs::acknowledge::LeaseAction;
use dwell_store::store::jobs::lease::Lease;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Context;
use crate::client::queues::fail;

/// The pause of a job that a handler or a layer gave back, so that the job does not go round at
/// once.
const RELEASE_PAUSE: Duration = Duration::from_secs(1);

/// The answer of a handler for its job. An `Err` of the handler is a `Fail` with its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The job is done.
    Finish,
    /// The attempt failed: the next one follows after the next wait of the retry array. At the end
    /// of the array the job is dead.
    Fail,
    /// The attempt failed: the next one follows after this time. At the end of the retry array the
    /// job is dead all the same.
    RetryIn(Duration),
    /// The job goes back for any worker, due in a second. No attempt is burned.
    Release,
}

/// The reason why a handler has no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The handler answered an error, or panicked.
    Handler(String),
    /// A layer before the handler did not let the job through.
    #[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "only layers reject"))]
    Rejected(String),
}

/// The end of one attempt.
pub(crate) type Ended = Result<Outcome, Failure>;

/// Handles the jobs of one queue.
pub(crate) trait Handler: Send + Sync {
    fn call(&self, job: Job, context: Context) -> BoxFuture<'static, Ended>;

    /// The service of a handler with layers.
    #[cfg(feature = "tower")]
    fn service(&self) -> Option<super::service::HandlerService> {
        None
    }
}

impl<F> Handler for F
where
    F: Fn(Job, Context) -> BoxFuture<'static, Ended> + Send + Sync,
{
    fn call(&self, job: Job, context: Context) -> BoxFuture<'static, Ended> {
        self(job, context)
    }
}

/// Runs a handler. A panic is its failure.
pub(crate) async fn run(handler: Arc<dyn Handler>, job: Job, context: Context) -> Ended {
    // Data that a panic leaves behind belongs to the application: its handlers share the data
    // knowingly.
    let call = AssertUnwindSafe(async move { handler.call(job, context).await });
    call.catch_unwind().await.unwrap_or_else(|panic| {
        Err(Failure::Handler(format!("the handler panicked: {}", text_of(&*panic))))
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

/// The lease action after the end of a handler. `is_draining`: the worker stops and has cancelled
/// the handler, whose error is no fault of the job.
pub(crate) fn action_of(ended: Ended, lease: &Lease, is_draining: bool) -> LeaseAction {
    match ended {
        Ok(Outcome::Finish) => LeaseAction::Finish,
        Ok(Outcome::Release) | Err(_) if is_draining => release(Duration::ZERO),
        Ok(Outcome::Release) | Err(Failure::Rejected(_)) => release(RELEASE_PAUSE),
        Ok(Outcome::Fail) => fail(lease, None, "the handler answered Fail"),
        Ok(Outcome::RetryIn(wait)) => {
            fail(lease, Some(wait), "the handler asked for another attempt")
        }
        Err(Failure::Handler(error)) => fail(lease, None, &error),
    }
}

/// Gives a job back, due after this pause.
pub(crate) fn release(pause: Duration) -> LeaseAction {
    LeaseAction::Release { wait_ms: dwell_store::clock::whole_ms(pause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action_after(ended: Ended, wait_ms: Option<u64>, is_draining: bool) -> LeaseAction {
        action_of(
            ended,
            &Lease {
                nonce: [0; 8],
                ttr_ms: 1,
                wait_ms,
                expires_ms: None,
                queue: "q".to_owned(),
                seal: [0; 8],
            },
            is_draining,
        )
    }

    #[test]
    fn each_end_of_a_handler_is_one_word() {
        let failed = |wait_ms, error: &str| LeaseAction::Fail { wait_ms, error: error.to_owned() };
        assert_eq!(action_after(Ok(Outcome::Finish), Some(5), false), LeaseAction::Finish);
        assert_eq!(
            action_after(Err(Failure::Handler("no".to_owned())), Some(5), false),
            failed(Some(5), "no")
        );
        assert_eq!(
            action_after(Err(Failure::Handler("no".to_owned())), None, false),
            failed(None, "no"),
            "the end of the array"
        );
        let later = Ok(Outcome::RetryIn(Duration::from_secs(9)));
        assert!(matches!(
            action_after(later.clone(), Some(5), false),
            LeaseAction::Fail { wait_ms: Some(9000), .. }
        ));
        assert!(
            matches!(action_after(later, None, false), LeaseAction::Fail { wait_ms: None, .. }),
            "nor does RetryIn prolong the array"
        );
        for given_back in [Ok(Outcome::Release), Err(Failure::Rejected("busy".to_owned()))] {
            assert_eq!(
                action_after(given_back, Some(5), false),
                LeaseAction::Release { wait_ms: 1000 }
            );
        }
    }

    #[test]
    fn a_drain_burns_no_attempt_of_what_it_cancelled() {
        for ended in [Err(Failure::Handler("cancelled".to_owned())), Ok(Outcome::Release)] {
            assert_eq!(action_after(ended, Some(5), true), LeaseAction::Release { wait_ms: 0 });
        }
        assert_eq!(action_after(Ok(Outcome::Finish), Some(5), true), LeaseAction::Finish);
        assert!(
            matches!(action_after(Ok(Outcome::Fail), Some(5), true), LeaseAction::Fail { .. }),
            "the handler says so itself"
        );
    }
}
