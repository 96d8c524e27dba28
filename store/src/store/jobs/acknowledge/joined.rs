//! The calls of a batch that share script calls: their acknowledgements, observers and callers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Acknowledged, Answers, LeaseObserver, LeaseVerdict, Proven, failed, pass, places};
use crate::batcher::caught;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::namespace::Namespace;
use crate::store::wake_up::WakeUp;

/// The calls of a batch that share script calls.
#[derive(Default)]
pub(super) struct Joined {
    /// Those of all calls, in the order of their callers.
    pub(super) acknowledgements: Vec<Proven>,
    /// The caller of each call.
    pub(super) callers: Vec<Caller>,
}

/// The caller of a call.
pub(super) struct Caller {
    /// The number of its acknowledgements.
    pub(super) count: usize,
    /// Has the verdicts before the caller does.
    pub(super) observer: Arc<dyn LeaseObserver>,
    /// The way of the answers; the caller may have gone away.
    pub(super) answers: Option<oneshot::Sender<Answers>>,
}

/// The effects of acknowledgements.
#[derive(Default)]
pub(super) struct CarriedOut {
    pub(super) answers: Answers,
    /// Those for the jobs that are due again.
    pub(super) wake_ups: Vec<WakeUp>,
}

impl Joined {
    /// As [`pass::carry_out`], and tells the observers. A panic of the pass fails these calls, and
    /// none that wait.
    pub(super) async fn carry_out(&self, namespace: &Arc<Namespace>) -> CarriedOut {
        let passing = pass::carry_out(namespace, &self.acknowledgements);
        let answers = caught(passing).await.unwrap_or_else(|| {
            failed(self.acknowledgements.len(), "redis: acknowledge: a batch panicked")
        });
        let wake_ups = self.observe(namespace, &answers);
        places::settle(namespace, &self.acknowledgements, &answers).await;
        CarriedOut { answers, wake_ups }
    }

    /// Tells the observer of each caller, whose panic changes no answer and no wake-up. Returns the
    /// wake-ups for the jobs that are due again.
    fn observe(
        &self,
        namespace: &Namespace,
        answers: &[Result<Acknowledged, StoreError>],
    ) -> Vec<WakeUp> {
        let (mut all, mut wake_ups) = (self.acknowledgements.iter().zip(answers), Vec::new());
        for Caller { count, observer, .. } in &self.callers {
            for (Proven { id, queue, action, .. }, answer) in all.by_ref().take(*count) {
                let Ok(Acknowledged { verdict, .. }) = answer else { continue };
                let head = due_again(answer).map(|due_ms| WakeUp {
                    bucket: namespace.keys.bucket_of(id.as_str()),
                    broker: DueSet::Queue(queue).to_string(),
                    due_ms,
                });
                // The hook of the process reports a panic.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    observer.acknowledged(queue, id, action, *verdict);
                    head.iter().for_each(|head| observer.due_again(head));
                }));
                wake_ups.extend(head);
            }
        }
        wake_ups
    }

    /// Answers the callers. Those of jobs that are due again have their answer once the wake-ups
    /// are sent, which a task of its own does: the next batch does not wait for it.
    pub(super) fn answer(self, namespace: &Arc<Namespace>, carried_out: CarriedOut) {
        let CarriedOut { answers, wake_ups } = carried_out;
        let (mut answers, mut at_once, mut later) =
            (answers.into_iter(), Unsent::default(), Unsent::default());
        for Caller { count, answers: caller, .. } in self.callers {
            let of_call: Answers = answers.by_ref().take(count).collect();
            let is_due_again = of_call.iter().any(|answer| due_again(answer).is_some());
            let unsent = if is_due_again { &mut later } else { &mut at_once };
            unsent.0.push((caller, of_call));
        }
        if !wake_ups.is_empty() {
            let namespace = namespace.clone();
            tokio::spawn(async move {
                if let Err(error) = namespace.wake_others(&wake_ups).await {
                    tracing::debug!(%error, "wake-ups were not sent, the floor poll of the others finds the jobs");
                }
                drop(later);
            });
        }
        // A caller may end the runtime of this task once it has its answer: the last step.
        drop(at_once);
    }
}

/// Answers and their callers. Dropped, also because the runtime ends, it sends them.
#[derive(Default)]
struct Unsent(Vec<(Option<oneshot::Sender<Answers>>, Answers)>);

impl Drop for Unsent {
    fn drop(&mut self) {
        for (caller, answers) in self.0.drain(..) {
            // The caller may have gone away.
            let _ = caller.map(|caller| caller.send(answers));
        }
    }
}

/// The new due time of a job that is due again.
fn due_again(answer: &Result<Acknowledged, StoreError>) -> Option<i64> {
    match answer {
        Ok(Acknowledged { verdict: LeaseVerdict::Failed | LeaseVerdict::Released, ms }) => *ms,
        _ => None,
    }
}
