//! Faults of an instance of Dwell.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::{DwellServer, ServerError};
use rand::RngExt;
use rand::rngs::StdRng;

use super::in_flight::let_it_be_seen;
use super::{Done, Injection, Outcome, both, start, within};
use crate::chaos::history::Only;
use crate::chaos::system::{Error, SPARE_BROKER, System};

/// The time beyond its lease that an instance is frozen.
const EXTRA_FREEZE: Duration = Duration::from_secs(2);

/// The longest time until an instance serves a broker that it can reach.
const SERVE_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

fn any(system: &System, rng: &mut StdRng) -> usize {
    rng.random_range(0..system.instances.len())
}

/// An instance that may be killed. With several instances the first one lives for the whole run, so
/// that its memory shows leaks.
fn mortal(system: &System, rng: &mut StdRng) -> usize {
    let count = system.instances.len();
    if count < 2 { 0 } else { rng.random_range(1..count) }
}

/// Records an instance that ended by itself during its start, although it is started again.
fn noted(
    system: &System,
    number: usize,
    started: Result<(), ServerError>,
) -> Result<(), ServerError> {
    if let Err(error @ ServerError::Ended { .. }) = &started {
        system.note(format!("dwell-{number}: {error}"));
    }
    started
}

pub(super) async fn kill(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let number = mortal(system, rng);
    let mut server = system.instances[number].server.lock().await;
    system.note_end(number, &mut server);
    let frozen = server.freeze().map_err(Error::from);
    let_it_be_seen().await;
    let killed = frozen.and(server.kill().map_err(Error::from));
    clock::sleep(hold).await;
    let started = start(async || noted(system, number, server.restart().await)).await;
    both(killed, started)?;
    Ok(format!("dwell-{number}").into())
}

pub(super) async fn freeze(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let number = any(system, rng);
    let hold = hold.max(system.options().lease() + EXTRA_FREEZE);
    let mut server = system.instances[number].server.lock().await;
    system.note_end(number, &mut server);
    server.freeze()?;
    clock::sleep(hold).await;
    server.thaw()?;
    Ok(format!("dwell-{number}, for {} s", hold.as_secs()).into())
}

pub(super) async fn term(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let number = mortal(system, rng);
    let mut server = system.instances[number].server.lock().await;
    system.note_end(number, &mut server);
    let began = clock::now();
    let ended = server.stop().await.map_err(Error::from);
    let took = began.elapsed();
    clock::sleep(hold).await;
    let started = start(async || noted(system, number, server.restart().await)).await;
    match both(ended, started)? {
        Some(status) if !status.success() => {
            Err(Error::Unexpected(format!("dwell-{number} ended with {status} after SIGTERM")))
        }
        _ => Ok(format!("dwell-{number}, which ended within {} ms", took.as_millis()).into()),
    }
}

/// The instance serves the reachable broker at once, and the other one once it is reachable.
pub(super) async fn start_without_broker(
    Injection { system, rng, hold }: Injection<'_>,
) -> Outcome {
    let number = mortal(system, rng);
    let mut server = system.instances[number].server.lock().await;
    system.note_end(number, &mut server);
    let away = super::network::refused(&system.broker.spare);
    let started = async {
        server.stop().await?;
        noted(system, number, server.restart().await)?;
        let from_us = clock::wall_us();
        says(&server, "dwell_publish_total{broker=\"main\",outcome=\"confirmed\"}", |count| {
            count > 0
        })
        .await?;
        says(&server, &connected(), |is| is == 0).await?;
        clock::sleep(hold).await;
        Ok(from_us)
    };
    let started = started.await;
    drop(away);
    let healed_us = clock::wall_us();
    let failed = started.is_err();
    let healed = async {
        if failed {
            start(async || noted(system, number, server.restart().await)).await?;
        }
        says(&server, &connected(), |is| is == 1).await
    };
    let from_us = both(started, healed.await)?;
    let done = Done::healed_beside(
        format!("dwell-{number}, without the broker {SPARE_BROKER}"),
        from_us,
        Only::Broker(SPARE_BROKER.to_owned()),
    );
    Ok(Done { healed_us: Some(healed_us), ..done })
}

fn connected() -> String {
    format!("dwell_broker_connected{{broker=\"{SPARE_BROKER}\"}}")
}

/// Waits until the value of this series satisfies the condition.
async fn says(server: &DwellServer, series: &str, is: impl Fn(u64) -> bool) -> Result<(), Error> {
    let said = async {
        loop {
            let metrics = server.metrics().await.unwrap_or_default();
            let value =
                metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
            if value.is_some_and(&is) {
                return Ok(());
            }
            clock::sleep(CHECK_INTERVAL).await;
        }
    };
    within(SERVE_TIMEOUT, format!("`{series}` did not reach the expected value"), said).await
}
