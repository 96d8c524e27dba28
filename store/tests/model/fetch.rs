//! The rules of a pop, an unpop, an acknowledgement and a purge. Each function follows with the
//! ghosts.

use dwell_store::store::record::StateRecord;

use crate::call::{Call, IDS, Set};
use crate::hand::{End, Hand, Out, Word};
use crate::reply::Reply;
use crate::runner::{Broken, Runner};
use crate::scene::Scene;
use crate::view::{Live, Location, View, set_of};
use crate::world::{Op, SPAN, World, at};

/// A lease that lasts longer than a tick, ms.
const LONG_LEASE_MS: i64 = 15_000;

/// The lease that consumers ask for, ms.
fn lease_ms(scene: &Scene) -> i64 {
    if scene.long { LONG_LEASE_MS } else { SPAN }
}

/// The deadline of a pop at this tick, epoch µs.
pub(crate) fn until_us(until: Option<u8>) -> Option<i64> {
    until.map(|tick| at(tick.into()) * 1000 + 500_000)
}

/// The call of this [`Op::Pop`].
pub(crate) fn pop_call(
    scene: &Scene,
    nonce: u8,
    set: Set,
    (until, ahead_ms): (Option<u8>, i64),
    most: u8,
) -> Call {
    // In pieces, each consumer of the call takes one job.
    let most = if scene.pieces { vec![1; usize::from(most)] } else { vec![most] };
    Call::pop(nonce, set, (until_us(until), ahead_ms), lease_ms(scene), &most)
}

pub(crate) fn word_call(word: Word, hands: &[Hand]) -> Call {
    let words: Vec<_> =
        hands.iter().map(|hand| (word.verb(), hand.id, hand.nonce, word.more(hand))).collect();
    Call::acknowledge(hands[0].set, &words)
}

/// Whether a consumer may pop this job of the queue at this time.
pub(crate) fn is_ready(live: &Live, set: Set, now: i64) -> bool {
    live.set == set && matches!(live.location, Location::Due(due) if due <= now)
}

fn held_until(view: &View, id: usize) -> Option<i64> {
    view.jobs[id].as_ref().and_then(|live| match live.location {
        Location::Held(until) => Some(until),
        _ => None,
    })
}

/// A job in the answer of a pop.
struct Popped {
    id: usize,
    set: Set,
    state: StateRecord,
    deadline: i64,
    /// The number of its consumer.
    consumer: i64,
}

fn popped(reply: &Reply) -> Result<Vec<Popped>, Broken> {
    let jobs = reply.items().get(7..).ok_or("a pop answered too few items")?.chunks_exact(5);
    let read = |job: &[Reply]| {
        let id = IDS
            .iter()
            .position(|id| id.as_bytes() == job[0].bytes())
            .ok_or("a pop answered an unknown id")?;
        let state = StateRecord::decode(job[1].bytes())
            .map_err(|error| format!("a pop answered a state: {error}"))?;
        let set = set_of(job[2].bytes()).ok_or("a pop answered a record of nobody")?;
        let consumer = match job[4] {
            Reply::Int(number) => Some(number),
            _ => None,
        };
        Ok(Popped {
            id,
            set,
            state,
            deadline: job[3].number().ok_or("a pop answered no deadline")?,
            consumer: consumer.ok_or("a pop answered no consumer")?,
        })
    };
    jobs.map(read).collect()
}

impl Runner {
    /// The jobs that a pop answered.
    pub(crate) fn follow_pop(
        &self,
        scene: &Scene,
        world: &mut World,
        op: &Op,
        seen: &View,
        reply: &Reply,
    ) -> Result<Vec<Hand>, Broken> {
        let Op::Pop { nonce, set, until, ahead_ms, .. } = *op else { return Ok(Vec::new()) };
        if matches!(reply, Reply::Error(_)) {
            return Ok(Vec::new());
        }
        let now = world.now_ms();
        let view = self.view(world.stored.store);
        let jobs = popped(reply)?;
        for (id, name) in IDS.iter().enumerate() {
            let (Some(ends), None) = (held_until(&view, id), held_until(seen, id)) else {
                continue;
            };
            let live = view.jobs[id].as_ref().ok_or("no job is held")?;
            let Some(at) = jobs.iter().position(|job| job.id == id) else {
                return Err(format!("a pop holds {}, and does not answer it", name));
            };
            let consumer = jobs[at].consumer;
            let expected = if scene.pieces && at > 0 { 2 } else { 1 };
            if consumer != expected {
                return Err(format!("{name} is for consumer {consumer}, not {expected}"));
            }
            if world.stored.popped >> nonce & 1 == 1 {
                return Err(format!("a copy of a pop hands out {} besides", name));
            }
            let was = seen.jobs[id].as_ref().map(|live| live.location);
            let Some(Location::Due(due)) = was else {
                return Err(format!("a pop hands out {name} from {was:?}"));
            };
            if due > now + ahead_ms {
                return Err(format!("a pop takes {name} before its look-ahead reaches it"));
            }
            let times = (ends, due.max(now));
            hand_out(scene, world, (nonce, set, until), id, live, times, consumer)?;
        }
        if !jobs.is_empty() {
            world.stored.popped |= 1 << nonce;
        }
        let mut hands = Vec::new();
        for Popped { id, set: owner, state, deadline, consumer } in jobs {
            let out = world.stored.outs[id].as_ref();
            if !out.is_some_and(|out| out.nonce == nonce && out.end.is_none())
                || held_until(&view, id) != Some(deadline)
                || owner != set
            {
                return Err(format!("a pop answers {}, which it does not hold", IDS[id]));
            }
            if out.is_some_and(|out| out.consumer != consumer) {
                return Err(format!("a repeat of a pop answers {} to another consumer", IDS[id]));
            }
            if deadline <= now {
                return Err(format!("a pop answers {} with a lease that is over", IDS[id]));
            }
            let ready = out.map_or(now, |out| out.ready);
            hands.push(Hand {
                nonce,
                set,
                id: u8::from(id == 1),
                number: state.generation[7],
                step: state.step,
                ready,
            });
        }
        Ok(hands)
    }

    /// Jobs go back as if they had not been popped, but for their attempts. `unsent`: those that
    /// were popped early reached nobody.
    pub(crate) fn follow_unpop(
        &self,
        world: &mut World,
        (nonce, unsent, ids): (u8, bool, &[u8]),
        seen: &View,
        reply: &Reply,
    ) -> Result<(), Broken> {
        let view = self.view(world.stored.store);
        let mut moved = 0;
        for (id, name) in IDS.iter().enumerate() {
            let is_meant = ids.is_empty() || ids.iter().any(|other| usize::from(*other) == id);
            let out = world.stored.outs[id].as_ref();
            let holds = held_until(seen, id).is_some()
                && out.is_some_and(|out| out.nonce == nonce && out.end.is_none());
            let (was, is) = (seen.jobs[id].as_ref(), view.jobs[id].as_ref());
            if was.map(|live| live.location) == is.map(|live| live.location) {
                if holds && is_meant {
                    return Err(format!("{} is not taken back", name));
                }
                continue;
            }
            if !holds || !is_meant {
                return Err(format!("a pop takes back {}, which it does not hold", name));
            }
            moved += 1;
            let due = was.and_then(|live| live.state.as_ref()).map_or(0, |state| state.due_ms);
            // Popped before its time.
            let is_early = out.is_some_and(|out| out.is_early);
            let due = match out {
                Some(out) if is_early => out.ready,
                _ => due.min(world.now_ms()),
            };
            if is.map(|live| live.location) != Some(Location::Due(due)) {
                return Err(format!("{} is taken back to another time than {due}", name));
            }
            let number = world.stored.lives[id];
            let life = world.life(number);
            if is_early && unsent {
                world.claims[life] -= 1;
                world.published[life] = world.claims[life];
            }
            let attempt = is.and_then(|live| live.state.as_ref()).map_or(0, |state| state.attempt);
            if attempt != u32::from(world.claims[life]) && !world.is_rolled() {
                return Err(format!(
                    "{name} is taken back at attempt {attempt} after {} hand-outs",
                    world.claims[life]
                ));
            }
            let earliest = &mut world.stored.earliest[usize::from(number)];
            *earliest = due.min(*earliest);
            world.stored.outs[id] = None;
        }
        if ids.is_empty() {
            world.stored.unpopped |= 1 << nonce;
        }
        if *reply != Reply::Int(moved) {
            Err(format!("{moved} jobs are taken back, the answer is {reply:?}"))
        } else {
            Ok(())
        }
    }

    /// An acknowledgement acts on the hand-out that it names, or changes nothing.
    pub(crate) fn follow_word(
        &self,
        world: &mut World,
        word: Word,
        hands: &[Hand],
        seen: &View,
        reply: &Reply,
    ) -> Result<(), Broken> {
        let (now, before) = (world.now_ms(), world.stored.clone());
        let view = self.view(before.store);
        let mut changed = false;
        for (hand, answer) in hands.iter().zip(reply.items().chunks_exact(2)) {
            let (id, verdict) = (usize::from(hand.id), answer[0].text());
            let out = before.outs[id].as_ref().filter(|out| out.nonce == hand.nonce);
            let holds = out.is_some_and(|out| out.end.is_none() && out.until > now);
            let expected = match (holds, out.and_then(|out| word.repeated(out.end)), &seen.jobs[id])
            {
                (true, ..) => word.verdict(hand),
                (false, Some(verdict), _) => verdict,
                (false, None, Some(live)) if live.set == hand.set => "stale",
                (false, None, None) if before.finished[id] == Some(hand.set) => "fired",
                // A lease reveals nothing of the jobs of other queues.
                (false, None, _) => "not_found",
            };
            if verdict != expected {
                return Err(format!(
                    "{} of {} under the lease of pop {} answers `{verdict}`, not `{expected}`",
                    word.verb(),
                    IDS[id],
                    hand.nonce
                ));
            }
            if holds {
                changed = true;
                if before.lives[id] != hand.number {
                    return Err(format!(
                        "{} of schedule {} of {} acts on {}",
                        word.verb(),
                        hand.number,
                        IDS[id],
                        before.lives[id]
                    ));
                }
                end_lease(world, word, hand);
            }
            check_place(word, hand, verdict, (seen, &view), answer[1].number())?;
        }
        let was = seen
            .jobs
            .iter()
            .map(|live| live.as_ref().map(|live| (live.location, live.state.clone())));
        let is = view
            .jobs
            .iter()
            .map(|live| live.as_ref().map(|live| (live.location, live.state.clone())));
        if !changed && !was.eq(is) {
            return Err("a word on a lease that is over changes something".to_owned());
        }
        Ok(())
    }

    /// A purge removes the jobs in this state, and no held job.
    pub(crate) fn follow_purge(
        &self,
        world: &mut World,
        state: &str,
        seen: &View,
        reply: &Reply,
    ) -> Result<(), Broken> {
        let (now, view) = (world.now_ms(), self.view(world.stored.store));
        let mut removed = 0;
        for (id, name) in IDS.iter().enumerate() {
            let location = seen.jobs[id]
                .as_ref()
                .filter(|live| live.set == Set::Queue)
                .map(|live| live.location);
            let is_meant = match location {
                Some(Location::Due(due)) => state == if due <= now { "ready" } else { "scheduled" },
                Some(Location::Dead) => state == "dead",
                _ => false,
            };
            if seen.jobs[id].is_some() && view.jobs[id].is_none() != is_meant {
                return Err(format!(
                    "a purge of `{state}` {} {}",
                    if is_meant { "leaves" } else { "removes" },
                    name
                ));
            }
            if is_meant {
                removed += 1;
                world.replace(id, 0);
            }
        }
        let expected = Reply::Array(vec![Reply::Int(removed), Reply::Int(0)]);
        if *reply != expected {
            Err(format!("{removed} jobs are removed, the answer is {reply:?}"))
        } else {
            Ok(())
        }
    }
}

/// Follows a pop that handed a job out.
fn hand_out(
    scene: &Scene,
    world: &mut World,
    (nonce, set, until): (u8, Set, Option<u8>),
    id: usize,
    live: &Live,
    (ends, ready): (i64, i64),
    consumer: i64,
) -> Result<(), Broken> {
    let (name, now) = (IDS[id], world.now_ms());
    let (number, life) = (world.stored.lives[id], world.life(world.stored.lives[id]));
    if world.stored.unpopped >> nonce & 1 == 1 {
        return Err(format!("a pop that was taken back hands out {name}"));
    }
    if until_us(until).is_some_and(|us| us < now * 1000) {
        return Err(format!("{name} is handed out to a caller that has given up"));
    }
    if world.stored.outs[id].as_ref().is_some_and(|out| out.end.is_none() && out.until > now) {
        return Err(format!("{name} is handed out while another consumer has it"));
    }
    if ready < world.stored.earliest[usize::from(number)]
        || ends < ready + lease_ms(scene)
        || live.set != set
    {
        return Err(format!(
            "{name} is handed out before its time, for too short, or to a consumer of another queue"
        ));
    }
    if world.is_over(life) {
        return Err(format!("{name} is handed out after its cancel was told to be definite"));
    }
    let attempt = live.state.as_ref().map_or(0, |state| state.attempt);
    world.claims[life] += 1;
    if attempt != u32::from(world.claims[life]) && !world.is_rolled() {
        return Err(format!("hand-out {} of {name} is attempt {attempt}", world.claims[life]));
    }
    world.published[life] = world.published[life].max(u8::try_from(attempt).unwrap_or(u8::MAX));
    world.stored.outs[id] =
        Some(Out { nonce, consumer, until: ends, ready, is_early: ready > now, end: None });
    Ok(())
}

/// Follows a lease that ends so, or lasts longer.
fn end_lease(world: &mut World, word: Word, hand: &Hand) {
    let (id, now) = (usize::from(hand.id), world.now_ms());
    let (is_first, earliest) =
        (hand.step == 0, &mut world.stored.earliest[usize::from(hand.number)]);
    let end = match word {
        Word::Finish | Word::Drop => {
            world.replace(id, 0);
            world.stored.finished[id] = (word == Word::Finish).then_some(hand.set);
            return;
        }
        Word::Bury => {
            world.stored.outs[id] = None;
            return;
        }
        Word::Touch => None,
        Word::Fail if is_first => {
            *earliest = now + SPAN;
            Some(End::Failed)
        }
        Word::Fail => Some(End::Dead),
        Word::Release(wait_ms) => {
            *earliest = now + wait_ms;
            Some(End::Released)
        }
    };
    if let Some(out) = &mut world.stored.outs[id] {
        out.end = end;
        if word == Word::Touch {
            // Rounded up.
            out.until = now + SPAN + 1;
        }
    }
}

/// The job is at the location of the verdict, and its step is that of the lease action.
fn check_place(
    word: Word,
    hand: &Hand,
    verdict: &str,
    (seen, view): (&View, &View),
    ms: Option<i64>,
) -> Result<(), Broken> {
    let id = usize::from(hand.id);
    let (was, is) = (seen.jobs[id].as_ref(), view.jobs[id].as_ref());
    let location = is.map(|live| live.location);
    let fits = match verdict {
        "finished" | "dropped" | "fired" => location.is_none() && ms.is_none(),
        "not_found" => is.is_none_or(|live| live.set != hand.set) && ms.is_none(),
        "dead" => location == Some(Location::Dead) && ms.is_none(),
        "failed" | "released" => ms.is_some_and(|ms| location == Some(Location::Due(ms))),
        "touched" => ms.is_some_and(|ms| location == Some(Location::Held(ms))),
        _ => true,
    };
    if !fits {
        return Err(format!(
            "{} of {} answers `{verdict}` at {ms:?}, and it is {location:?}",
            word.verb(),
            IDS[id]
        ));
    }
    let step = |live: Option<&Live>| {
        live.and_then(|live| live.state.as_ref()).map_or(0, |state| state.step)
    };
    let is_held = was.is_some_and(|live| matches!(live.location, Location::Held(_)));
    if is_held
        && verdict != "stale"
        && is.is_some()
        && step(is) != step(was) + u16::from(verdict == "failed")
    {
        return Err(format!(
            "{} of {} leaves step {} from {}",
            word.verb(),
            IDS[id],
            step(is),
            step(was)
        ));
    }
    Ok(())
}
