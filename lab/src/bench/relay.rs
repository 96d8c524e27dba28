//! A bare relay: source to sink, confirmed and acknowledged. The rate of the connectors without
//! Dwell.

use std::collections::HashMap;
use std::time::Duration;

use dwell_connectors::{BatchId, BrokerConfig, Destination, Publication, Role, SourceOptions};
use tokio_util::sync::CancellationToken;

use super::fixture::Fixture;
use super::metric::{self, Run};
use super::round::RoundResult;
use super::{JOB_TARGET, Options, per_second};
use dwell::clock;
use dwell_testkit::environment::Result;
use dwell_testkit::environment::traffic::reading;

/// The queue that the relay reads.
const RELAY: &str = "bench.relay";
/// The in-flight window: that of `delivery.max_in_flight`.
const WINDOW_MESSAGES: usize = 1024;
/// Half of the window, so that one batch is read while another is in flight.
const BATCH_MESSAGES: usize = WINDOW_MESSAGES / 2;

/// The result of the relay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relayed {
    /// Messages a second, from the first arrival at the consumer to the last.
    pub(super) per_s: f64,
    /// The result of the messages.
    pub(super) result: RoundResult,
    /// CPU time of this process for one message, µs.
    pub(super) cpu_us: Option<f64>,
}

/// The relay alone, with this many messages.
///
/// # Errors
/// The servers or the connectors failed. Wrong messages are in the result.
pub async fn run(options: &Options, jobs: u64) -> Result<Run> {
    let mut fixture = Fixture::prepare(options).await?;
    let relayed = once(&mut fixture, jobs).await?;
    let mut run = Run { result: relayed.result, ..Run::default() };
    run.note(&metric::RELAY, relayed.per_s);
    run.note_known(&metric::RELAY_CPU, relayed.cpu_us);
    fixture.finish(run).await
}

/// Moves this many messages through the connectors of the instances.
pub(super) async fn once(fixture: &mut Fixture, jobs: u64) -> Result<Relayed> {
    fixture.environment.declare(&[RELAY], Role::Ingest).await?;
    fixture.new_round();
    fixture.send(RELAY, jobs, clock::wall_ms()).await?;
    fixture.say(&format!("{jobs} messages wait for the bare relay"));
    let stop = CancellationToken::new();
    let before = fixture.cost().await?;
    let relay = tokio::spawn(relay(fixture.environment.broker().clone(), stop.clone()));
    fixture.arrived(jobs).await?;
    let cost = fixture.cost().await?.since(&before);
    stop.cancel();
    relay.await.map_err(|error| format!("the relay failed: {error}"))??;
    let first = fixture.round.lock().first_us();
    let last = fixture.round.lock().last_us();
    let took_us = last.zip(first).map_or(0, |(last, first)| last - first);
    let result = fixture.result();
    let per_s = per_second(result.arrived, took_us);
    fixture.say(&format!("the bare relay moved them at {per_s:.0}/s"));
    let cpu_us = cost.generator_us.map(|us| us / jobs.max(1) as f64);
    Ok(Relayed { per_s, result, cpu_us })
}

/// Moves messages until told to stop. Acknowledges a batch once all of it is confirmed; never
/// retries.
async fn relay(broker: BrokerConfig, stop: CancellationToken) -> Result<()> {
    let options = SourceOptions {
        max_batch: BATCH_MESSAGES,
        max_batch_bytes: 4 << 20,
        max_unsettled: 4 * WINDOW_MESSAGES,
        ..reading(RELAY, "relay")
    };
    let source = broker.source(options).await?;
    let to = Destination::new(JOB_TARGET);
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(15)).await?;
    let mut open: HashMap<BatchId, usize> = HashMap::new();
    let mut in_flight = 0;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            batch = outcomes.recv() => {
                let Some(batch) = batch else { return Err("the relay's link was lost".into()) };
                in_flight -= batch.len();
                for (token, outcome) in batch {
                    if !outcome.is_confirmed() {
                        return Err(format!("the relay: {outcome:?}").into());
                    }
                    // The lower half of the token is the index within the batch.
                    let id = BatchId(token >> 32);
                    let Some(left) = open.get_mut(&id) else { continue };
                    *left -= 1;
                    if *left == 0 {
                        open.remove(&id);
                        source.ack(id).await?;
                    }
                }
            }
            batch = source.recv(), if in_flight + BATCH_MESSAGES <= WINDOW_MESSAGES => {
                let batch = batch?;
                open.insert(batch.id, batch.messages.len());
                in_flight += batch.messages.len();
                let publications = (batch.id.0 << 32..).zip(batch.messages);
                let publications = publications.map(|(token, message)| Publication { token, to: to.clone(), message, dedupe_id: String::new(), deadline: None });
                sink.publish(publications.collect()).await;
            }
        }
    }
    sink.close().await?;
    Ok(source.close().await?)
}
