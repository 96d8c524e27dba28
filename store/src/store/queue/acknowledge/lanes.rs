//! The acknowledgements of all callers, in lanes: those that come while a batch of their lane is out
//! go with the next.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Answers, Proven, failed, pass};
use crate::batcher::{Batch, Batcher, Bounds, Size, Turn, caught};
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
    tokio::spawn(async move {
        let mut batch = turn.next_batch();
        while let Some(Batch { calls, mut callers }) = batch {
            let (mut together, mut apart) = (Joined::default(), Joined::default());
            let go_apart = go_apart(&calls);
            for (at, call) in calls.into_iter().enumerate() {
                let joined = if go_apart[at] { &mut apart } else { &mut together };
                joined.callers.push((call.len(), callers.take(at)));
                joined.acknowledgements.extend(call);
            }
            let answers = within_turn(&namespace, &mut turn, &together.acknowledgements).await;
            // A caller may end the runtime of this task once it has its answer: a turn without
            // calls is over before.
            batch = turn.next_batch();
            together.answer(answers);
            if !apart.callers.is_empty() {
                send_apart(namespace.clone(), apart);
            }
        }
    });
}

/// Carries out acknowledgements. Those that wait go beside them if they take long.
async fn within_turn(
    namespace: &Arc<Namespace>,
    turn: &mut Turn<Vec<Proven>, Answers>,
    acknowledgements: &[Proven],
) -> Answers {
    if acknowledgements.is_empty() {
        return Answers::new();
    }
    let max_turn = if namespace.gate.links() == 1 { MAX_TURN } else { RESPONSE_TIMEOUT };
    let mut passing = std::pin::pin!(carry_out(namespace, acknowledgements));
    if let Some(answers) = clock::timeout(max_turn, passing.as_mut()).await {
        return answers;
    }
    if let Some(next) = turn.pass_on() {
        send_batches(namespace.clone(), next);
    }
    passing.await
}

/// Sends calls for which the others of their batch do not wait.
fn send_apart(namespace: Arc<Namespace>, calls: Joined) {
    tokio::spawn(async move {
        let answers = carry_out(&namespace, &calls.acknowledgements).await;
        calls.answer(answers);
    });
}

/// As [`pass::carry_out`]. A panic fails these acknowledgements, and none that wait.
async fn carry_out(namespace: &Namespace, acknowledgements: &[Proven]) -> Answers {
    caught(pass::carry_out(namespace, acknowledgements))
        .await
        .unwrap_or_else(|| failed(acknowledgements.len(), "redis: acknowledge: a pass panicked"))
}

/// The calls of a batch that share script calls.
#[derive(Default)]
struct Joined {
    /// Those of all calls, in the order of their callers.
    acknowledgements: Vec<Proven>,
    /// The number of the acknowledgements of each call, and its caller.
    callers: Vec<(usize, Option<oneshot::Sender<Answers>>)>,
}

impl Joined {
    fn answer(self, answers: Answers) {
        let mut answers = answers.into_iter();
        for (count, caller) in self.callers {
            let of_call = answers.by_ref().take(count).collect();
            // The caller may have gone away.
            let _ = caller.map(|caller| caller.send(of_call));
        }
    }
}

/// Whether each call goes apart from the others of its batch, and after them, so that those for one
/// id keep their order:
///
/// - It names an id again, of its own or of a call before: each repeat is a round trip more.
/// - A lease of it is forged: the script may refuse to look for the job, and with it the members of
///   its call.
pub(super) fn go_apart(calls: &[Vec<Proven>]) -> Vec<bool> {
    let mut ids = HashSet::new();
    calls
        .iter()
        .map(|call| {
            // All are counted, so that each id is noted.
            let causes = call.iter().filter(|proven| !proven.is_sealed || !ids.insert(&proven.id));
            causes.count() > 0
        })
        .collect()
}
