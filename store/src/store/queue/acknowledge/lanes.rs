//! The acknowledgements of all callers, in lanes: those that come while a batch of their lane is out
//! go with the next.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Answers, Proven, pass};
use crate::batcher::{Batch, Batcher, Bounds, Size, Turn};
use crate::clock;
use crate::store::client::{RESPONSE_TIMEOUT, SlotLayout};
use crate::store::namespace::Namespace;

/// The most acknowledgements of one batch, but for a single caller with more.
const MAX_PER_BATCH: usize = 1024;
/// The most bytes of one batch, but for a single larger call.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The longest time that acknowledgements wait for a batch that hangs, where no batch waits for
/// durability.
const MAX_TURN: Duration = Duration::from_millis(500);

/// What shares a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The acknowledgements for a bucket: they share a script call.
    Bucket(u16),
    /// Those for a master, where a batch waits for durability: they share the wait. `None`: there is
    /// no cluster.
    Master(Option<String>),
}

/// The acknowledgements of callers that wait for their batch.
pub(in crate::store::queue) struct Lanes(Batcher<Key, Vec<Proven>, Answers>);

impl Lanes {
    /// Lanes with a batch at a time for each connection of the gate: the next one on a connection
    /// would stand behind the wait for durability.
    pub(in crate::store::queue) fn new(namespace: &Namespace) -> Lanes {
        Lanes(Batcher::new(Bounds {
            batches: namespace.gate.links(),
            requests: MAX_PER_BATCH,
            bytes: MAX_BATCH_BYTES,
            // Nothing replaces the acknowledgement of a lease.
            is_withdrawn: false,
        }))
    }

    /// Adds the acknowledgements of one caller to a lane. They are sent even if the answer is
    /// dropped.
    pub(super) fn add(
        &self,
        namespace: &Arc<Namespace>,
        key: Key,
        call: Vec<Proven>,
    ) -> oneshot::Receiver<Answers> {
        let size = Size { requests: call.len(), bytes: call.iter().map(Proven::bytes).sum() };
        let (answers, turn) = self.0.add(key, call, size);
        if let Some(turn) = turn {
            send_batches(namespace.clone(), turn);
        }
        answers
    }
}

impl Key {
    /// The lane of this bucket. `layout`: the masters, if there are several.
    pub(super) fn of(namespace: &Namespace, layout: Option<&SlotLayout>, bucket: u16) -> Key {
        if namespace.gate.links() == 1 {
            return Key::Bucket(bucket);
        }
        Key::Master(layout.and_then(|layout| namespace.master_of(layout, bucket)))
    }
}

/// Sends the batches of a turn, in a task of its own.
fn send_batches(namespace: Arc<Namespace>, mut turn: Turn<Vec<Proven>, Answers>) {
    let max_turn = if namespace.gate.links() == 1 { MAX_TURN } else { RESPONSE_TIMEOUT };
    tokio::spawn(async move {
        while let Some(Batch { calls, mut callers }) = turn.next_batch() {
            let apart = repeating(&calls);
            let mut together: Vec<Proven> = Vec::new();
            let mut counts = Vec::with_capacity(calls.len());
            for (at, call) in calls.into_iter().enumerate() {
                if apart[at] {
                    send_apart(namespace.clone(), call, callers.take(at));
                } else {
                    counts.push((at, call.len()));
                    together.extend(call);
                }
            }
            if together.is_empty() {
                continue;
            }
            let mut passing = std::pin::pin!(pass::carry_out(&namespace, &together));
            let in_time = clock::timeout(max_turn, passing.as_mut()).await;
            let answers = match in_time {
                Some(answers) => answers,
                None => {
                    if let Some(next) = turn.pass_on() {
                        send_batches(namespace.clone(), next);
                    }
                    passing.await
                }
            };
            let mut answers = answers.into_iter();
            for (at, count) in counts {
                callers.answer(at, answers.by_ref().take(count).collect());
            }
        }
    });
}

/// Whether each call names an id again, of its own or of a call before. Each repeat of an id is a
/// round trip more, for which the other callers do not wait.
pub(super) fn repeating(calls: &[Vec<Proven>]) -> Vec<bool> {
    let mut ids = HashSet::new();
    calls.iter().map(|call| !call.iter().all(|proven| ids.insert(&proven.id))).collect()
}

fn send_apart(
    namespace: Arc<Namespace>,
    call: Vec<Proven>,
    caller: Option<oneshot::Sender<Answers>>,
) {
    tokio::spawn(async move {
        let answers = pass::carry_out(&namespace, &call).await;
        // The caller may have gone away.
        let _ = caller.map(|caller| caller.send(answers));
    });
}
