//! `fsck --repair` and the jobs of queues: a lease that lost a part, and a job that is moved to the
//! bucket of its id.

use dwell_store::store::scripts::Name;

use crate::call::{Call, IDS, Sets, keys};
use crate::lua::Scripts;
use crate::redis::{Moment, Store};
use crate::runner::Broken;
use crate::view::{Claim, Live, Location, View};
use crate::world::SPAN;

/// Damages a store in each way. Returns the number of scripts that ran.
pub(crate) fn repair(
    scripts: &Scripts,
    store: &Store,
    view: &View,
    moment: &Moment,
) -> Result<u64, Broken> {
    let is_of_queue =
        |id: u8| view.jobs[usize::from(id)].as_ref().is_some_and(|live| live.set.is_queue());
    let mut runs = 0;
    for lease in view
        .leases
        .iter()
        .filter(|lease| lease.jobs.iter().any(|(id, has_left)| !has_left && is_of_queue(*id)))
    {
        runs += repair_lease(scripts, (store, view), lease, moment)?;
    }
    for (id, live) in view.jobs.iter().enumerate() {
        if let Some(live) = live.as_ref().filter(|live| live.set.is_queue()) {
            runs += move_home(scripts, store, (id, live), moment)?;
        }
    }
    Ok(runs)
}

/// Each part of a lease is lost in turn. No job is lost, and the counts stay right.
fn repair_lease(
    scripts: &Scripts,
    (store, view): (&Store, &View),
    lease: &Claim,
    moment: &Moment,
) -> Result<u64, Broken> {
    let keys = keys();
    for (command, key) in [
        (&b"HDEL"[..], keys.claims(0)),
        (b"HDEL", keys.settled(0)),
        (b"ZREM", keys.claim_deadlines(0)),
    ] {
        let mut damaged = store.clone();
        damaged.command(moment, &[command.to_vec(), key.into(), lease.name.0.to_vec()])?;
        let (between, _) =
            scripts.run(&damaged, moment, &Call::fsck_leases(true, SPAN).on(Sets::All));
        let (after, _) = scripts.run(&between, moment, &Call::fsck_jobs(true, SPAN).on(Sets::All));
        let described =
            |why| format!("after the repair of a lease without its part of {key}: {why}");
        let repaired = View::of(&after).map_err(described)?;
        let generations = |view: &View| {
            [0, 1].map(|id: usize| view.jobs[id].as_ref().map(|live| live.generation))
        };
        if generations(&repaired) != generations(view) {
            return Err(described("another job is there".to_owned()));
        }
    }
    Ok(6)
}

/// A job is set aside as one of another bucket, and taken in: all is as before.
fn move_home(
    scripts: &Scripts,
    store: &Store,
    (id, live): (usize, &Live),
    moment: &Moment,
) -> Result<u64, Broken> {
    let (keys, name) = (keys(), IDS[id].as_bytes());
    let dead = keys.dead_of(0, live.set.name());
    let (location, score) = match live.location {
        Location::Due(due) => (format!("due:{}", live.set.name()), due),
        Location::Dead => (
            "dead".to_owned(),
            store.zset(dead.as_bytes())?.and_then(|zset| zset.get(name)).map_or(0, |score| score.0),
        ),
        Location::Held(until) if until < moment.now_us / 1000 => ("held".to_owned(), until),
        Location::Held(_) | Location::Claim(_) => return Ok(0),
    };
    let field = |key: &str| {
        Ok::<_, String>(
            store
                .hash(key.as_bytes())?
                .and_then(|hash| hash.get(name))
                .cloned()
                .unwrap_or_default(),
        )
    };
    let (record, state) = (field(keys.jobs(0))?, field(keys.state(0))?);
    let mut words: Vec<Vec<u8>> =
        [&b"1"[..], b"9000", b"1000000", b"1000000"].map(<[u8]>::to_vec).to_vec();
    words.extend([name.to_vec(), b"bucket".to_vec(), Vec::new()]);
    let (between, _) = scripts.run(store, moment, &Call::of(Name::FsckJobs, words).on(Sets::All));
    if View::of(&between)?.jobs[id].is_some() {
        return Err(format!("{} is not set aside", IDS[id]));
    }
    let words = vec![
        name.to_vec(),
        record,
        state,
        location.into_bytes(),
        score.to_string().into_bytes(),
        b"taken_in it".to_vec(),
    ];
    let (after, _) = scripts.run(&between, moment, &Call::of(Name::FsckAdopt, words).on(Sets::All));
    let is_left_out = |key: &[u8]| key.ends_with(b":quarantine");
    if after.without(is_left_out) != store.without(is_left_out) {
        View::of(&after).map_err(|why| format!("{} is taken in: {why}", IDS[id]))?;
        return Err(format!("{} is taken in, and not as it was", IDS[id]));
    }
    Ok(2)
}
