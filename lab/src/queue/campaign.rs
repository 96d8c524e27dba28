//! Consumers that are killed between pop and finish, instances that are killed with waiting pops,
//! and a Redis that is killed: every job is finished once, by a consumer that held its lease.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::http::{Fetched, Link, Results};
use super::ledger::{HandOut, Ledger};
use super::place::Place;
use dwell::clock;
use dwell_testkit::environment::Failure;
use dwell_testkit::servers::{AppendFsync, find};

/// The lease of each pop, ms.
const TTR_MS: i64 = 2000;
/// Jobs of one POST.
const BATCH: u64 = 200;
/// After this time without a job that was finished, the campaign has failed.
const PATIENCE: Duration = Duration::from_secs(120);
const QUEUE: &str = "lab.jobs";

/// The options of a campaign.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many jobs.
    pub jobs: u64,
    /// How many consumers at a time.
    pub consumers: usize,
    /// How many instances.
    pub instances: usize,
    /// Kill instances and Redis too.
    pub faults: bool,
    /// The seed of all that is random.
    pub seed: u64,
    /// Prints progress.
    pub say: fn(&str),
}

/// The result of a campaign.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Jobs that were accepted.
    pub jobs: usize,
    /// Hand-outs of them.
    pub hand_outs: usize,
    /// Consumers that were killed between a pop and its words.
    pub consumers_killed: u64,
    /// Instances that were killed.
    pub instances_killed: u64,
    /// Kills of Redis.
    pub redis_killed: u64,
    /// Seconds from the first request to the last finish.
    pub secs: f64,
    /// The seed.
    pub seed: u64,
    /// What breaks a promise.
    pub wrong: Vec<String>,
}

struct Shared {
    ledger: Mutex<Ledger>,
    ports: Vec<u16>,
    killed: Mutex<u64>,
    stop: CancellationToken,
}

/// Runs a campaign.
///
/// # Errors
/// The servers failed, or jobs stopped to be finished.
pub async fn run(options: Options) -> Result<Summary, Failure> {
    let rules = "ttr = \"30s\"\nretry = [\"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \
                 \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\", \"100ms\"]";
    let aof = if options.faults { AppendFsync::Always } else { AppendFsync::EverySec };
    let mut place = Place::start(find::dwell(), Some(aof), options.instances, rules).await?;
    let shared =
        Arc::new(Shared { ledger: Mutex::default(), ports: place.ports(), killed: Mutex::default(), stop: CancellationToken::new() });
    let began = clock::now();
    let mut consumers = JoinSet::new();
    for number in 0..options.consumers {
        consumers.spawn(consume(shared.clone(), options.seed ^ (number as u64 + 1)));
    }
    let producing = tokio::spawn(produce(shared.clone(), options));
    let (mut instances_killed, mut redis_killed) = (0, 0);
    let mut random = StdRng::seed_from_u64(options.seed);
    let (mut last, mut progress_at) = (0, clock::now());
    loop {
        clock::sleep(Duration::from_millis(500)).await;
        let finished = shared.ledger.lock().finished();
        if finished > last {
            (last, progress_at) = (finished, clock::now());
        }
        if producing.is_finished() && finished as u64 >= options.jobs {
            break;
        }
        if clock::now().duration_since(progress_at) > PATIENCE {
            (options.say)("jobs are not finished any more");
            break;
        }
        if options.faults && random.random_bool(0.2) {
            if random.random_bool(0.25) {
                place.redis.kill()?;
                place.redis.restart().await?;
                redis_killed += 1;
            } else {
                let at = random.random_range(0..place.dwells.len());
                place.dwells[at].kill()?;
                place.dwells[at].restart().await?;
                instances_killed += 1;
            }
            (options.say)(&format!("{finished} finished, {instances_killed} instances and {redis_killed} times Redis killed"));
        }
    }
    shared.stop.cancel();
    while consumers.join_next().await.is_some() {}
    producing.abort();
    let ledger = shared.ledger.lock();
    let sums = ledger.sums();
    let wrong = ledger.wrong();
    let consumers_killed = *shared.killed.lock();
    Ok(Summary {
        jobs: sums.jobs,
        hand_outs: sums.hand_outs,
        consumers_killed,
        instances_killed,
        redis_killed,
        secs: clock::now().duration_since(began).as_secs_f64(),
        seed: options.seed,
        wrong,
    })
}

/// Schedules the jobs, due within two seconds. A request without an answer may have been carried out,
/// and its jobs may be over by now: the next one has other ids.
async fn produce(shared: Arc<Shared>, options: Options) {
    let mut random = StdRng::seed_from_u64(options.seed.wrapping_add(7));
    let mut link = Link::to(shared.ports[0]);
    let mut at = 0;
    while at < options.jobs {
        for attempt in 0.. {
            let batch: Vec<String> = (at..options.jobs.min(at + BATCH)).map(|job| format!("job-{job}-{attempt}")).collect();
            let due_ms = clock::wall_ms() + random.random_range(0..2000);
            let body: Vec<_> = batch.iter().map(|id| json!({ "id": id, "queue": QUEUE, "until": due_ms, "body": id })).collect();
            let body = serde_json::to_vec(&body).unwrap_or_default();
            batch.iter().for_each(|id| shared.ledger.lock().sent(id, due_ms));
            if let Ok((200, answer)) = link.post("/v1/jobs", &body).await
                && !String::from_utf8_lossy(&answer).contains("\"status\":5")
            {
                batch.iter().for_each(|id| shared.ledger.lock().accepted(id));
                break;
            }
            if shared.stop.is_cancelled() {
                return;
            }
            link = Link::to(shared.ports[random.random_range(0..shared.ports.len())]);
            clock::sleep(Duration::from_millis(50)).await;
        }
        at += BATCH;
    }
}

/// Fetches and finishes until told to stop. A third of the time the consumer is killed between: its
/// leases run out.
async fn consume(shared: Arc<Shared>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut link = Link::to(shared.ports[random.random_range(0..shared.ports.len())]);
    let path = format!("/v1/queues/{QUEUE}/pop");
    while !shared.stop.is_cancelled() {
        let max = random.random_range(1..=40);
        let ask = json!({ "max": max, "wait": "1s", "ttr": TTR_MS }).to_string();
        let hangs_up = random.random_bool(0.02);
        let popping = link.post(&path, ask.as_bytes());
        let answer = if hangs_up {
            // The client goes away while it waits, or while the answer is on its way.
            clock::timeout(Duration::from_millis(random.random_range(0..20)), popping).await
        } else {
            Some(popping.await)
        };
        let Some(Ok((200, body))) = answer else {
            link.hang_up();
            link = Link::to(shared.ports[random.random_range(0..shared.ports.len())]);
            if !hangs_up {
                clock::sleep(Duration::from_millis(20)).await;
            }
            continue;
        };
        let Ok(Fetched { jobs }) = serde_json::from_slice::<Fetched<'_>>(&body) else { continue };
        if jobs.is_empty() {
            continue;
        }
        {
            let mut ledger = shared.ledger.lock();
            for job in &jobs {
                if job.body != job.id {
                    ledger.damaged(&job.id);
                }
                let begun_ms = job.deadline_ms - TTR_MS;
                let (attempt, end_ms) = (job.attempt, job.deadline_ms);
                ledger.handed_out(&job.id, HandOut { attempt, begun_ms, end_ms, is_finished: false, is_unsure: false });
            }
        }
        if random.random_bool(0.05) {
            *shared.killed.lock() += 1;
            link.hang_up();
            continue;
        }
        let (mut finish, mut fail, mut release) = (Vec::new(), Vec::new(), Vec::new());
        for job in &jobs {
            let lease = json!({ "id": job.id, "lease": job.lease });
            match random.random_range(0..100) {
                0 => fail.push(lease),
                1 => release.push(lease),
                _ => finish.push(lease),
            }
        }
        let words = json!({ "finish": finish, "fail": fail, "release": release }).to_string();
        let attempts: std::collections::HashMap<&str, u32> = jobs.iter().map(|job| (&*job.id, job.attempt)).collect();
        loop {
            let said_ms = clock::wall_ms();
            match link.post("/v1/leases", words.as_bytes()).await {
                Ok((200, body)) => {
                    let Ok(Results { results }) = serde_json::from_slice(&body) else { break };
                    let mut ledger = shared.ledger.lock();
                    for answer in results {
                        let Some(attempt) = attempts.get(answer.id.as_str()) else { continue };
                        if answer.verdict == "fired" {
                            ledger.fired(&answer.id);
                        }
                        if let Some(hand_out) = ledger.hand_out(&answer.id, *attempt) {
                            match answer.verdict.as_str() {
                                "finished" => hand_out.is_finished = true,
                                // From the moment of the word on, another consumer may have it.
                                "failed" | "released" => hand_out.end_ms = hand_out.end_ms.min(said_ms),
                                _ => {}
                            }
                        }
                    }
                    break;
                }
                _ => {
                    shared.ledger.lock().unsure(&attempts);
                    if shared.stop.is_cancelled() {
                        return;
                    }
                    link = Link::to(shared.ports[random.random_range(0..shared.ports.len())]);
                    clock::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}
