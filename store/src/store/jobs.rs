//! Changes jobs, of brokers and of queues: requests come in, jobs are claimed, and leases end.
//!
//! - [`batch`]: requests, behind the durability gate; [`schedule`]: `schedule`; [`act`]: `cancel`
//!   to `requeue`. Recurring schedules are in [`schedules`](super::schedules).
//! - [`claim`]: `claim` and `rescue`; [`settle`]: `complete` to `bury`.
//! - Of queues, [`pop`]: `pop` and `unpop`; [`lease`]: what a consumer holds; [`acknowledge`]: the
//!   acknowledgements of consumers; [`ends`]: jobs that have an end of their own.

pub mod acknowledge;
pub mod act;
pub mod batch;
pub mod claim;
pub mod ends;
pub mod lease;
pub mod pop;
pub mod schedule;
pub mod settle;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::namespace::Namespace;
use crate::clock::Instant;

/// The jobs of a namespace on their way: scheduled, claimed, settled.
pub struct Jobs {
    namespace: Arc<Namespace>,
    lanes: acknowledge::Lanes,
    /// The time until which Redis may still carry out a batch call that got no answer.
    unanswered_until: Mutex<Option<Instant>>,
    /// Claims whose answer was lost. Their jobs go back before the next claim.
    lost_claims: Mutex<Vec<claim::LostClaim>>,
    /// By bucket and set: the unreadable jobs at the head of the set.
    unread: Mutex<HashMap<(u16, String), claim::Unread>>,
    /// The time of the last report of unreadable jobs of queues.
    unread_told: Mutex<Option<Instant>>,
}

impl Jobs {
    pub(super) fn new(namespace: Arc<Namespace>) -> Jobs {
        Jobs {
            lanes: acknowledge::Lanes::new(&namespace),
            namespace,
            unanswered_until: Mutex::default(),
            lost_claims: Mutex::default(),
            unread: Mutex::default(),
            unread_told: Mutex::default(),
        }
    }
}
