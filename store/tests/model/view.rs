//! The content of a store, read once: the location of each id, and the claims. A store that breaks a
//! rule of structure cannot be read.

use std::fmt;

use dwell_store::store::record::{self, StateRecord};

use crate::call::{IDS, Set, Sets, keys};
use crate::redis::Store;

/// The name of a claim.
pub(crate) type ClaimName = ([u8; 8], [u8; 8]);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Due(i64),
    Dead,
    Held(i64),
    /// In a claim, with an unset bit.
    Claim(ClaimName),
}

impl fmt::Debug for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Due(at) => write!(out, "due at {at}"),
            Location::Dead => out.write_str("dead"),
            Location::Held(until) => write!(out, "held until {until}"),
            Location::Claim((nonce, _)) => write!(out, "lease {}", nonce[7]),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) name: ClaimName,
    pub(crate) deadline: i64,
    /// Per position: the index of the id, and whether the job has left the claim.
    pub(crate) jobs: Vec<(u8, bool)>,
}

/// A job that is there.
#[derive(Debug)]
pub(crate) struct Live {
    /// The generation of the current schedule.
    pub(crate) generation: [u8; 8],
    pub(crate) state: Option<StateRecord>,
    pub(crate) location: Location,
    pub(crate) set: Set,
}

#[derive(Debug)]
pub(crate) struct View {
    pub(crate) jobs: [Option<Live>; 2],
    pub(crate) leases: Vec<Claim>,
}

impl View {
    /// Reads a store.
    pub(crate) fn of(store: &Store) -> Result<View, String> {
        let keys = keys();
        let leases = leases(store)?;
        let state = store.hash(keys.state(0).as_bytes())?;
        let records = store.hash(keys.jobs(0).as_bytes())?;
        let mut jobs = [None, None];
        for (index, id) in IDS.iter().enumerate() {
            let score = |key: &str| {
                Ok::<_, String>(
                    store
                        .zset(key.as_bytes())?
                        .and_then(|zset| zset.get(id.as_bytes()))
                        .map(|score| score.0),
                )
            };
            let mut locations = Vec::new();
            // Held jobs and claims know no set.
            let mut sets = Vec::new();
            for set in Set::ALL {
                let dead = if set.is_queue() {
                    keys.dead_of(0, set.name())
                } else {
                    keys.dead(0).to_owned()
                };
                locations.extend(score(&keys.due(0, set.name()))?.map(Location::Due));
                locations.extend(score(&dead)?.map(|_| Location::Dead));
                sets.resize(locations.len(), set);
            }
            locations.extend(score(keys.held(0))?.map(Location::Held));
            for lease in &leases {
                let out = lease
                    .jobs
                    .iter()
                    .filter(|(job, has_left)| usize::from(*job) == index && !has_left);
                locations.extend(out.map(|_| Location::Claim(lease.name)));
            }
            let state = state.and_then(|state| state.get(id.as_bytes()));
            let Some(record) = records.and_then(|records| records.get(id.as_bytes())) else {
                if !locations.is_empty() || state.is_some() {
                    return Err(format!(
                        "{id} has no record, and yet a state or a location: {locations:?}"
                    ));
                }
                continue;
            };
            let [location] = locations[..] else {
                return Err(format!("{id} is not in one location: {locations:?}"));
            };
            let state = state
                .map(|bytes| StateRecord::decode(bytes).map_err(|error| format!("{id}: {error}")))
                .transpose()?;
            let generation = record
                .get(6..14)
                .and_then(|part| part.try_into().ok())
                .ok_or("a record too short")?;
            let generation = state.as_ref().map_or(generation, |state| state.generation);
            let set = set_of(record).ok_or("a record of nobody")?;
            if sets.iter().any(|other| *other != set) {
                return Err(format!("{id} of {} is in a set of {}", set.name(), sets[0].name()));
            }
            // There is no dead letter to publish first.
            if set.is_queue()
                && matches!(location, Location::Due(_))
                && state.as_ref().is_some_and(|state| state.reason.is_some())
            {
                return Err(format!("{id} of a queue is dying, and waits"));
            }
            jobs[index] = Some(Live { generation, state, location, set });
        }
        let view = View { jobs, leases };
        view.counts_right(store)?;
        Ok(view)
    }

    /// `queues` has the number of held jobs of each queue, and a field for each queue that has a
    /// job in a set.
    fn counts_right(&self, store: &Store) -> Result<(), String> {
        let counts = store.hash(keys().queues(0).as_bytes())?;
        for set in Set::ALL {
            let text = counts
                .and_then(|counts| counts.get(set.name().as_bytes()))
                .map_or(&b"0"[..], Vec::as_slice);
            let is_held = |job: &&Live| {
                set.is_queue() && job.set == set && matches!(job.location, Location::Held(_))
            };
            let held = self.jobs.iter().flatten().filter(is_held).count();
            let is_in_set = |job: &Live| {
                set.is_queue() && job.set == set && !matches!(job.location, Location::Claim(_))
            };
            let has_field = counts.is_some_and(|counts| counts.contains_key(set.name().as_bytes()));
            if self.jobs.iter().flatten().any(is_in_set) && !has_field {
                return Err(format!("`queues` does not know {}, which has a job", set.name()));
            }
            if text != held.to_string().as_bytes() {
                return Err(format!(
                    "`queues` counts {} held jobs of {}, there are {held}",
                    text.escape_ascii(),
                    set.name()
                ));
            }
        }
        Ok(())
    }

    /// The sets that a check of all jobs needs.
    pub(crate) fn sets(&self) -> Sets {
        let has_queue = self.jobs.iter().flatten().any(|job| job.set.is_queue());
        if has_queue { Sets::All } else { Sets::Of(Set::Main) }
    }

    /// The claim with this name.
    pub(crate) fn lease(&self, name: ClaimName) -> Option<&Claim> {
        self.leases.iter().find(|lease| lease.name == name)
    }

    /// Whether a rescue at this time has something to do.
    pub(crate) fn has_ended(&self, now_ms: i64) -> bool {
        let held = self
            .jobs
            .iter()
            .flatten()
            .any(|job| matches!(job.location, Location::Held(until) if until <= now_ms));
        held || self.leases.iter().any(|lease| lease.deadline <= now_ms)
    }
}

/// The set that a record belongs to.
pub(crate) fn set_of(record: &[u8]) -> Option<Set> {
    let length = usize::from(*record.get(30)?);
    let owner = record.get(31..31 + length)?;
    let is_queue = record[0] == record::VERSION_QUEUE;
    Set::ALL.into_iter().find(|set| {
        set.is_queue() == is_queue && set.name().trim_start_matches('=').as_bytes() == owner
    })
}

fn leases(store: &Store) -> Result<Vec<Claim>, String> {
    let keys = keys();
    let texts = store.hash(keys.claims(0).as_bytes())?;
    let all_settled = store.hash(keys.settled(0).as_bytes())?;
    let lent = store.zset(keys.claim_deadlines(0).as_bytes())?;
    let count = all_settled.map_or(0, |all_settled| all_settled.len());
    if texts.map_or(0, |texts| texts.len()) != count || lent.map_or(0, |lent| lent.len()) != count {
        return Err("a lease lacks one of its three parts".to_owned());
    }
    let mut leases = Vec::new();
    for (nonce, left) in all_settled.into_iter().flatten() {
        let text = texts.and_then(|texts| texts.get(nonce)).ok_or("a lease without its text")?;
        let deadline =
            lent.and_then(|lent| lent.get(nonce)).ok_or("a lease without its deadline")?.0;
        let (created, bits) = left.split_at_checked(8).ok_or("a lease without its bits")?;
        let ids = text
            .split(|byte| *byte == 0)
            .skip(1)
            .map(|entry| entry.split(|byte| *byte == 1).next().unwrap_or_default());
        let mut jobs = Vec::new();
        for (at, id) in ids.enumerate() {
            let index = IDS
                .iter()
                .position(|known| known.as_bytes() == id)
                .ok_or("a lease of an unknown id")?;
            let bit = bits.get(at / 8).ok_or("a lease with too few bits")? >> (at % 8) & 1;
            jobs.push((u8::try_from(index).unwrap_or(u8::MAX), bit == 1));
        }
        let rest: u32 = bits.iter().map(|byte| byte.count_zeros()).sum();
        let out = jobs.iter().filter(|(_, has_left)| !has_left).count();
        if usize::try_from(rest) != Ok(out) || bits.len() != jobs.len().div_ceil(8) {
            return Err("the bits of a lease do not fit its jobs".to_owned());
        }
        if out == 0 {
            return Err("a lease stays, although all its bits are set".to_owned());
        }
        let eight = |bytes: &[u8]| {
            bytes.try_into().map_err(|_| "a nonce or a created of another length".to_owned())
        };
        leases.push(Claim { name: (eight(nonce)?, eight(created)?), deadline, jobs });
    }
    Ok(leases)
}
