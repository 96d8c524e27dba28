//! The places of limited queues that acknowledgements end or prolong.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Acknowledged, LeaseAction, LeaseVerdict, Proven};
use crate::clock;
use crate::store::error::StoreError;
use crate::store::namespace::Namespace;
use crate::store::places::place::Place;
use crate::store::places::{LEASE_MARGIN, PlaceCall};

/// The longest time that callers wait until places are back: their next pop finds them. The call
/// goes on.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// The calls that prolong a place, and the time between two of them: a place that ended before its
/// lease would let one more job out. A place that was not given back is found by those who look.
const MAX_TRIES: u32 = 8;
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Gives back the places of leases that are over, and keeps those of leases that last longer. Calls
/// Redis only for limited queues.
pub(super) async fn settle(
    namespace: &Arc<Namespace>,
    acknowledgements: &[Proven],
    answers: &[Result<Acknowledged, StoreError>],
) {
    if !namespace.has_bounded_queues() {
        return;
    }
    let mut by_queue: BTreeMap<&str, Option<PlaceCall>> = BTreeMap::new();
    for (proven, answer) in acknowledgements.iter().zip(answers) {
        let Proven { id, queue, proof, is_sealed, action, .. } = proven;
        let (Ok(Acknowledged { verdict, .. }), true) = (answer, *is_sealed) else { continue };
        let call = by_queue.entry(queue).or_insert_with(|| {
            namespace.places_of_queue(queue).map(|limit| PlaceCall::new(&limit))
        });
        let Some(call) = call else { continue };
        let place = Place::of_lease(namespace.keys.bucket_of(id.as_str()), *proof, id);
        match (verdict, action) {
            (LeaseVerdict::Touched, LeaseAction::Touch { ttr_ms }) => {
                call.kept.push((place, Duration::from_millis(*ttr_ms) + LEASE_MARGIN));
            }
            // This is also the answer while a job that was popped early is due to nobody.
            (LeaseVerdict::NotFound, _) => {}
            // Also where the lease was over before: a repeat may be the first one that is answered.
            _ => call.back.push(place),
        }
    }
    // A lease may be prolonged and then ended in one call.
    for call in by_queue.values_mut().flatten().filter(|call| !call.kept.is_empty()) {
        let back: HashSet<&Place> = call.back.iter().collect();
        call.kept.retain(|(place, _)| !back.contains(place));
    }
    let (queues, calls): (Vec<String>, Vec<PlaceCall>) =
        by_queue.into_iter().filter_map(|(queue, call)| Some((queue.to_owned(), call?))).unzip();
    if calls.is_empty() {
        return;
    }
    let namespace = namespace.clone();
    let settling = tokio::spawn(async move {
        let prolongs = calls.iter().any(|call| !call.kept.is_empty());
        let mut tries_left = if prolongs { MAX_TRIES } else { 1 };
        while let Err(error) = namespace.places(&calls).await {
            tracing::debug!(%error, "places were not given back or prolonged, they last as before");
            tries_left -= 1;
            if tries_left == 0 {
                return;
            }
            clock::sleep(RETRY_DELAY).await;
        }
        for (queue, call) in queues.iter().zip(&calls).filter(|(_, call)| !call.back.is_empty()) {
            namespace.places_free(queue, call.back.len());
        }
    });
    let _ = clock::timeout(MAX_WAIT, settling).await;
}
