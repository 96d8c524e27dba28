//! The hash by which a repeated request is known.

use crate::job::Job;
use crate::store::due_set::DueSet;

/// The longest input that is collected before it is hashed: a `Hasher` would initialise two
/// kilobytes.
const MAX_BUFFERED_HASH_BYTES: usize = 1024;

/// The hash that `duplicate` compares: body, broker, destination and key.
pub(super) fn digest(job: &Job) -> [u8; 8] {
    let set = DueSet::of(job).name();
    let (exchange, address) =
        job.destination().map_or(("", ""), |to| (to.exchange.as_str(), to.address.as_str()));
    let parts = [
        set.as_bytes(),
        exchange.as_bytes(),
        address.as_bytes(),
        job.key.as_deref().unwrap_or_default(),
    ];
    let mut head = Vec::with_capacity(MAX_BUFFERED_HASH_BYTES);
    for part in parts {
        head.extend_from_slice(&(part.len() as u64).to_le_bytes());
        head.extend_from_slice(part);
    }
    head.extend_from_slice(&[u8::from(job.key.is_some()), u8::from(job.has_body)]);
    let hash = if head.len() + job.body.len() <= MAX_BUFFERED_HASH_BYTES {
        head.extend_from_slice(&job.body);
        blake3::hash(&head)
    } else {
        blake3::Hasher::new().update(&head).update(&job.body).finalize()
    };
    std::array::from_fn(|i| hash.as_bytes()[i])
}
