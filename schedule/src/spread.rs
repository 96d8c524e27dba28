//! By how much a job is moved within its spread.

/// A domain of its own: the hash of an id for its bucket is another one, so the jobs of one bucket
/// are spread like all.
const DOMAIN: &str = "dwell-schedule spread of due times v1";

/// By how much this id is moved, ms: from 0 and less than the spread, always the same.
#[must_use]
pub fn spread_ms(id: &str, spread: u64) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
    hasher.update(id.as_bytes());
    let hash = hasher.finalize();
    let first: [u8; 8] = std::array::from_fn(|i| hash.as_bytes()[i]);
    // The hash is a fraction of 2⁶⁴; so the product is less than the spread.
    ((u128::from(u64::from_le_bytes(first)) * u128::from(spread)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_id_never_changes() {
        // Golden values: with others, a repeated request would get another due time.
        assert_eq!(["order-1", "order-2", "ü"].map(|id| spread_ms(id, 300_000)), GOLDEN);
        assert_eq!((spread_ms("x", 0), spread_ms("x", 1)), (0, 0));
    }

    const GOLDEN: [u64; 3] = [280_496, 14_184, 239_944];

    #[test]
    fn ids_are_spread_evenly_also_within_a_bucket() {
        let bucket_of = |id: &str| {
            let hash = blake3::hash(id.as_bytes());
            let first: [u8; 8] = std::array::from_fn(|i| hash.as_bytes()[i]);
            u64::from_le_bytes(first) % 16
        };
        let ids = (0..64_000).map(|n| format!("order-{n}")).filter(|id| bucket_of(id) == 3);
        let (mut tenths, mut all) = ([0_u32; 10], 0);
        for id in ids {
            tenths[spread_ms(&id, 10) as usize] += 1;
            all += 1;
        }
        assert!(tenths.iter().all(|count| count.abs_diff(all / 10) < all / 50), "{tenths:?}");
    }
}
