//! What happens to wall clocks.

use std::time::Duration;

use dwell::clock;
use rand::RngExt;
use rand::rngs::StdRng;

use super::both;
use crate::world::{Error, HostClock, World};

/// By how much the clock of the instances jumps, s.
const INSTANCES: i64 = 3600;

/// Forward or back, and then back again.
pub(super) async fn of_instances(world: &World, rng: &mut StdRng, hold: Duration) -> Result<String, Error> {
    jump(&world.clock, if rng.random() { INSTANCES } else { -INSTANCES }, hold).await
}

/// By less: what is due in that time comes early, or late.
pub(super) async fn of_redis(world: &World, rng: &mut StdRng, hold: Duration) -> Result<String, Error> {
    let seconds = crate::fault::REDIS_CLOCK_JUMP.as_secs().cast_signed();
    jump(&world.redis.clock, if rng.random() { seconds } else { -seconds }, hold).await
}

async fn jump(host: &HostClock, seconds: i64, hold: Duration) -> Result<String, Error> {
    let wrong = host.set(seconds);
    if wrong.is_ok() {
        clock::sleep(hold).await;
    }
    both(wrong, host.set(0))?;
    Ok(format!("{seconds:+} s"))
}
