//! All possible next steps.

use crate::apply::Applied;
use crate::call::Set;
use crate::check::publish;
use crate::hand::Hand;
use crate::runner::{Broken, Runner};
use crate::scene::Scene;
use crate::view::Location;
use crate::world::{How, Op, Phase, SPAN, TICK, Token, World};

/// A step in words: the actor, the action, the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) who: &'static str,
    pub(crate) what: &'static str,
    pub(crate) which: &'static str,
}

/// The steps from one world.
pub(crate) struct Steps<'a> {
    pub(crate) runner: &'a mut Runner,
    pub(crate) scene: &'a Scene,
    pub(crate) world: &'a World,
    pub(crate) found: Vec<(Label, World)>,
}

pub(crate) type Outcome = Result<(), (Label, Broken)>;

pub(crate) fn label(who: &'static str, what: &'static str, which: &'static str) -> Label {
    Label { who, what, which }
}

/// Every step from this world; or the step that breaks a rule.
pub(crate) fn steps(
    runner: &mut Runner,
    scene: &Scene,
    world: &World,
) -> Result<Vec<(Label, World)>, (Label, Broken)> {
    let mut steps = Steps { runner, scene, world, found: Vec::new() };
    steps.of_the_world()?;
    steps.of_the_doors()?;
    // Both instances are alike: the second begins only while the first is busy.
    for owner in 0..2 {
        steps.of_an_owner(owner)?;
    }
    for consumer in 0..2 {
        steps.of_a_consumer(consumer)?;
    }
    Ok(steps.found)
}

impl Steps<'_> {
    fn apply(&mut self, label: Label, world: &World, op: &Op) -> Result<Applied, (Label, Broken)> {
        self.runner.apply(self.scene, world, op).map_err(|why| (label, why))
    }

    /// A call is carried out; or carried out, and once more at any later time.
    fn call(
        &mut self,
        label: Label,
        world: &World,
        op: &Op,
        then: impl Fn(&mut World, &[Token]),
    ) -> Outcome {
        let Applied { world: mut after, taken, .. } = self.apply(label, world, op)?;
        then(&mut after, &taken);
        self.carried_out(label, after, op);
        Ok(())
    }

    /// Carries out a call of a consumer in the same way.
    pub(crate) fn say(
        &mut self,
        label: Label,
        world: &World,
        op: &Op,
        then: impl Fn(&mut World, &[Hand]),
    ) -> Outcome {
        let Applied { world: mut after, popped, .. } = self.apply(label, world, op)?;
        then(&mut after, &popped);
        self.carried_out(label, after, op);
        Ok(())
    }

    fn carried_out(&mut self, label: Label, after: World, op: &Op) {
        if after.later.is_none() && after.budget.repeats > 0 {
            let mut again = after.clone();
            again.budget.repeats -= 1;
            again.later = Some(op.clone());
            self.found.push((label, again));
        }
        self.found.push((label, after));
    }

    fn of_the_world(&mut self) -> Outcome {
        let world = self.world;
        if let Some(op) = &world.later {
            let what = match op {
                Op::Claim { .. } => "the claim arrives once more",
                Op::Rescue { .. } => "the rescue arrives once more",
                Op::Reclaim { .. } => "the reclaim arrives once more",
                Op::Settle { .. } => "the settle arrives once more",
                Op::Door { .. } => "the message arrives once more",
                Op::Sweep => "the sweep arrives once more",
                Op::Pop { .. } => "the pop arrives once more",
                Op::Unpop { .. } => "the taking back arrives once more",
                Op::Word { .. } => "the word arrives once more",
                Op::Purge(_) => "the purge arrives once more",
            };
            let label = label("", what, "");
            // After a failover another hand-out may have the attempt that a `fail` names.
            let is_fail = |index: u8| {
                matches!(self.scene.doors[usize::from(index)], crate::scene::Door::Fail(_))
            };
            let is_lost =
                world.is_rolled() && matches!(op, Op::Door { index, .. } if is_fail(*index));
            let mut after =
                if is_lost { world.clone() } else { self.apply(label, world, op)?.world };
            after.later = None;
            self.found.push((label, after));
        }
        if world.budget.ticks > 0 {
            let mut after = world.clone();
            after.budget.ticks -= 1;
            after.tick += 1;
            self.found.push((label("", "time passes", ""), after));
        }
        if world.budget.sweeps > 0 && world.is_rolled() {
            let label = label("", "a sweep", "");
            let mut after = self.apply(label, world, &Op::Sweep)?.world;
            after.budget.sweeps -= 1;
            self.found.push((label, after));
        }
        if world.budget.purges > 0 {
            let mut purged = world.clone();
            purged.budget.purges -= 1;
            for state in ["ready", "scheduled", "dead"] {
                self.say(label("", "a purge of", state), &purged, &Op::Purge(state), |_, _| {})?;
            }
        }
        if world.budget.failovers > 0 {
            for old in &world.history {
                let mut after = world.clone();
                after.budget.failovers -= 1;
                (after.stored, after.history) = (old.clone(), Vec::new());
                after.failovers += 1;
                self.found.push((label("", "FAILOVER", ""), after));
            }
        }
        Ok(())
    }

    fn of_the_doors(&mut self) -> Outcome {
        for (index, door) in (0..).zip(self.scene.doors) {
            let id = usize::from(door.id());
            let is_unseen = self.world.published[self.world.life(self.world.stored.lives[id])] == 0;
            // A consumer fails only a job that it has seen.
            if self.world.used >> index & 1 == 1
                || matches!(door, crate::scene::Door::Fail(_)) && is_unseen
            {
                continue;
            }
            let label = label("", door.verb(), crate::call::IDS[id]);
            let mut after = self.apply(label, self.world, &Op::Door { index, again: false })?.world;
            after.used |= 1 << index;
            if after.budget.redeliveries > 0 && after.later.is_none() {
                let mut again = after.clone();
                again.budget.redeliveries -= 1;
                again.later = Some(Op::Door { index, again: true });
                self.found.push((label, again));
            }
            self.found.push((label, after));
        }
        Ok(())
    }

    fn of_an_owner(&mut self, owner: usize) -> Outcome {
        let who = ["A", "B"][owner];
        let world = self.world;
        let mine = &world.owners[owner];
        if mine.is_idle() {
            if (owner == 0 || !world.owners[0].is_idle()) && world.nonces < world.budget.claims {
                self.takes(owner, who)?;
            }
            return Ok(());
        }
        if let Some(nonce) = mine.lost {
            let then = |after: &mut World, _: &[Token]| after.owners[owner].lost = None;
            self.call(label(who, "reclaims", ""), world, &Op::Reclaim { nonce }, then)?;
        }
        for at in 0..mine.tokens.len() {
            self.goes_on(owner, who, at)?;
        }
        self.settles_both(owner, who)?;
        if world.budget.crashes > 0 {
            let mut after = world.clone();
            after.budget.crashes -= 1;
            after.owners[owner] = Default::default();
            self.found.push((label(who, "is killed", ""), after));
        }
        Ok(())
    }

    /// An instance that is equally far with two jobs settles both in one call.
    fn settles_both(&mut self, owner: usize, who: &'static str) -> Outcome {
        let tokens = &self.world.owners[owner].tokens;
        let [first, second] = &tokens[..] else { return Ok(()) };
        let how = match first.phase {
            Phase::Published if !self.scene.held => How::Complete,
            Phase::Published => How::Hold,
            Phase::Rescued if !tokens.iter().any(|token| token.state().held) => {
                How::Release { pause_ms: 0, unpublished: false }
            }
            Phase::Claimed | Phase::Rescued => return Ok(()),
        };
        if first.phase != second.phase {
            return Ok(());
        }
        let op = Op::Settle { how, tokens: tokens.clone() };
        self.call(label(who, "settles", "both"), self.world, &op, |after, _| {
            after.owners[owner].tokens.clear()
        })
    }

    /// An idle instance claims or rescues.
    fn takes(&mut self, owner: usize, who: &'static str) -> Outcome {
        let mut world = self.world.clone();
        let nonce = world.nonces;
        world.nonces += 1;
        let view = self.runner.view(world.stored.store);
        let now = world.now_ms();
        let takes =
            |after: &mut World, taken: &[Token]| after.owners[owner].tokens = taken.to_vec();
        let sizes: &[u8] = if self.scene.pieces { &[2, 1] } else { &[2] };
        let aheads: &[i64] = if self.scene.early { &[0, TICK] } else { &[0] };
        for ahead_ms in aheads {
            let count = view
                .jobs
                .iter()
                .flatten()
                .filter(|job| {
                    job.set == Set::Main
                        && matches!(job.location, Location::Due(due) if due <= now + ahead_ms)
                })
                .count();
            for most in sizes.iter().take(count) {
                let op = Op::Claim { nonce, most: *most, ahead_ms: *ahead_ms };
                self.call(label(who, "claims", ""), &world, &op, takes)?;
                if world.budget.losses > 0 {
                    let mut lost = world.clone();
                    lost.budget.losses -= 1;
                    lost.owners[owner].lost = Some(nonce);
                    self.call(label(who, "claims, the answer is lost", ""), &lost, &op, |_, _| {})?;
                    if lost.later.is_none() {
                        lost.later = Some(op);
                        self.found.push((label(who, "claims, the call is stuck", ""), lost));
                    }
                }
            }
        }
        if view.has_ended(now) {
            for most in sizes {
                self.call(
                    label(who, "rescues", ""),
                    &world,
                    &Op::Rescue { nonce, most: *most },
                    takes,
                )?;
            }
        }
        Ok(())
    }

    /// An instance goes on with one job.
    fn goes_on(&mut self, owner: usize, who: &'static str, at: usize) -> Outcome {
        let (world, scene) = (self.world, self.scene);
        let token = &world.owners[owner].tokens[at];
        let (now, which) = (world.now_ms(), crate::call::IDS[usize::from(token.id)]);
        let (state, mut ways) = (token.state(), Vec::new());
        match token.phase {
            Phase::Claimed => {
                if state.reason.is_some() {
                    ways.push(("buries", How::Bury));
                } else if now >= token.ready && now < token.deadline {
                    let label = label(who, "publishes", which);
                    let mut after = world.clone();
                    publish(&mut after, token).map_err(|why| (label, why))?;
                    after.owners[owner].tokens[at].phase = Phase::Published;
                    self.found.push((label, after));
                }
                if scene.early || now >= token.deadline {
                    ways.push((
                        "gives back",
                        How::Release { pause_ms: (token.ready - now).max(0), unpublished: true },
                    ));
                }
                if scene.refuses {
                    ways.push(("releases", How::Release { pause_ms: SPAN, unpublished: true }));
                }
            }
            Phase::Published => {
                ways.push(if scene.held {
                    ("holds", How::Hold)
                } else {
                    ("completes", How::Complete)
                });
                if scene.fails {
                    ways.extend([
                        ("retries", How::Retry),
                        ("buries", How::Bury),
                        ("gives up", How::Die),
                    ]);
                }
            }
            // As the rescue (store/src/maintenance/rescue.rs), with one wait.
            // Of a queue, by its `on_timeout`; the second time at the end of the retry array.
            Phase::Rescued if state.held && token.set.is_queue() && state.step > 0 => {
                ways.push(("buries", How::Bury))
            }
            Phase::Rescued if state.held && token.set.is_queue() && scene.again => {
                ways.push(("sends back", How::Again))
            }
            Phase::Rescued if state.held && state.step == 0 => ways.push(("retries", How::Retry)),
            Phase::Rescued if state.held => ways.push(("gives up", How::Die)),
            Phase::Rescued => {
                ways.push(("sends back", How::Release { pause_ms: 0, unpublished: false }))
            }
        }
        for (what, how) in ways {
            let op = Op::Settle { how, tokens: vec![token.clone()] };
            let then = |after: &mut World, _: &[Token]| drop(after.owners[owner].tokens.remove(at));
            self.call(label(who, what, which), world, &op, then)?;
        }
        Ok(())
    }
}
