//! A backlog for one fast host: how many jobs a second Dwell sends, beside a bare client of the
//! same library with as many requests at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dwell::clock;
use dwell_testkit::environment::Result;
use dwell_testkit::usage::Usage;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::receiving::{Hosts, PATH, Process};
use super::settings;
use crate::bench::per_second;
use crate::bench::percentiles::median;
use crate::client::Link;
use crate::place::Place;

/// The longest time without an arrival.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Jobs a second that are scheduled at least.
const SCHEDULED_PER_S: u64 = 4000;

/// The options.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Options {
    /// Jobs that are due at one instant
    #[arg(long, default_value_t = 100_000)]
    pub jobs: u64,
    /// Runs of each
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Requests of the bare client at a time; Dwell has 256 for one host
    #[arg(long, default_value_t = 256)]
    pub in_flight: usize,
    /// Bytes of each body
    #[arg(long, default_value_t = 200)]
    pub body: usize,
}

/// The figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Figures {
    /// Jobs a second of each run of Dwell, from the due instant to the last arrival.
    pub dwell_per_s: Vec<f64>,
    /// Requests a second of each run of the bare client.
    pub bare_per_s: Vec<f64>,
    /// The medians.
    pub dwell_median: f64,
    /// See `dwell_median`.
    pub bare_median: f64,
    /// Dwell's median as a share of the bare client's.
    pub share: f64,
    /// CPU of the bare client for one request, of the last run, µs.
    pub bare_us: f64,
    /// CPU of Dwell for one job, of the last run, µs.
    pub dwell_us: f64,
    /// The same of Redis.
    pub redis_us: f64,
    /// The same of the receiver.
    pub receiver_us: f64,
}

/// Measures in turns; `say` prints progress.
///
/// # Errors
/// The servers failed, or jobs did not arrive.
pub async fn run(options: Options, say: fn(&str)) -> Result<Figures> {
    let mut receiver = Process::start(Hosts { hosts: 1, hanging: 0, slow: 0, slow_ms: 0 }).await?;
    let target = format!("http://127.0.0.1:{}{PATH}", receiver.ports[0]);
    let place = Place::without_broker(1, &settings(&receiver.ports, "15s")).await?;
    let mut figures = Figures::default();
    // The first of each opens connections and loads scripts.
    let few = Options { jobs: options.jobs.min(2000), ..options };
    dwell(&place, &mut receiver, &target, few, &mut Figures::default()).await?;
    for _ in 0..options.runs {
        let per_s = dwell(&place, &mut receiver, &target, options, &mut figures).await?;
        say(&format!("Dwell: {per_s:.0} jobs a second"));
        figures.dwell_per_s.push(per_s);
        let own = Some(std::process::id());
        let before = used(own);
        let per_s = bare(&mut receiver, &target, options).await?;
        figures.bare_us = (used(own) - before).cpu_us_each(options.jobs);
        say(&format!("the bare client: {per_s:.0} requests a second"));
        figures.bare_per_s.push(per_s);
    }
    (figures.dwell_median, figures.bare_median) =
        (median(&figures.dwell_per_s), median(&figures.bare_per_s));
    figures.share = figures.dwell_median / figures.bare_median.max(1.0);
    Ok(figures)
}

fn used(pid: Option<u32>) -> Usage {
    Usage::of(pid).unwrap_or_default()
}

async fn dwell(
    place: &Place,
    receiver: &mut Process,
    target: &str,
    options: Options,
    figures: &mut Figures,
) -> Result<f64> {
    receiver.reset().await?;
    let due_ms =
        clock::wall_ms() + 3000 + i64::try_from(options.jobs * 1000 / SCHEDULED_PER_S).unwrap_or(0);
    let body = "x".repeat(options.body);
    let job = |_| json!({ "target": target, "until": due_ms, "body": body });
    Link::to(place.port()).schedule((0..options.jobs).map(job)).await?;
    if clock::wall_ms() > due_ms - 500 {
        let jobs = options.jobs;
        return Err(format!("{jobs} jobs were not scheduled before they were due").into());
    }
    clock::sleep(clock::micros((due_ms - 300 - clock::wall_ms()) * 1000)).await;
    let [dwell, redis] = place.pids();
    let pids = [dwell, redis, receiver.pid()];
    let before = pids.map(used);
    let counts = receiver.answered(options.jobs, ARRIVAL_TIMEOUT).await?;
    let each = |at: usize| (used(pids[at]) - before[at]).cpu_us_each(options.jobs);
    (figures.dwell_us, figures.redis_us, figures.receiver_us) = (each(0), each(1), each(2));
    Ok(per_second(options.jobs, counts.last_us - due_ms * 1000))
}

/// The same requests from the client alone: no job, no Redis.
async fn bare(receiver: &mut Process, target: &str, options: Options) -> Result<f64> {
    receiver.reset().await?;
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(options.in_flight);
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    let client: Client<HttpConnector, Full<Bytes>> = builder.build(tcp);
    let uri = target.parse::<Uri>().map_err(|error| format!("{target}: {error}"))?;
    let (left, body, headers) =
        (Arc::new(AtomicU64::new(options.jobs)), Bytes::from("x".repeat(options.body)), headers());
    let began_us = clock::wall_us();
    let mut tasks = JoinSet::new();
    for _ in 0..options.in_flight {
        let (client, uri, left, body, headers) =
            (client.clone(), uri.clone(), Arc::clone(&left), body.clone(), headers.clone());
        tasks.spawn(async move {
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
            {
                let mut request = Request::new(Full::new(body.clone()));
                (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) =
                    (Method::POST, uri.clone(), headers.clone());
                if let Ok(answer) = client.request(request).await {
                    let _ = answer.into_body().collect().await;
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    let counts = receiver.answered(options.jobs, ARRIVAL_TIMEOUT).await?;
    Ok(per_second(options.jobs, counts.last_us - began_us))
}

/// Headers like those of Dwell.
fn headers() -> HeaderMap {
    let pairs = [
        ("content-type", "application/octet-stream"),
        ("user-agent", "Dwell/0.1.0"),
        ("delayed-id", "0123456789abcdef0123456789abcdef"),
        ("delayed-due", "1750000000000"),
        ("delayed-attempt", "1"),
        ("webhook-id", "0123456789abcdef0123456789abcdef-1750000000000"),
        ("webhook-timestamp", "1750000000"),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}
