//! The rules of every state, and of each publication.

use crate::call::IDS;
use crate::runner::{Broken, Runner};
use crate::view::Location;
use crate::world::{Token, World};

impl Runner {
    /// Checks a state. That each live job is in one place was checked when its store was numbered.
    pub(crate) fn check(&mut self, world: &World) -> Result<(), Broken> {
        let view = self.view(world.stored.store);
        for (id, live) in view.jobs.iter().enumerate() {
            let number = live.as_ref().map_or(0, |live| live.generation[7]);
            let expected = world.stored.lives[id];
            if number != expected {
                return Err(format!(
                    "schedule {expected} of {} must be there, {number} is (0: none)",
                    IDS[id]
                ));
            }
        }
        for live in view.jobs.iter().flatten() {
            let earliest = world.stored.earliest[usize::from(live.generation[7])];
            if matches!(live.location, Location::Due(due) if due < earliest) {
                return Err(format!(
                    "schedule {} is {:?}, before its time {earliest}",
                    live.generation[7], live.location
                ));
            }
        }
        for lease in &view.leases {
            let lent = world
                .stored
                .lent
                .iter()
                .find(|(name, _)| *name == lease.name)
                .ok_or("a lease that nobody wrote")?;
            for ((id, has_left), number) in lease.jobs.iter().zip(&lent.1) {
                let live = world.stored.lives[usize::from(*id)];
                if !has_left && live != *number {
                    return Err(format!(
                        "a lease stands for schedule {number} of {}, the job is {live}",
                        IDS[usize::from(*id)]
                    ));
                }
            }
        }
        self.classify(world.stored.store, &world.moment(None))
    }
}

/// Checks a publication, and follows with the ghosts.
pub(crate) fn publish(world: &mut World, token: &Token) -> Result<(), Broken> {
    let id = IDS[usize::from(token.id)];
    let life = world.life(token.number);
    let attempt = u8::try_from(token.state().in_flight().attempt).unwrap_or(u8::MAX);
    let last = world.published[life];
    if world.is_over(life) {
        return Err(format!("{id} is published after its cancel was told to be definite"));
    }
    if world.now_ms() < token.earliest {
        return Err(format!("{id} is published before its time"));
    }
    if attempt <= last && !world.is_rolled() {
        return Err(format!("attempt {attempt} of {id} is published after attempt {last}"));
    }
    if world.claims[life] > 0 && attempt > world.claims[life] && !world.is_rolled() {
        return Err(format!(
            "attempt {attempt} of {id} is only its claim number {}",
            world.claims[life]
        ));
    }
    world.published[life] = last.max(attempt);
    Ok(())
}
