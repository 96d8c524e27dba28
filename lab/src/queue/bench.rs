//! The rates of fetching and finishing jobs over HTTP, the lateness of the jobs of waiting
//! consumers, and the cost of consumers that only wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::limit;
use crate::bench::mib;
use crate::bench::percentiles::{Latencies, Percentiles};
use crate::client::Link;
use crate::client::answers::Fetched;
use crate::place::Place;
use dwell::clock;
use dwell_testkit::environment::Result;

const QUEUE: &str = "lab.jobs";

/// The options.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Options {
    /// Jobs to fetch and finish as fast as possible
    #[arg(long, default_value_t = 200_000)]
    pub jobs: u64,
    /// Jobs of one pop
    #[arg(long, default_value_t = 100)]
    pub batch: usize,
    /// Consumers that fetch at a time
    #[arg(long, default_value_t = 4)]
    pub consumers: usize,
    /// Consumers that wait for the jobs of a steady rate
    #[arg(long, default_value_t = 200)]
    pub waiting: usize,
    /// Jobs due a second, for the lateness
    #[arg(long, default_value_t = 1000)]
    pub rate: u64,
    /// How long the rate lasts, s
    #[arg(long, default_value_t = 10)]
    pub secs: u64,
    /// Consumers that wait for nothing
    #[arg(long, default_value_t = 10_000)]
    pub idle: usize,
    /// Bytes of each body
    #[arg(long, default_value_t = 200)]
    pub body: usize,
}

/// The figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Figures {
    /// Jobs fetched and finished a second.
    pub drain_per_s: f64,
    /// CPU of Dwell and Redis for one of them, µs.
    pub dwell_us: f64,
    /// The same of Redis.
    pub redis_us: f64,
    /// From due to the answer of a waiting pop.
    pub late: Percentiles,
    /// CPU of an instance with consumers that wait for nothing, percent of one core.
    pub idle_percent: f64,
    /// Its resident memory, MiB.
    pub idle_rss_mib: f64,
    /// The same without consumers, MiB.
    pub base_rss_mib: f64,
}

/// Measures; `say` prints progress.
///
/// # Errors
/// The servers failed.
pub async fn run(options: Options, say: fn(&str)) -> Result<Figures> {
    limit::allow(options.idle.max(options.waiting).max(options.consumers))?;
    let place = Place::without_broker(1, "[queues.\"lab.*\"]\nttr = \"60s\"").await?;
    let port = place.port();
    let mut figures = Figures { base_rss_mib: mib(place.used()[0].rss), ..Figures::default() };
    drain(&place, options, &mut figures).await?;
    say(&format!("{:.0} jobs a second", figures.drain_per_s));
    figures.late = lateness(port, options).await?;
    say(&format!("late p50 {} ms, p99 {} ms", figures.late.p50_ms, figures.late.p99_ms));
    idle(&place, options, &mut figures).await?;
    Ok(figures)
}

/// Schedules a job for each of these due times, from the number `from` on.
async fn schedule(
    port: u16,
    from: u64,
    dues_ms: impl Iterator<Item = i64>,
    body: &str,
) -> Result<()> {
    let job = |(n, due): (u64, i64)| json!({ "id": format!("job-{n}"), "queue": QUEUE, "until": due, "body": body });
    Link::to(port).schedule((from..).zip(dues_ms).map(job)).await
}

async fn drain(place: &Place, options: Options, figures: &mut Figures) -> Result<()> {
    let (port, due) = (place.port(), clock::wall_ms());
    schedule(port, 0, (0..options.jobs).map(|_| due), &"x".repeat(options.body)).await?;
    let before = place.used();
    let (began, left) = (clock::now(), Arc::new(AtomicU64::new(options.jobs)));
    let mut consumers = JoinSet::new();
    for _ in 0..options.consumers {
        let left = left.clone();
        consumers.spawn(async move {
            let mut link = Link::to(port);
            let (path, ask) = (format!("/v1/queues/{QUEUE}/pop"), json!({ "max": options.batch }));
            while left.load(Ordering::Relaxed) > 0 {
                let Ok((200, body)) = link.post(&path, &ask).await else { continue };
                let Ok(Fetched { jobs }) = serde_json::from_slice::<Fetched<'_>>(&body) else {
                    continue;
                };
                let finish: Vec<_> = jobs
                    .iter()
                    .map(|job| BTreeMap::from([("id", &*job.id), ("lease", &*job.lease)]))
                    .collect();
                if finish.is_empty() {
                    break;
                }
                if let Ok((200, _)) = link.post("/v1/leases", &json!({ "finish": finish })).await {
                    left.fetch_sub(jobs.len() as u64, Ordering::Relaxed);
                }
            }
        });
    }
    while consumers.join_next().await.is_some() {}
    let done = options.jobs - left.load(Ordering::Relaxed).min(options.jobs);
    figures.drain_per_s = done as f64 / began.elapsed().as_secs_f64();
    let now = place.used();
    let each = |at: usize| (now[at] - before[at]).cpu_us_each(options.jobs);
    (figures.dwell_us, figures.redis_us) = (each(0), each(1));
    Ok(())
}

async fn lateness(port: u16, options: Options) -> Result<Percentiles> {
    let (late, stop) = (Arc::new(Mutex::new(Latencies::default())), CancellationToken::new());
    let mut consumers = JoinSet::new();
    for _ in 0..options.waiting {
        let (late, stop) = (late.clone(), stop.clone());
        consumers.spawn(async move {
            let mut link = Link::to(port);
            let (path, ask) = (format!("/v1/queues/{QUEUE}/pop"), json!({ "wait": "5s" }));
            while !stop.is_cancelled() {
                let Ok((200, body)) = link.post(&path, &ask).await else { continue };
                let at_us = clock::wall_us();
                let Ok(Fetched { jobs }) = serde_json::from_slice::<Fetched<'_>>(&body) else {
                    continue;
                };
                for job in jobs {
                    late.lock().add(at_us - job.due_ms * 1000);
                    let finish = json!({ "finish": [{ "id": job.id, "lease": job.lease }] });
                    let _ = link.post("/v1/leases", &finish).await;
                }
            }
        });
    }
    let from_ms = clock::wall_ms() + 3000;
    let count = options.rate * options.secs;
    let due = move |n: u64| from_ms + i64::try_from(n * 1000 / options.rate.max(1)).unwrap_or(0);
    schedule(port, options.jobs, (0..count).map(due), "x").await?;
    let ends_ms = due(count) + 2000;
    clock::sleep(clock::micros((ends_ms - clock::wall_ms()) * 1000)).await;
    stop.cancel();
    consumers.abort_all();
    while consumers.join_next().await.is_some() {}
    let late = late.lock().percentiles();
    if late.count < count {
        return Err(format!("{} of {count} jobs were fetched", late.count).into());
    }
    Ok(late)
}

async fn idle(place: &Place, options: Options, figures: &mut Figures) -> Result<()> {
    let port = place.port();
    let mut consumers = JoinSet::new();
    for at in 0..options.idle {
        consumers.spawn(async move {
            let mut link = Link::to(port);
            loop {
                let path = "/v1/queues/lab.idle/pop";
                if link.post(path, &json!({ "wait": "60s" })).await.is_err() {
                    clock::sleep(Duration::from_millis(100)).await;
                }
            }
        });
        if at % 200 == 199 {
            clock::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut look = Link::to(port);
    for _ in 0..600 {
        let (_, answer) = look.get("/v1/queues/lab.idle").await?;
        let shown: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        if shown["waiting"].as_u64() == Some(options.idle as u64) {
            break;
        }
        clock::sleep(Duration::from_millis(100)).await;
    }
    clock::sleep(Duration::from_secs(2)).await;
    let ([before, _], began) = (place.used(), clock::now());
    clock::sleep(Duration::from_secs(10)).await;
    let [now, _] = place.used();
    figures.idle_percent = (now - before).cpu_s() * 100.0 / began.elapsed().as_secs_f64();
    figures.idle_rss_mib = mib(now.rss);
    Ok(())
}
