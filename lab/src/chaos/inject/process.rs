//! Faults of an instance of Dwell.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::{DwellServer, ServerError};
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::process::Signal;

use super::in_flight::let_it_be_seen;
use super::{Done, Injection, Outcome, back, both};
use crate::chaos::history::Only;
use crate::chaos::system::{Error, SPARE_BROKER, System, lease};
use crate::chaos::wait::until;

/// The time beyond its lease that an instance is frozen.
const EXTRA_FREEZE: Duration = Duration::from_secs(2);

/// The longest time until an instance serves a broker that it can reach.
const SERVE_TIMEOUT: Duration = Duration::from_secs(30);

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

/// Ends an instance, by SIGKILL or by SIGTERM, and starts it again.
pub(super) async fn end(Injection { system, rng, hold }: Injection<'_>, by: Signal) -> Outcome {
    let number = mortal(system, rng);
    let mut server = system.instances[number].server.lock().await;
    system.note_end(number, &mut server);
    let began = clock::now();
    let ended = if by == Signal::KILL {
        let frozen = server.freeze();
        let_it_be_seen().await;
        frozen.and(server.kill()).map(|()| None)
    } else {
        server.stop().await
    };
    let took_ms = began.elapsed().as_millis();
    match back(hold, ended, async || noted(system, number, server.restart().await)).await? {
        Some(status) if !status.success() => {
            Err(Error::Unexpected(format!("dwell-{number} ended with {status} after SIGTERM")))
        }
        _ => Ok(Done::new(format!("dwell-{number}, which ended within {took_ms} ms"))),
    }
}

pub(super) async fn freeze(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let number = rng.random_range(0..system.instances.len());
    let hold = hold.max(lease() + EXTRA_FREEZE);
    let mut server = system.instances[number].server.lock().await;
    system.note_end(number, &mut server);
    server.freeze()?;
    clock::sleep(hold).await;
    server.thaw()?;
    Ok(Done::new(format!("dwell-{number}, for {} s", hold.as_secs())))
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
        let confirmed = "dwell_publish_total{broker=\"main\",outcome=\"confirmed\"}";
        says(&server, confirmed, |count| count > 0).await?;
        says(&server, &connected(), |is| is == 0).await?;
        clock::sleep(hold).await;
        Ok(from_us)
    };
    let started = started.await;
    drop(away);
    let healed_us = clock::wall_us();
    if started.is_err() {
        let restart = async || noted(system, number, server.restart().await);
        back(Duration::ZERO, Ok(()), restart).await?;
    }
    let healed = says(&server, &connected(), |is| is == 1).await;
    let from_us = both(started, healed)?;
    let detail = format!("dwell-{number}, without the broker {SPARE_BROKER}");
    let done = Done::healed_beside(detail, from_us, Only::Broker(SPARE_BROKER.to_owned()));
    Ok(Done { healed_us: Some(healed_us), ..done })
}

fn connected() -> String {
    format!("dwell_broker_connected{{broker=\"{SPARE_BROKER}\"}}")
}

/// Waits until the value of this series satisfies the condition.
async fn says(server: &DwellServer, series: &str, is: impl Fn(u64) -> bool) -> Result<(), Error> {
    let missed = format!("`{series}` did not reach the expected value");
    until(SERVE_TIMEOUT, missed, async || {
        let metrics = server.metrics().await.unwrap_or_default();
        let mut values = metrics.lines().filter_map(|line| line.strip_prefix(series));
        Ok(values.find_map(|value| value.trim().parse().ok()).is_some_and(&is))
    })
    .await
}
