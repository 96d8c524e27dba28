//! Fills the store with jobs as an ingest would, with the script `schedule`, over several
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_connectors::{Destination, Message, Position};
use tokio::task::JoinSet;

use super::round::{body, request};
use super::{Options, REQUEST_DESTINATION, per_second};
use dwell::clock;
use dwell::config::Redis;
use dwell::request::{NewJob, Request, RequestRules, parse};
use dwell::store::{Store, Unobserved};
use dwell_testkit::environment::{Environment, Failure, Result};

/// Connections, each with one batch in flight.
const CONNECTION_COUNT: u64 = 4;
/// Jobs in a batch: as many as an ingest passes on at once.
const JOBS_PER_BATCH: u64 = 1024;
/// The delay of jobs that only wait, ms: an hour, spread over another hour.
const FAR_DELAY_MS: i64 = 3_600_000;
/// The number of this round. Other rounds count up from zero.
const FILL_ROUND: u64 = u64::MAX;

/// The jobs to create.
#[derive(Clone)]
pub(super) struct Order {
    pub(super) jobs: u64,
    pub(super) body: usize,
    pub(super) kind: &'static str,
    /// The earliest due time, epoch ms, and the span over which the others are spread, ms.
    pub(super) due_ms: i64,
    pub(super) spread_ms: i64,
}

/// Stores `options.pending` jobs, due after the measurement, in the namespace of the instances.
/// Returns the rate.
pub(super) async fn far(environment: &Environment, options: &Options) -> Result<f64> {
    let (jobs, body, kind) = (options.pending, options.body, options.broker.as_str());
    let order = Order {
        jobs,
        body,
        kind,
        due_ms: clock::wall_ms() + FAR_DELAY_MS,
        spread_ms: FAR_DELAY_MS,
    };
    (options.say)(&format!("filling the store with {jobs} jobs that are due in one to two hours"));
    let rate = fill(environment, &environment.settings().redis, &order, options.say).await?;
    (options.say)(&format!("{jobs} jobs wait, stored at {rate:.0}/s"));
    Ok(rate)
}

/// Stores jobs in a namespace. Returns the rate.
pub(super) async fn fill(
    environment: &Environment,
    redis: &Redis,
    order: &Order,
    say: fn(&str),
) -> Result<f64> {
    let rules = Arc::new(RequestRules::new(environment.settings(), "main")?);
    let next = Arc::new(AtomicU64::new(0));
    let began = clock::wall_us();
    let mut lines = JoinSet::new();
    for _ in 0..CONNECTION_COUNT {
        let store = Store::open(redis, &["main".to_owned()], Arc::new(Unobserved)).await?;
        let (rules, next, order) = (rules.clone(), next.clone(), order.clone());
        lines.spawn(async move {
            loop {
                let from = next.fetch_add(JOBS_PER_BATCH, Ordering::Relaxed);
                if from >= order.jobs {
                    return Ok::<_, Failure>(());
                }
                if from > 0 && from % (JOBS_PER_BATCH * 1000) == 0 {
                    say(&format!("{from} so far"));
                }
                let batch = schedules(&rules, &order, from..order.jobs.min(from + JOBS_PER_BATCH))?;
                store.jobs.schedule(&batch).await?;
            }
        });
    }
    while let Some(line) = lines.join_next().await {
        line.map_err(|error| format!("filling the store failed: {error}"))??;
    }
    Ok(per_second(order.jobs, clock::wall_us() - began))
}

/// The requests that an ingest makes of the messages with these numbers.
pub(super) fn schedules(
    rules: &RequestRules,
    order: &Order,
    numbers: std::ops::Range<u64>,
) -> Result<Vec<NewJob>> {
    numbers
        .map(|number| -> Result<NewJob> {
            let spread =
                if order.spread_ms > 0 { rand::random_range(0..order.spread_ms) } else { 0 };
            let message = Message {
                destination: Destination::new(REQUEST_DESTINATION),
                // AMQP messages have no number: their id is random.
                position: (order.kind != "amqp").then(|| Position {
                    log: REQUEST_DESTINATION.to_owned(),
                    partition: 0,
                    offset: number,
                }),
                ..request(body(FILL_ROUND, number, order.body), order.due_ms + spread)
            };
            match parse(&message, rules, clock::wall_ms()) {
                Ok(Request::NewJob(new_job)) => Ok(*new_job),
                Ok(Request::NewSchedule(_) | Request::Act(_)) => {
                    Err("a request to schedule was taken for another".into())
                }
                Err(rejection) => {
                    Err(format!("a request to fill the store is refused: {}", rejection.detail)
                        .into())
                }
            }
        })
        .collect()
}
