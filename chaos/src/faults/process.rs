//! What happens to an instance of Dwell.

use std::time::Duration;

use dwell::clock;
use dwell::servers::ServerError;
use rand::RngExt;
use rand::rngs::StdRng;

use super::{both, start};
use crate::fault::watch::let_it_be_seen;
use crate::world::{Error, World};

/// How much longer than its lease an instance sleeps.
const OVERSLEPT: Duration = Duration::from_secs(2);

fn any(world: &World, rng: &mut StdRng) -> usize {
    rng.random_range(0..world.instances.len())
}

/// The first instance lives from the beginning to the end, where there are others: its memory is what tells of leaks.
fn mortal(world: &World, rng: &mut StdRng) -> usize {
    let count = world.instances.len();
    if count < 2 { 0 } else { rng.random_range(1..count) }
}

/// One that ends while it starts did so by itself, though it is started again.
fn noted(world: &World, number: usize, started: Result<(), ServerError>) -> Result<(), ServerError> {
    if let Err(error @ ServerError::Ended { .. }) = &started {
        world.note(format!("dwell-{number}: {error}"));
    }
    started
}

pub(super) async fn kill(world: &World, rng: &mut StdRng, hold: Duration) -> Result<String, Error> {
    let number = mortal(world, rng);
    let mut server = world.instances[number].server.lock().await;
    world.note_end(number, &mut server);
    let frozen = server.freeze().map_err(Error::from);
    let_it_be_seen().await;
    let killed = frozen.and(server.kill().map_err(Error::from));
    clock::sleep(hold).await;
    let started = start(async || noted(world, number, server.restart().await)).await;
    both(killed, started)?;
    Ok(format!("dwell-{number}"))
}

pub(super) async fn freeze(world: &World, rng: &mut StdRng, hold: Duration) -> Result<String, Error> {
    let number = any(world, rng);
    let hold = hold.max(world.options().lease() + OVERSLEPT);
    let mut server = world.instances[number].server.lock().await;
    world.note_end(number, &mut server);
    server.freeze()?;
    clock::sleep(hold).await;
    server.thaw()?;
    Ok(format!("dwell-{number}, for {} s", hold.as_secs()))
}

pub(super) async fn term(world: &World, rng: &mut StdRng, hold: Duration) -> Result<String, Error> {
    let number = mortal(world, rng);
    let mut server = world.instances[number].server.lock().await;
    world.note_end(number, &mut server);
    let began = clock::now();
    let ended = server.stop().await.map_err(Error::from);
    let took = began.elapsed();
    clock::sleep(hold).await;
    let started = start(async || noted(world, number, server.restart().await)).await;
    match both(ended, started)? {
        Some(status) if !status.success() => Err(Error::Course(format!("dwell-{number} ended with {status} after SIGTERM"))),
        _ => Ok(format!("dwell-{number}, which ended within {} ms", took.as_millis())),
    }
}
