//! Carries out a call in a world, follows with the ghosts, and checks the effects of the call.

use std::rc::Rc;

use dwell_store::job::DeadReason;
use dwell_store::store::record::StateRecord;
use dwell_store::store::scripts::Name;

use crate::call::{Call, IDS, Set, Sets, eight, keys};
use crate::door::{door_call, follow_door};
use crate::fetch::{pop_call, word_call};
use crate::hand::Hand;
use crate::redis::Moment;
use crate::reply::Reply;
use crate::runner::{Broken, Runner};
use crate::scene::Scene;
use crate::taken::{Taken, taken};
use crate::view::{ClaimName, View};
use crate::world::{How, Op, Phase, SPAN, Stored, Token, World};

/// The number of a generation.
fn number_of(generation: [u8; 8]) -> u8 {
    generation[7]
}

/// The world after a call, and the jobs that it answered.
pub(crate) struct Applied {
    pub(crate) world: World,
    pub(crate) taken: Vec<Token>,
    pub(crate) popped: Vec<Hand>,
}

impl Runner {
    /// Carries out a call.
    pub(crate) fn apply(
        &mut self,
        scene: &Scene,
        world: &World,
        op: &Op,
    ) -> Result<Applied, Broken> {
        let mut world = world.clone();
        let before = world.stored.clone();
        let seen = self.view(before.store);
        let call = self.call_of(scene, &world, op, &seen);
        let moment = world.moment(Some(op));
        let (after, reply) = self.run(before.store, &moment, call)?;
        let after = self.forget(after, &moment)?;
        world.stored.store = after;
        let (mut taken, mut popped) = (Vec::new(), Vec::new());
        match op {
            Op::Claim { .. } | Op::Rescue { .. } => {
                taken = self.follow_claim(scene, &mut world, op, &seen, &reply)?
            }
            Op::Settle { how, tokens } => {
                follow_settle(&mut world, *how, tokens, &before, &seen, &reply)?
            }
            Op::Door { again: true, .. } => {
                let jobs = |store: u32| self.store(store).without(|key| key.ends_with(b":applied"));
                if jobs(before.store) != jobs(after) {
                    return Err("a message that came again changes something".to_owned());
                }
            }
            Op::Door { index, .. } => follow_door(scene, &mut world, *index, &seen, &reply)?,
            Op::Pop { .. } => popped = self.follow_pop(scene, &mut world, op, &seen, &reply)?,
            Op::Unpop { nonce, is_early, ids, .. } => {
                self.follow_unpop(&mut world, (*nonce, *is_early, ids), &seen, &reply)?
            }
            Op::Word { word, hands } => {
                self.follow_word(&mut world, *word, hands, &seen, &reply)?
            }
            Op::Purge(state) => self.follow_purge(&mut world, state, &seen, &reply)?,
            Op::Reclaim { .. } | Op::Sweep => {}
        }
        let view = self.view(after);
        world.stored.lent.retain(|(name, _)| view.lease(*name).is_some());
        let is_gated = matches!(op, Op::Door { .. } | Op::Word { .. });
        if is_gated {
            world.history.clear();
        } else if scene.budget.failovers > 0 && world.stored != before {
            world.history.push(before);
            let more = world.history.len().saturating_sub(2);
            world.history.drain(..more);
        }
        Ok(Applied { world, taken, popped })
    }

    /// Forgets each queue as soon as it has no job in a set: a call that puts a job back must make
    /// the queue known.
    fn forget(&mut self, store: u32, moment: &Moment) -> Result<u32, Broken> {
        let mut after = store;
        for set in [Set::Queue, Set::OtherQueue] {
            if self
                .store(after)
                .hash(keys().queues(0).as_bytes())?
                .is_some_and(|known| known.contains_key(set.name().as_bytes()))
            {
                after = self
                    .run(after, moment, Call::of(Name::Forget, Vec::new()).on(Sets::Of(set)))?
                    .0;
            }
        }
        Ok(after)
    }

    fn call_of(&self, scene: &Scene, world: &World, op: &Op, seen: &View) -> Call {
        match op {
            Op::Claim { nonce, most, ahead_ms } => Call::claim(*nonce, SPAN, *most, *ahead_ms),
            Op::Rescue { nonce, most } => Call::rescue(*nonce, SPAN, *most),
            Op::Reclaim { nonce } => Call::reclaim(*nonce),
            Op::Settle { how, tokens } => settle_call(*how, tokens),
            Op::Door { index, again } => door_call(scene, world, *index, *again, seen),
            Op::Sweep => Call::sweep(),
            Op::Pop { nonce, set, most, until, ahead_ms } => {
                pop_call(scene, *nonce, *set, (*until, *ahead_ms), *most)
            }
            Op::Unpop { nonce, is_early, set, ids } => Call::unpop(*nonce, *is_early, *set, ids),
            Op::Word { word, hands } => word_call(*word, hands),
            Op::Purge(state) => Call::purge(Set::Queue, state),
        }
    }

    /// A claim or a rescue call answers its claim, and writes no second one.
    fn follow_claim(
        &self,
        scene: &Scene,
        world: &mut World,
        op: &Op,
        seen: &View,
        reply: &Rc<Reply>,
    ) -> Result<Vec<Token>, Broken> {
        let (Op::Claim { nonce, .. } | Op::Rescue { nonce, .. }) = op else {
            return Ok(Vec::new());
        };
        let nonce = eight(*nonce);
        let jobs = taken(nonce, reply)?;
        let name: ClaimName = (nonce, reply.items()[7].bytes().try_into().unwrap_or_default());
        let view = self.view(world.stored.store);
        if let Some(lease) = view.lease(name).filter(|_| seen.lease(name).is_none()) {
            if seen.leases.iter().any(|other| other.name.0 == nonce) {
                return Err("a claim wrote over the lease of its nonce".to_owned());
            }
            let generation = |id: &u8| {
                seen.jobs[usize::from(*id)].as_ref().map_or(0, |job| number_of(job.generation))
            };
            let numbers: Vec<u8> = lease.jobs.iter().map(|(id, _)| generation(id)).collect();
            if matches!(op, Op::Claim { .. }) && scene.held {
                numbers.iter().for_each(|number| world.claims[world.life(*number)] += 1);
            }
            world.stored.lent.push((name, numbers));
            world.stored.lent.sort();
        }
        let is_claim = matches!(op, Op::Claim { .. });
        let mut tokens = Vec::new();
        for Taken { lease, position, id, set, has_state, mut state, due } in jobs {
            let place = view.lease(name).and_then(|lease| lease.jobs.get(usize::from(position)));
            if place != Some(&(id, false)) {
                return Err(format!(
                    "a claim answered {}, which has left its lease or was never there",
                    IDS[usize::from(id)]
                ));
            }
            if !is_claim && !state.held && !state.counted {
                state.crashes = state.crashes.saturating_add(1);
            }
            tokens.push(Token {
                lease,
                position,
                id,
                set,
                has_state,
                number: number_of(state.generation),
                earliest: world
                    .stored
                    .earliest
                    .get(usize::from(number_of(state.generation)))
                    .copied()
                    .unwrap_or(i64::MAX),
                state: state.encode().into(),
                ready: if is_claim { due } else { 0 },
                deadline: world.now_ms() + SPAN,
                phase: if is_claim { Phase::Claimed } else { Phase::Rescued },
            });
        }
        Ok(tokens)
    }
}

/// The arguments as `store/jobs/settle.rs` builds them.
pub(crate) fn settle_call(how: How, tokens: &[Token]) -> Call {
    let lease = tokens[0].lease;
    if how == How::Complete {
        let jobs: Vec<_> = tokens
            .iter()
            .map(|token| (token.id, token.position, token.has_state, token.state()))
            .collect();
        return Call::complete(lease, &jobs);
    }
    let idle = |token: &Token, unpublished| {
        let state = if unpublished { token.state() } else { token.state().in_flight() };
        StateRecord { held: false, counted: false, ..state }
    };
    let jobs = tokens.iter().map(|token| {
        let (time, state) = match how {
            How::Hold => (
                format!("+{SPAN}"),
                Some(StateRecord { held: true, crashes: 0, ..token.state().in_flight() }),
            ),
            How::Release { pause_ms, unpublished } => {
                let mut state = idle(token, unpublished);
                if unpublished {
                    state.crashes = 0;
                }
                match (state.attempt, pause_ms) {
                    (0, 0) if !token.has_state => (format!("={}", state.due_ms), None),
                    (0, _) => (format!(">{} {pause_ms}", state.due_ms), Some(state)),
                    _ => (format!("+{pause_ms}"), Some(state)),
                }
            }
            How::Retry | How::Again | How::Die => {
                let state = idle(token, false);
                let reason =
                    state.reason.or((how == How::Die).then_some(DeadReason::RetriesExhausted));
                let step = if reason.is_none() { state.step.saturating_add(1) } else { state.step };
                let wait = if how == How::Retry { SPAN } else { 0 };
                (format!("+{wait}"), Some(StateRecord { crashes: 0, reason, step, ..state }))
            }
            How::Bury | How::Complete => {
                let state = idle(token, false);
                let reason = state.reason.or(Some(DeadReason::Invalid));
                ("+0".to_owned(), Some(StateRecord { reason, crashes: 0, ..state }))
            }
        };
        (token.id, token.position, time, state)
    });
    let name = match how {
        How::Hold => Name::Hold,
        How::Release { .. } => Name::Release,
        How::Retry | How::Again | How::Die => Name::Retry,
        How::Bury | How::Complete => Name::Bury,
    };
    let sets = if name == Name::Hold { Set::Main } else { tokens[0].set };
    Call::settle(name, lease, &jobs.collect::<Vec<_>>()).on(Sets::Of(sets))
}

/// A settle changes the schedule that it published, or nothing.
fn follow_settle(
    world: &mut World,
    how: How,
    tokens: &[Token],
    before: &Stored,
    seen: &View,
    reply: &Reply,
) -> Result<(), Broken> {
    let mut done = 0;
    for (token, answer) in tokens.iter().zip(reply.items()) {
        let id = IDS[usize::from(token.id)];
        let is_out = seen
            .lease(token.lease)
            .is_some_and(|lease| lease.jobs[usize::from(token.position)] == (token.id, false));
        if is_out != (answer.text() == "done") {
            return Err(format!(
                "a settle of {id} answers {}, and its lease {}",
                answer.text(),
                if is_out { "has it" } else { "has it not" }
            ));
        }
        if !is_out {
            continue;
        }
        done += 1;
        if before.lives[usize::from(token.id)] != token.number {
            return Err(format!(
                "{how:?} of schedule {} of {id} acts on {}",
                token.number,
                before.lives[usize::from(token.id)]
            ));
        }
        match how {
            How::Complete => {
                world.replace(usize::from(token.id), 0);
                world.stored.finished[usize::from(token.id)] = Some(Set::Main);
            }
            How::Retry => world.stored.earliest[usize::from(token.number)] = world.now_ms() + SPAN,
            _ => {}
        }
    }
    if done == 0 && world.stored.store != before.store {
        return Err("a settle that answers that the lease is lost changes something".to_owned());
    }
    Ok(())
}
