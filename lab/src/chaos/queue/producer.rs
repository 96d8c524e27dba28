//! The producer of a campaign.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::scene::{QUEUE, Scene};
use crate::chaos::history::{Op, Phase};
use crate::chaos::load::extra::job;
use crate::client::Link;
use dwell::clock;

/// Jobs of one POST.
const JOBS_PER_POST: u64 = 200;
/// Jobs are due within this time, ms.
const MAX_DELAY_MS: i64 = 2000;
/// The wait after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Schedules so many jobs, so many a second; at 0 as many as possible. A request without an answer
/// may have been carried out, and its jobs may be over by now: the next one has other ids.
pub(crate) async fn produce(scene: Arc<Scene>, jobs: u64, rate: u64, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut link, began) = (Link::to(scene.ports[0]), clock::now());
    for at in (0..jobs).step_by(usize::try_from(JOBS_PER_POST).unwrap_or(1)) {
        if let Some(us) = (at * 1_000_000).checked_div(rate) {
            clock::sleep_until(began + Duration::from_micros(us)).await;
        }
        for attempt in 0.. {
            let due = |random: &mut StdRng| clock::wall_ms() + random.random_range(0..MAX_DELAY_MS);
            let batch: Vec<(String, i64)> = (at..jobs.min(at + JOBS_PER_POST))
                .map(|job| (format!("job-{job}-{attempt}"), due(&mut random)))
                .collect();
            if store(&scene, &mut link, &batch).await {
                break;
            }
            if scene.stop.is_cancelled() {
                return;
            }
            link = scene.link(&mut random);
            clock::sleep(RETRY_PAUSE).await;
        }
    }
}

/// Whether the jobs were all accepted.
async fn store(scene: &Scene, link: &mut Link, batch: &[(String, i64)]) -> bool {
    let jobs: Vec<_> = batch
        .iter()
        .map(|(id, due_ms)| json!({ "id": id, "queue": QUEUE, "until": due_ms, "body": id }))
        .collect();
    let record = |phase, op| scene.recorder.record("producer", phase, op);
    for (id, due_ms) in batch {
        record(Phase::Invoke, Op::schedule(id, Some(job(QUEUE, *due_ms))));
    }
    let is_accepted = is_stored(link, &jobs).await;
    for (id, _) in batch.iter().filter(|_| is_accepted) {
        record(Phase::Ok, Op::schedule(id, None));
    }
    is_accepted
}

/// Sends these jobs. Whether they were all accepted.
async fn is_stored(link: &mut Link, jobs: &[Value]) -> bool {
    match link.post("/v1/jobs", &jobs).await {
        Ok((200, answer)) => !String::from_utf8_lossy(&answer).contains("\"status\":5"),
        _ => false,
    }
}

/// Gives so many other queues a job that is due later, and cancels every second one: their names
/// are there while the campaign runs. Returns how many queues had one.
pub(crate) async fn crowd(scene: Arc<Scene>, names: u64) -> u64 {
    let mut random = StdRng::seed_from_u64(names);
    let mut link = scene.link(&mut random);
    let mut done = 0;
    for at in (0..names).step_by(usize::try_from(JOBS_PER_POST).unwrap_or(1)) {
        let numbers = at..names.min(at + JOBS_PER_POST);
        let jobs: Vec<_> =
            numbers.clone().map(|n| json!({ "id": format!("crowd-{n}"), "queue": format!("lab.crowd-{n}"), "for": "1h" })).collect();
        while !is_stored(&mut link, &jobs).await {
            if scene.stop.is_cancelled() {
                return done;
            }
            link = scene.link(&mut random);
            clock::sleep(RETRY_PAUSE).await;
        }
        done = numbers.end;
        for n in numbers.step_by(2) {
            if scene.stop.is_cancelled() {
                return done;
            }
            // A cancel without an answer leaves a job more.
            if link.delete(&format!("/v1/jobs/crowd-{n}")).await.is_err() {
                link = scene.link(&mut random);
            }
        }
    }
    done
}
