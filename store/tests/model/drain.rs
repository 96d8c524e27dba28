//! Nothing is lost: whatever happened so far, instances that go on bring every job to a claim.

use dwell_store::store::record::StateRecord;
use dwell_store::store::scripts::Name;

use crate::call::{Call, IDS, Set, Sets, eight};
use crate::lua::Scripts;
use crate::redis::Store;
use crate::taken::taken;
use crate::view::{Location, View};
use crate::world::{SPAN, at, moment};

/// Long after everything ended.
const DRAIN_TICK: i64 = 100;

/// Rescues, sends back and claims until nothing is left. Each live job must be claimed once, unless
/// it is dead.
pub(crate) fn drain(scripts: &Scripts, store: &Store, view: &View) -> Result<u64, String> {
    let moment = moment(at(DRAIN_TICK), 1, 0);
    let (nonce, mut runs) = (u8::MAX, 2);
    let (mut store, reply) = scripts.run(store, &moment, &Call::rescue(nonce, SPAN, 100));
    for job in taken(eight(nonce), &reply)? {
        let state = StateRecord { held: false, counted: false, ..job.state.in_flight() };
        let call = Call::settle(
            Name::Release,
            job.lease,
            &[(job.id, job.position, "+0".to_owned(), Some(state))],
        )
        .on(Sets::Of(job.set));
        store = scripts.run(&store, &moment, &call).0;
        runs += 1;
    }
    let nonce = nonce - 1;
    let (_, reply) = scripts.run(&store, &moment, &Call::claim(nonce, SPAN, 100, 0));
    let mut claimed = [0; 2];
    taken(eight(nonce), &reply)?.iter().for_each(|job| claimed[usize::from(job.id)] += 1);
    for set in [Set::Queue, Set::OtherQueue] {
        if view.jobs.iter().flatten().all(|live| live.set != set) {
            continue;
        }
        let nonce = nonce - set as u8;
        let (after, reply) =
            scripts.run(&store, &moment, &Call::pop(nonce, set, (None, 0), SPAN, &[100]));
        let jobs = reply.items().get(7..).unwrap_or_default().chunks_exact(5);
        let ids: Vec<u8> = jobs.map(|job| u8::from(job[0].bytes() == IDS[1].as_bytes())).collect();
        let words: Vec<_> = ids.iter().map(|id| ("finish", *id, nonce, String::new())).collect();
        let (after, reply) = scripts.run(&after, &moment, &Call::acknowledge(set, &words));
        if reply.items().chunks_exact(2).filter(|answer| answer[0].text() == "finished").count()
            != ids.len()
        {
            return Err("not all jobs of a queue are finished by those who go on".to_owned());
        }
        ids.iter().for_each(|id| claimed[usize::from(*id)] += 1);
        store = after;
        runs += 2;
    }
    for (id, live) in view.jobs.iter().enumerate() {
        let expected = u8::from(live.as_ref().is_some_and(|live| live.location != Location::Dead));
        if claimed[id] != expected {
            return Err(format!(
                "{} is claimed {} times by those who go on, not {expected}",
                IDS[id], claimed[id]
            ));
        }
    }
    Ok(runs)
}
