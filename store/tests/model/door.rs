//! The requests that come by messages: their calls, and whether their verdicts are true.

use dwell_store::store::record::StateRecord;
use dwell_store::store::scripts::Name;

use crate::call::{Call, IDS, Set, job};
use crate::reply::Reply;
use crate::runner::Broken;
use crate::scene::{Door, Scene};
use crate::view::{Live, Location, View};
use crate::world::{FIRST_DOOR, SPAN, World, at};

/// `again`: the message came before.
pub(crate) fn door_call(scene: &Scene, world: &World, index: u8, again: bool, seen: &View) -> Call {
    let number = FIRST_DOOR + index;
    // A message that comes again draws another generation.
    let generation = if again { 0x80 | number } else { number };
    let call = match scene.doors[usize::from(index)] {
        Door::NewJob(id, tick) => Call::schedule(
            id,
            number,
            generation,
            at(tick),
            job(number, SPAN as u32, scene.set, scene.held),
        ),
        Door::Debounce(id, tick) => Call::debounce(
            id,
            number,
            generation,
            at(tick),
            (SPAN.unsigned_abs(), job(number, SPAN as u32, scene.set, scene.held)),
        ),
        Door::Into(id, tick, set) => Call::schedule(
            id,
            number,
            generation,
            at(tick),
            job(number, SPAN as u32, set, scene.held),
        ),
        Door::Cancel(id) => Call::cancel(id, number),
        Door::End(id) => Call::end(scene.set, &[(id, first_of(id))]),
        Door::Reschedule(id, tick) => Call::reschedule(id, number, generation, at(tick)),
        Door::Fire(id) => Call::act(Name::Fire, id, number),
        Door::Finish(id) => Call::finish(id, number),
        Door::Requeue(id) => Call::requeue(id, number, generation),
        Door::Fail(id) => {
            let live = seen.jobs[usize::from(id)].as_ref();
            let state = live.and_then(|live| live.state.as_ref());
            let read =
                (live.map_or([0; 8], |live| live.generation), state.map_or(0, |state| state.step));
            let (due, attempt) =
                if again { world.named(index) } else { named(scene, world, id, seen) };
            // A single wait.
            Call::fail(id, number, (due, attempt.into()), read, (read.1 == 0).then_some(SPAN))
        }
    };
    call.on(scene.sets())
}

/// The schedule that the scene begins with.
fn first_of(id: u8) -> u8 {
    id + 1
}

/// The first request of the burst to which a request that debounces belongs, epoch ms: the one that
/// the job has, while the job waits without an attempt. `was`: the schedule of the job.
fn burst_begin(world: &World, live: Option<&Live>, was: u8) -> i64 {
    let waits = live.is_some_and(|live| {
        let is_fresh = |state: &StateRecord| state.attempt == 0 && state.reason.is_none();
        matches!(live.location, Location::Due(_)) && live.state.as_ref().is_none_or(is_fresh)
    });
    let first = world.stored.first[usize::from(was)];
    // Redis's clock stands a few us after this ms.
    if waits && first != 0 { first } else { world.now_ms() + 1 }
}

/// The attempt that a job is at.
fn attempt_of(live: &Live) -> u32 {
    let is_lent = matches!(live.location, Location::Claim(_));
    match live.state.clone() {
        None => is_lent.into(),
        Some(state) => {
            if is_lent {
                state.in_flight().attempt
            } else {
                state.attempt
            }
        }
    }
}

/// Due and attempt, as the consumer has them.
fn named(scene: &Scene, world: &World, id: u8, seen: &View) -> (i64, u8) {
    let state = seen.jobs[usize::from(id)].as_ref().and_then(|live| live.state.as_ref());
    let due = state.map_or(at(scene.due[usize::from(id)]), |state| state.due_ms);
    (due, world.published[world.life(world.stored.lives[usize::from(id)])])
}

/// A pop took the job before its due time, and its consumer gets it then.
fn is_on_its_way(world: &World, id: usize) -> bool {
    let out = world.stored.outs[id].as_ref();
    out.is_some_and(|out| out.end.is_none() && out.ready > world.now_ms())
}

fn is_dying(live: &Live) -> bool {
    live.state.as_ref().is_some_and(|state| state.reason.is_some())
}

/// The verdict is true.
pub(crate) fn follow_door(
    scene: &Scene,
    world: &mut World,
    index: u8,
    seen: &View,
    reply: &Reply,
) -> Result<(), Broken> {
    let door = scene.doors[usize::from(index)];
    let (id, number) = (usize::from(door.id()), FIRST_DOOR + index);
    let was = world.stored.lives[id];
    let life = world.life(was);
    let now = world.now_ms();
    let items = reply.items();
    let is_new = matches!(door, Door::NewJob(..) | Door::Debounce(..) | Door::Into(..));
    let items = if is_new { &items[2..] } else { items };
    let verdict = items[0].text();
    let earliest =
        |world: &mut World, number: u8, at| world.stored.earliest[usize::from(number)] = at;
    let is_there = seen.jobs[id].is_some();
    let is_on_its_way = is_on_its_way(world, id);
    if is_on_its_way
        && matches!(
            verdict,
            "cancelled" | "cancelled_after_attempt" | "finished" | "failed" | "dead"
        )
    {
        return Err(format!("`{verdict}`, and {} is handed out later", IDS[id]));
    }
    if matches!(door, Door::Fail(_)) && world.budget.redeliveries > 0 {
        let (due, attempt) = named(scene, world, door.id(), seen);
        world.named.push((index, due, attempt));
    }
    match (door, verdict) {
        (Door::NewJob(_, tick) | Door::Into(_, tick, _), "added" | "replaced") => {
            world.replace(id, number);
            earliest(world, number, at(tick));
        }
        (Door::Debounce(_, tick), "added" | "replaced") => {
            let first = burst_begin(world, seen.jobs[id].as_ref(), was);
            let (due, told) = (at(tick).min(first + SPAN), items[1].number());
            if told != Some(due) {
                return Err(format!(
                    "{} is due at {told:?}, not at {due}, by its first request at {first}",
                    IDS[id]
                ));
            }
            world.replace(id, number);
            earliest(world, number, due);
            world.stored.first[usize::from(number)] = first;
        }
        (Door::End(id), "not_found") if was != first_of(id) => {}
        (Door::End(one), "ended") if is_there => {
            if was != first_of(one) {
                return Err(format!(
                    "the end of the first schedule of {} ends schedule {was}",
                    IDS[id]
                ));
            }
            world.replace(id, 0);
        }
        (Door::Cancel(_), "cancelled" | "cancelled_after_attempt" | "in_flight") if is_there => {
            world.replace(id, 0);
            let is_queue = seen.jobs[id].as_ref().is_some_and(|live| live.set.is_queue());
            if is_queue
                && verdict != "cancelled"
                && world.published[life] == 0
                && !world.is_rolled()
            {
                return Err(format!("`{verdict}`, and {} was never handed out", IDS[id]));
            }
            if verdict == "cancelled" && world.published[life] > 0 {
                return Err(format!(
                    "`cancelled` says that {} was never published, and it was",
                    IDS[id]
                ));
            }
            // An instance may have a claim that the failover took back: then only `cancelled` is
            // definite.
            if verdict == "cancelled" || verdict == "cancelled_after_attempt" && !world.is_rolled()
            {
                world.end_life(life);
            }
        }
        (Door::Finish(_), "finished") if is_there => {
            let set = seen.jobs[id].as_ref().map(|live| live.set);
            if set.is_some_and(Set::is_queue) && world.published[life] == 0 {
                return Err(format!("{} is finished, and was never handed out", IDS[id]));
            }
            world.replace(id, 0);
            world.stored.finished[id] = set;
        }
        (Door::Reschedule(_, tick), "rescheduled") if is_there => {
            world.replace(id, number);
            world.stored.life[usize::from(number)] = world.stored.life[usize::from(was)];
            earliest(world, number, at(tick));
        }
        (Door::Fire(_), "firing") if is_there => {
            let at = world.stored.earliest[usize::from(was)];
            earliest(world, was, at.min(now));
        }
        (Door::Requeue(_), "requeued") if is_there => {
            world.replace(id, number);
            earliest(world, number, now);
        }
        (Door::Fail(_), "failed" | "dead")
            if seen.jobs[id]
                .as_ref()
                .is_some_and(|live| live.location != Location::Dead && !is_dying(live)) =>
        {
            world.stored.outs[id] = None;
            let at = seen.jobs[id].as_ref().map(attempt_of);
            if at != Some(world.published[life].into()) {
                return Err(format!("a fail of attempt {} acts on {at:?}", world.published[life]));
            }
            // A single wait.
            let is_first = seen.jobs[id]
                .as_ref()
                .and_then(|live| live.state.as_ref())
                .is_none_or(|state| state.step == 0);
            earliest(world, was, if is_first { now + SPAN } else { now });
        }
        (_, "not_found" | "fired") if !is_there => {}
        // Never attempted, or nobody has the job yet.
        (Door::Finish(_) | Door::Fail(_), "not_found")
            if world.published[life] == 0 || is_on_its_way || world.is_rolled() => {}
        (Door::Fail(_), "stale")
            if seen.jobs[id]
                .as_ref()
                .is_some_and(|live| attempt_of(live) == u32::from(world.published[life])) =>
        {
            return Err("a fail that names the attempt is stale".to_owned());
        }
        (_, "in_flight" | "stale" | "waiting" | "dead") if is_there => {}
        (_, other) => return Err(format!("{} of {} answers `{other}`", door.verb(), IDS[id])),
    }
    if let Some(live) = seen.jobs[id].as_ref() {
        let is_busy = matches!(live.location, Location::Claim(_) | Location::Held(_));
        if matches!(door, Door::Reschedule(..) | Door::Fire(_))
            && is_busy != (verdict == "in_flight")
            && verdict != "dead"
        {
            return Err(format!(
                "{} answers `{verdict}` for a job in {:?}",
                door.verb(),
                live.location
            ));
        }
    }
    Ok(())
}
