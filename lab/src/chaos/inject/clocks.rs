//! Faults of wall clocks.

use std::time::Duration;

use dwell::clock;
use rand::RngExt;

use super::{Done, Injection, Outcome, held};
use crate::chaos::system::{Error, HostClock, open};
use crate::chaos::wait::until;

/// µs per second.
const US_PER_SECOND: i64 = 1_000_000;
/// The longest time until a jump takes effect.
const EFFECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The jump of the clock of the instances, s.
const INSTANCE_JUMP_S: i64 = 3600;

/// A jump forward or back, and then the return.
pub(super) async fn of_instances(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let seconds = if rng.random() { INSTANCE_JUMP_S } else { -INSTANCE_JUMP_S };
    jump(&system.clock, seconds, hold, async || {
        for instance in &system.instances {
            let pid = instance.server.lock().await.pid();
            system.clock.is_in(pid)?;
        }
        system.clock.step_us().await
    })
    .await
}

/// A shorter jump: jobs due meanwhile are early or late.
pub(super) async fn of_redis(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let seconds = crate::chaos::fault::REDIS_CLOCK_JUMP.as_secs().cast_signed();
    let seconds = if rng.random() { seconds } else { -seconds };
    jump(&system.redis.clock, seconds, hold, async || {
        let servers = system.redis.servers.lock().await;
        let mut connection = open(&servers.all()[0]).await?;
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut connection).await?;
        Ok(seconds * 1_000_000 + micros - clock::wall_us())
    })
    .await
}

/// `step_us`: the observed error of the clock.
async fn jump(
    host: &HostClock,
    seconds: i64,
    hold: Duration,
    step_us: impl AsyncFn() -> Result<i64, Error>,
) -> Outcome {
    let wrong = async {
        host.set(seconds)?;
        let missed = format!("no jump of the clock by {seconds:+} s was observed");
        // Within a second and a half.
        until(EFFECT_TIMEOUT, missed, async || {
            Ok((step_us().await? - seconds * US_PER_SECOND).abs() <= US_PER_SECOND * 3 / 2)
        })
        .await
    };
    held(hold, wrong.await, async { host.set(0) }).await?;
    let clock_step_us = Some(seconds * US_PER_SECOND);
    Ok(Done { clock_step_us, ..Done::healed(format!("{seconds:+} s")) })
}
