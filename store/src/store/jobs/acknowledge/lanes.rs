//! The acknowledgements of all callers, in lanes: those that come while a batch of their lane is out
//! go with the next.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::joined::{Caller, CarriedOut, Joined};
use super::{Answers, LeaseObserver, Proven};
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

/// The acknowledgements of one caller for a lane, and their observer.
type Call = (Vec<Proven>, Arc<dyn LeaseObserver>);

/// The acknowledgements of callers that wait for their batch.
pub(in crate::store::jobs) struct Lanes(Batcher<Key, Call, Answers>);

impl Lanes {
    /// Lanes with a batch at a time for each connection of the gate: the next one on a connection
    /// would stand behind the wait for durability.
    pub(in crate::store::jobs) fn new(namespace: &Namespace) -> Lanes {
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
        call: Call,
    ) -> oneshot::Receiver<Answers> {
        let size = Size { requests: call.0.len(), bytes: call.0.iter().map(Proven::bytes).sum() };
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
fn send_batches(namespace: Arc<Namespace>, mut turn: Turn<Call, Answers>) {
    tokio::spawn(async move {
        let mut batch = turn.next_batch();
        while let Some(Batch { calls, mut callers }) = batch {
            let (calls, observers): (Vec<Vec<Proven>>, Vec<_>) = calls.into_iter().unzip();
            let (mut together, mut apart) = (Joined::default(), Joined::default());
            let go_apart = go_apart(&calls);
            for (at, (call, observer)) in calls.into_iter().zip(observers).enumerate() {
                let joined = if go_apart[at] { &mut apart } else { &mut together };
                joined.callers.push(Caller {
                    count: call.len(),
                    observer,
                    answers: callers.take(at),
                });
                joined.acknowledgements.extend(call);
            }
            let carried_out = within_turn(&namespace, &mut turn, &together).await;
            // A caller may end the runtime of this task once it has its answer: a turn without
            // calls is over before.
            batch = turn.next_batch();
            together.answer(&namespace, carried_out);
            if !apart.callers.is_empty() {
                send_apart(namespace.clone(), apart);
            }
        }
    });
}

/// Carries out calls. Those that wait go beside them if they take long.
async fn within_turn(
    namespace: &Arc<Namespace>,
    turn: &mut Turn<Call, Answers>,
    calls: &Joined,
) -> CarriedOut {
    if calls.acknowledgements.is_empty() {
        return CarriedOut::default();
    }
    let max_turn = if namespace.gate.links() == 1 { MAX_TURN } else { RESPONSE_TIMEOUT };
    let mut passing = std::pin::pin!(calls.carry_out(namespace));
    if let Some(carried_out) = clock::timeout(max_turn, passing.as_mut()).await {
        return carried_out;
    }
    if let Some(next) = turn.pass_on() {
        send_batches(namespace.clone(), next);
    }
    passing.await
}

/// Sends calls for which the others of their batch do not wait.
fn send_apart(namespace: Arc<Namespace>, calls: Joined) {
    tokio::spawn(async move {
        let carried_out = calls.carry_out(&namespace).await;
        calls.answer(&namespace, carried_out);
    });
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
