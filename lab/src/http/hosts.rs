//! Many hosts, of which some take requests and answer late, or say nothing: how late the jobs of
//! the others are, and how much memory Dwell needs.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::environment::Result;
use serde::Serialize;
use serde_json::json;

use super::receiving::{Hosts, PATH, Process};
use super::settings;
use crate::bench::mib;
use crate::bench::percentiles::Percentiles;
use crate::client::Link;
use crate::place::Place;

/// The longest time without an arrival.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The time by which jobs are scheduled ahead, ms.
const SCHEDULE_LEAD_MS: i64 = 3000;

/// The options.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Options {
    /// The hosts.
    #[command(flatten)]
    pub hosts: Hosts,
    /// Jobs due a second, over all hosts in turns
    #[arg(long, default_value_t = 1000)]
    pub rate: u64,
    /// How long, s
    #[arg(long, default_value_t = 60)]
    pub secs: u64,
    /// How long an attempt may take, s
    #[arg(long, default_value_t = 15)]
    pub timeout: u64,
    /// Jobs for the hosts that answer late, beside the others, all due as the first of those is
    #[arg(long, default_value_t = 0)]
    pub backlog: usize,
    /// Bytes of each body
    #[arg(long, default_value_t = 200)]
    pub body: usize,
}

/// The figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Figures {
    /// Jobs of hosts that answer.
    pub jobs: u64,
    /// From due to arrival, of these.
    pub late: Percentiles,
    /// The same, of those of the first second.
    pub first_late: Percentiles,
    /// Requests that hosts answered late.
    pub late_answers: u64,
    /// Requests that hosts took without an answer.
    pub unanswered: u64,
    /// Dwell's resident memory before the load, MiB.
    pub idle_rss_mib: f64,
    /// The same every 5 s under the load.
    pub rss_mib: Vec<f64>,
    /// Its peak.
    pub peak_rss_mib: f64,
    /// Dwell's CPU under the load, percent of one core.
    pub dwell_percent: f64,
    /// The same of Redis: jobs that are claimed and given back cost it time.
    pub redis_percent: f64,
}

/// Measures; `say` prints progress.
///
/// # Errors
/// The servers failed, or jobs did not arrive.
pub async fn run(options: Options, say: fn(&str)) -> Result<Figures> {
    let mut receivers = Process::start(options.hosts).await?;
    let text = settings(&receivers.ports, &format!("{}s", options.timeout));
    let place = Place::without_broker(1, &text).await?;
    let used = || place.used()[0];
    let targets: Vec<String> =
        receivers.ports.iter().map(|port| format!("http://127.0.0.1:{port}{PATH}")).collect();
    let mut figures = Figures { idle_rss_mib: mib(used().rss), ..Figures::default() };
    let (body, healthy, count) =
        ("x".repeat(options.body), options.hosts.healthy(), options.rate * options.secs);
    let mut link = Link::to(place.port());
    let (start_ms, before, began) =
        (clock::wall_ms() + SCHEDULE_LEAD_MS + 1000, place.used(), clock::now());
    let job =
        |target: &str, due_ms: i64| json!({ "target": target, "until": due_ms, "body": body });
    let slow = targets.iter().skip(healthy).take(options.hosts.slow).cycle();
    link.schedule(slow.take(options.backlog).map(|target| job(target, start_ms))).await?;
    let due_ms = |n: u64| start_ms + i64::try_from(n * 1000 / options.rate.max(1)).unwrap_or(0);
    let mut next = 0;
    while next < count {
        // Each second's jobs go in together, ahead of their time.
        let wait_ms = due_ms(next) - SCHEDULE_LEAD_MS - clock::wall_ms();
        clock::sleep(clock::micros(wait_ms.max(0) * 1000)).await;
        let batch = next..count.min(next + options.rate);
        let host = |n: u64| usize::try_from(n).unwrap_or(0) % targets.len();
        figures.jobs += batch.clone().filter(|n| host(*n) < healthy).count() as u64;
        link.schedule(batch.map(|n| job(&targets[host(n)], due_ms(n)))).await?;
        next += options.rate;
        if (next / options.rate.max(1)).is_multiple_of(5) {
            let counts = receivers.counts().await?;
            figures.rss_mib.push(mib(used().rss).round());
            say(&format!(
                "{} arrived, {} not answered; {:.0} MiB; {}",
                counts.answered,
                counts.unanswered,
                mib(used().rss),
                counts.late
            ));
        }
    }
    let counts = receivers.answered(figures.jobs, ARRIVAL_TIMEOUT).await?;
    let (now, secs) = (place.used(), began.elapsed().as_secs_f64());
    let percent = |at: usize| (now[at] - before[at]).cpu_s() * 100.0 / secs;
    Ok(Figures {
        late: counts.late,
        first_late: counts.first_late,
        late_answers: counts.late_answers,
        unanswered: counts.unanswered,
        peak_rss_mib: mib(now[0].peak_rss),
        dwell_percent: percent(0),
        redis_percent: percent(1),
        ..figures
    })
}
