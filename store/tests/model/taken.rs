//! The answer of a claim or a rescue.

use dwell_store::store::record::StateRecord;

use crate::call::{IDS, Set};
use crate::reply::Reply;
use crate::view::{ClaimName, set_of};

/// A job in the answer of a claim or a rescue.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) lease: ClaimName,
    pub(crate) position: u8,
    pub(crate) id: u8,
    pub(crate) set: Set,
    pub(crate) has_state: bool,
    /// The state in Redis; from the record if Redis has no state.
    pub(crate) state: StateRecord,
    /// Epoch ms.
    pub(crate) due: i64,
}

/// The jobs in the answer of a claim or rescue under this nonce, as `store/jobs/claim/answer.rs`
/// reads it.
pub(crate) fn taken(nonce: [u8; 8], reply: &Reply) -> Result<Vec<Taken>, String> {
    let created = reply.items().get(7).ok_or("a claim answered too few items")?.bytes();
    let lease =
        (nonce, created.try_into().map_err(|_| "a claim answered a `created` of another length")?);
    let mut list = Vec::new();
    for (position, job) in (0..).zip(reply.items()[8..].chunks_exact(4)) {
        // The job has left the claim.
        if job[0].bytes().is_empty() {
            continue;
        }
        let id = IDS
            .iter()
            .position(|id| id.as_bytes() == job[0].bytes())
            .ok_or("a claim answered an unknown id")?;
        let due = job[3].number().ok_or("a claim answered no due time")?;
        let has_state = !job[1].bytes().is_empty();
        let of_record = || StateRecord::of_record(job[2].bytes(), due);
        let state = if has_state { StateRecord::decode(job[1].bytes()).ok() } else { None };
        let state = state.or_else(of_record).ok_or("a claim answered no record")?;
        let set = set_of(job[2].bytes()).ok_or("a claim answered a record of nobody")?;
        list.push(Taken { lease, position, id: u8::from(id == 1), set, has_state, state, due });
    }
    Ok(list)
}
