//! The jobs in claims: claimed or taken over, and not settled.

use std::collections::HashMap;

use redis::{Pipeline, Value};

use crate::store::answer::score;
use crate::store::error::StoreError;
use crate::store::namespace::Namespace;

/// The bytes of the time of the first write, before the bits of an entry of `settled`.
const CREATED_TIME_BYTES: usize = 8;

/// A job in a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct ClaimEntry {
    /// The job's id.
    pub(in crate::store) id: String,
    /// The due time of the job, epoch ms: its score in `due` before the claim.
    pub(in crate::store) due_ms: i64,
    /// The end of the claim, epoch ms.
    pub(in crate::store) deadline_ms: i64,
}

impl Namespace {
    /// The jobs in the claims of a bucket.
    pub(in crate::store) async fn claimed_jobs(
        &self,
        bucket: u16,
    ) -> Result<Vec<ClaimEntry>, StoreError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("HGETALL").arg(self.keys.claims(bucket));
        pipeline.cmd("HGETALL").arg(self.keys.settled(bucket));
        pipeline
            .cmd("ZRANGE")
            .arg(self.keys.claim_deadlines(bucket))
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES");
        let mut answers =
            self.link.pipeline("reading leases", &pipeline).await?.into_iter().map(pairs);
        let mut next = || answers.next().unwrap_or_default();
        let (texts, left, ends) = (next(), next(), next());
        let left: HashMap<Vec<u8>, Value> = left.into_iter().collect();
        let ends: HashMap<Vec<u8>, Value> = ends.into_iter().collect();
        let mut jobs = Vec::new();
        for (nonce, text) in texts {
            let (Value::BulkString(text), Some(Value::BulkString(left))) = (text, left.get(&nonce))
            else {
                continue;
            };
            let deadline_ms = ends.get(&nonce).cloned().and_then(score).unwrap_or(0);
            let of_lease = entries(&text).filter(|(position, ..)| is_out(left, *position));
            jobs.extend(of_lease.map(|(_, id, due_ms)| ClaimEntry {
                id: id.to_owned(),
                due_ms,
                deadline_ms,
            }));
        }
        Ok(jobs)
    }
}

/// The jobs of the text of a claim: position, id, due ms. Entries that are not UTF-8 are skipped.
fn entries(text: &[u8]) -> impl Iterator<Item = (usize, &str, i64)> {
    text.split(|byte| *byte == 0).skip(1).enumerate().filter_map(|(position, entry)| {
        let (id, due) = std::str::from_utf8(entry).ok()?.split_once('\u{1}')?;
        Some((position, id, due.parse().unwrap_or(0)))
    })
}

/// Whether the job at this position is still in the claim.
fn is_out(left: &[u8], position: usize) -> bool {
    left.get(CREATED_TIME_BYTES + position / 8)
        .is_some_and(|bits| bits & (1 << (position % 8)) == 0)
}

/// The number of jobs in the claims of an answer of HGETALL `settled`.
pub(super) fn count(left: Value) -> u64 {
    let bits = |left: Value| match left {
        Value::BulkString(left) => {
            left.iter().skip(CREATED_TIME_BYTES).map(|bits| u64::from(bits.count_zeros())).sum()
        }
        _ => 0,
    };
    pairs(left).into_iter().map(|(_, left)| bits(left)).sum()
}

/// The pairs of an answer, in the forms of RESP2 and RESP3.
fn pairs(answer: Value) -> Vec<(Vec<u8>, Value)> {
    let bytes = |name: Value| match name {
        Value::BulkString(name) => name,
        _ => Vec::new(),
    };
    match answer {
        Value::Map(pairs) => pairs.into_iter().map(|(name, value)| (bytes(name), value)).collect(),
        Value::Array(items) => {
            let mut items = items.into_iter();
            let mut pairs = Vec::new();
            while let Some(item) = items.next() {
                let (name, value) = match item {
                    Value::Array(pair) => {
                        let mut pair = pair.into_iter();
                        (pair.next(), pair.next())
                    }
                    name => (Some(name), items.next()),
                };
                if let (Some(name), Some(value)) = (name, value) {
                    pairs.push((bytes(name), value));
                }
            }
            pairs
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_names_the_jobs_that_are_still_in_it() {
        let text = b"\x00a\x015\x00b\x01-6\x00c\x017";
        assert_eq!(entries(text).collect::<Vec<_>>(), [(0, "a", 5), (1, "b", -6), (2, "c", 7)]);
        let left = [&[9; CREATED_TIME_BYTES][..], &[0b1111_1010]].concat();
        assert_eq!(
            [0, 1, 2, 3, 8].map(|position| is_out(&left, position)),
            [true, false, true, false, false]
        );
        let answer =
            Value::Array(vec![Value::BulkString(b"nonce".to_vec()), Value::BulkString(left)]);
        assert_eq!(count(answer), 2);
    }
}
