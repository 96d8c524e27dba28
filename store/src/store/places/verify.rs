//! Whether what has a place is still out: whoever ended it may not know the limit, or have died.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use redis::{Pipeline, Value};

use super::place::{Out, Place};
use super::{PlaceCall, PlaceLimit};
use crate::store::error::StoreError;
use crate::store::namespace::Namespace;
use crate::store::record::StateRecord;

/// The most places that one look judges.
const MAX_LOOKED_AT: usize = 256;
/// The bytes of a claim's settled jobs before their bits: the time of its first write.
const CREATED_BYTES: usize = 8;

impl Namespace {
    /// Looks at up to 256 places of this limit, and gives those back whose job is not out any more.
    /// Returns their number.
    pub async fn verify_places(&self, limit: &PlaceLimit) -> Result<usize, StoreError> {
        let mut by_bucket: BTreeMap<u16, Vec<Place>> = BTreeMap::new();
        for place in self.some_places(limit).await? {
            let Some(Out::Claim { bucket, .. } | Out::Lease { bucket, .. }) = place.out() else {
                continue;
            };
            if bucket < self.keys.buckets() {
                by_bucket.entry(bucket).or_default().push(place);
            }
        }
        let looks = by_bucket.into_iter().map(|(bucket, places)| self.not_out(bucket, places));
        let mut back = Vec::new();
        for found in join_all(looks).await {
            match found {
                Ok(places) => back.extend(places),
                // What cannot be judged keeps its places.
                Err(error) => tracing::debug!(%error, "places could not be judged"),
            }
        }
        let count = back.len();
        if count > 0 {
            self.places(&[PlaceCall { back, ..PlaceCall::new(limit) }]).await?;
        }
        Ok(count)
    }

    /// All places of the limit, or some of very many, others each time.
    async fn some_places(&self, limit: &PlaceLimit) -> Result<Vec<Place>, StoreError> {
        let key = self.keys.places(limit.name());
        let count = match self.link.command("ZCARD", redis::cmd("ZCARD").arg(&key)).await? {
            Value::Int(count) => usize::try_from(count).unwrap_or(0),
            _ => 0,
        };
        let beyond = count.saturating_sub(MAX_LOOKED_AT);
        let first = usize::from(rand::random::<u16>()) % (beyond + 1);
        let mut command = redis::cmd("ZRANGE");
        command.arg(&key).arg(first).arg(first + MAX_LOOKED_AT - 1);
        let Value::Array(members) = self.link.command("ZRANGE", &command).await? else {
            return Ok(Vec::new());
        };
        let place = |member| match member {
            Value::BulkString(bytes) => Some(Place::of_bytes(bytes)),
            _ => None,
        };
        Ok(members.into_iter().filter_map(place).collect())
    }

    /// Those of these places of one bucket whose job is not out.
    async fn not_out(&self, bucket: u16, places: Vec<Place>) -> Result<Vec<Place>, StoreError> {
        let (mut pipeline, keys) = (Pipeline::new(), &self.keys);
        for place in &places {
            // A job that is held meanwhile is out by one of these, in this order.
            let (nonce, id) = match place.out() {
                Some(Out::Claim { nonce, id, .. }) => (nonce, id),
                Some(Out::Lease { proof, id, .. }) => (proof, id),
                Some(Out::Unknown) | None => continue,
            };
            pipeline.cmd("HGET").arg(keys.settled(bucket)).arg(&nonce[..]);
            pipeline.cmd("HGET").arg(keys.state(bucket)).arg(id);
            pipeline.cmd("ZSCORE").arg(keys.held(bucket)).arg(id);
        }
        let answers = self.link.pipeline("looking at what is out", &pipeline).await?;
        let is_over = |(place, answers): (&Place, &[Value])| match answers {
            [settled, state, held] => {
                let held_state = state_of(state).filter(|_| *held != Value::Nil);
                match place.out() {
                    Some(Out::Claim { position, attempt, .. }) => {
                        let is_held = held_state
                            .and_then(|bytes| StateRecord::decode(bytes).ok())
                            .is_some_and(|state| state.held && state.attempt == attempt);
                        !(is_held || is_in_claim(settled, position))
                    }
                    Some(Out::Lease { proof, .. }) => {
                        held_state.and_then(StateRecord::pop_of) != Some(proof)
                    }
                    Some(Out::Unknown) | None => false,
                }
            }
            _ => false,
        };
        let over: Vec<bool> = places.iter().zip(answers.chunks(3)).map(is_over).collect();
        let judged = places.into_iter().zip(over);
        Ok(judged.filter_map(|(place, is_over)| is_over.then_some(place)).collect())
    }
}

fn state_of(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// Whether the job at this position is in its claim, by the field of the claim in `settled`.
fn is_in_claim(settled: &Value, position: u8) -> bool {
    let at = CREATED_BYTES + usize::from(position / 8);
    state_of(settled)
        .and_then(|bytes| bytes.get(at))
        .is_some_and(|bits| bits & (1 << (position % 8)) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_of_the_claim_says_that_a_job_has_left() {
        let mut bytes = b"createdT".to_vec();
        bytes.extend_from_slice(&[0b1111_0101, 0b1111_1110]);
        let settled = Value::BulkString(bytes);
        let out: Vec<u8> = (0..30).filter(|at| is_in_claim(&settled, *at)).collect();
        assert_eq!(out, [1, 3, 8]);
        assert!(!is_in_claim(&Value::Nil, 0), "the claim is over");
    }
}
