//! Every key that Dwell has in Redis, on one screen. All keys of a bucket share one hash tag, so that a script touches one slot.

use std::sync::Arc;

/// The keys of one namespace.
#[derive(Debug, Clone)]
pub struct Keys {
    namespace: Arc<str>,
    buckets: u16,
    /// Per bucket: run jobs state gone gone_old acts acts_old dead, in the order of KEYS (prelude.lua).
    fixed: Arc<[[String; 8]]>,
}

impl Keys {
    /// The keys of this namespace with this many buckets.
    #[must_use]
    pub fn new(namespace: &str, buckets: u16) -> Self {
        let fixed = (0..buckets)
            .map(|bucket| {
                ["run", "jobs", "state", "gone", "gone_old", "acts", "acts_old", "dead"]
                    .map(|name| format!("{{{namespace}:{bucket:02}}}:{name}"))
            })
            .collect();
        Keys { namespace: namespace.into(), buckets, fixed }
    }

    /// How many buckets there are.
    #[must_use]
    pub fn buckets(&self) -> u16 {
        self.buckets
    }

    /// The bucket of an id: the first 8 bytes of its BLAKE3 hash, little-endian, modulo the number of buckets. Part of the stored format.
    #[must_use]
    pub fn bucket_of(&self, id: &str) -> u16 {
        let hash = blake3::hash(id.as_bytes());
        let first: [u8; 8] = std::array::from_fn(|i| hash.as_bytes()[i]);
        // The remainder is less than `buckets`, which is a u16.
        (u64::from_le_bytes(first) % u64::from(self.buckets)) as u16
    }

    /// The eight keys that every script of this bucket gets first.
    #[must_use]
    pub fn fixed(&self, bucket: u16) -> &[String; 8] {
        &self.fixed[usize::from(bucket)]
    }

    /// What is due on one broker: zset id → due ms.
    #[must_use]
    pub fn due(&self, bucket: u16, broker: &str) -> String {
        format!("{{{}:{bucket:02}}}:due:{broker}", self.namespace)
    }

    /// What is claimed or held: zset id → lease deadline ms.
    #[must_use]
    pub fn run(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[0]
    }

    /// The job pool: hash id → record.
    #[must_use]
    pub fn jobs(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[1]
    }

    /// What changes: hash id → state.
    #[must_use]
    pub fn state(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[2]
    }

    /// The dead: zset id → time of death ms.
    #[must_use]
    pub fn dead(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[7]
    }

    /// Schema, buckets, brokers, epoch: hash.
    #[must_use]
    pub fn meta(&self) -> String {
        format!("{}:meta", self.namespace)
    }

    /// Living instances: zset instance → heartbeat ms.
    #[must_use]
    pub fn instances(&self) -> String {
        format!("{}:instances", self.namespace)
    }

    /// The channel on which an instance tells the others of a new head: `bucket due broker`.
    #[must_use]
    pub fn wake(&self) -> String {
        format!("{}:wake", self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_bucket_share_one_hash_tag() {
        let keys = Keys::new("dwell", 16);
        assert_eq!(keys.due(7, "main"), "{dwell:07}:due:main");
        assert!(keys.fixed(7).iter().all(|key| key.starts_with("{dwell:07}:")));
    }

    #[test]
    fn the_bucket_of_an_id_never_changes() {
        // Golden values: another hash would lose sight of every stored job.
        let keys = Keys::new("dwell", 16);
        assert_eq!(["order-1", "order-2", "x", "ü"].map(|id| keys.bucket_of(id)), GOLDEN);
    }

    const GOLDEN: [u16; 4] = [3, 3, 10, 11];
}
