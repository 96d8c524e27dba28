//! A place: the name of what is out, in the set of its limit.

use crate::job::JobId;
use crate::store::record::Nonce;

const CLAIM: u8 = b'c';
const LEASE: u8 = b'l';
const CALL: u8 = b'p';
const SPARE: u8 = b's';

/// A place of a limit. Its name says what is out, so that whoever finds the limit full can look
/// whether that is still so.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place(Vec<u8>);

/// What is out, by the name of its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Out<'a> {
    /// A job in a claim; then held after this attempt.
    Claim { bucket: u16, nonce: Nonce, position: u8, attempt: u32, id: &'a [u8] },
    /// A job under the lease of a consumer.
    Lease { bucket: u16, proof: Nonce, id: &'a [u8] },
    /// A job that is not known: of a pop that is about to be made, or of a spare place.
    Unknown,
}

impl Place {
    /// The place of a claimed job: its bucket, the nonce and position of its claim, and its attempt.
    #[must_use]
    pub fn of_claim(
        bucket: u16,
        (nonce, position): (Nonce, u8),
        attempt: u32,
        id: &JobId,
    ) -> Place {
        let mut name = vec![CLAIM];
        name.extend_from_slice(&bucket.to_be_bytes());
        name.extend_from_slice(&nonce);
        name.push(position);
        name.extend_from_slice(&attempt.to_be_bytes());
        name.extend_from_slice(id.as_str().as_bytes());
        Place(name)
    }

    /// The place of a popped job. `proof`: that of its pop, which the state of the job has.
    pub(in crate::store) fn of_lease(bucket: u16, proof: Nonce, id: &JobId) -> Place {
        let mut name = vec![LEASE];
        name.extend_from_slice(&bucket.to_be_bytes());
        name.extend_from_slice(&proof);
        name.extend_from_slice(id.as_str().as_bytes());
        Place(name)
    }

    /// A place of a pop that is about to be made: the pop's own random number, and the number of the
    /// place.
    #[must_use]
    pub(crate) fn of_call(nonce: Nonce, number: u32) -> Place {
        let mut name = vec![CALL];
        name.extend_from_slice(&nonce);
        name.extend_from_slice(&number.to_be_bytes());
        Place(name)
    }

    /// A spare place, which an agent takes in advance: the agent's own random number, and the number
    /// of the place.
    #[must_use]
    pub fn of_spare(agent: Nonce, number: u32) -> Place {
        let mut name = vec![SPARE];
        name.extend_from_slice(&agent);
        name.extend_from_slice(&number.to_be_bytes());
        Place(name)
    }

    /// The number of a spare place; `None`: the place is another.
    #[must_use]
    pub fn spare_number(&self) -> Option<u32> {
        let number = self.0.last_chunk::<4>().filter(|_| self.is_spare())?;
        Some(u32::from_be_bytes(*number))
    }

    /// Whether the place is a spare one.
    #[must_use]
    pub fn is_spare(&self) -> bool {
        self.0.first() == Some(&SPARE)
    }

    pub(super) fn of_bytes(bytes: Vec<u8>) -> Place {
        Place(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What is out; `None`: another version wrote the name.
    pub(super) fn out(&self) -> Option<Out<'_>> {
        let (kind, rest) = self.0.split_first()?;
        if matches!(*kind, CALL | SPARE) {
            return Some(Out::Unknown);
        }
        let (bucket, rest) = rest.split_first_chunk::<2>()?;
        let (nonce, rest) = rest.split_first_chunk::<8>()?;
        let bucket = u16::from_be_bytes(*bucket);
        match *kind {
            CLAIM => {
                let (position, rest) = rest.split_first()?;
                let (attempt, id) = rest.split_first_chunk::<4>()?;
                let attempt = u32::from_be_bytes(*attempt);
                Some(Out::Claim { bucket, nonce: *nonce, position: *position, attempt, id })
            }
            LEASE => Some(Out::Lease { bucket, proof: *nonce, id: rest }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_what_is_out() {
        let id: JobId = "ü-1".parse().unwrap();
        let claim = Place::of_claim(300, ([7; 8], 127), 70_000, &id);
        let of_claim = Out::Claim {
            bucket: 300,
            nonce: [7; 8],
            position: 127,
            attempt: 70_000,
            id: "ü-1".as_bytes(),
        };
        assert_eq!(claim.out(), Some(of_claim));
        assert_eq!(Place::of_bytes(claim.as_bytes().to_vec()), claim);
        let lease = Place::of_lease(3, [9; 8], &id);
        let of_lease = Out::Lease { bucket: 3, proof: [9; 8], id: "ü-1".as_bytes() };
        assert_eq!(lease.out(), Some(of_lease));
        assert_eq!(Place::of_call([1; 8], 4).out(), Some(Out::Unknown));
        let spare = Place::of_spare([1; 8], 70_000);
        assert_eq!((spare.out(), spare.spare_number()), (Some(Out::Unknown), Some(70_000)));
        assert_eq!((Place::of_call([1; 8], 4).spare_number(), claim.is_spare()), (None, false));
        assert_ne!(Place::of_call([1; 8], 4), Place::of_call([1; 8], 5));
        for bytes in [&b""[..], b"c", b"cabc", b"x0123456789", b"l0123456"] {
            assert_eq!(Place::of_bytes(bytes.to_vec()).out(), None, "{bytes:?}");
        }
    }
}
