//! `dwell pop QUEUE`: fetches jobs of queues as a consumer does, directly from Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::common::Common;
use super::exit::{Exit, Stop};
use super::table::{clean, local, preview};
use crate::config::Settings;
use crate::consumers::{Consumers, PopRequest, PoppedJobs};
use crate::queues::{MAX_POP_BYTES, MAX_POP_JOBS, MAX_POP_QUEUES, MAX_POP_WAIT};
use crate::request::Code;
use crate::shutdown::Signals;
use crate::store::Store;
use crate::store::jobs::acknowledge::{Acknowledgement, LeaseAction};
use crate::store::jobs::pop::Popped;
use crate::units::{parse_duration_ms, quote};
use crate::view::FetchedJob;

/// `dwell pop`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The queue; several, separated by commas, are served in their order
    #[arg(required = true, value_name = "QUEUE", value_delimiter = ',')]
    pub queues: Vec<String>,
    /// The most jobs
    #[arg(long, default_value = "1", value_name = "NUMBER", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=MAX_POP_JOBS as u64))]
    pub max: usize,
    /// How long to wait for the first job, at most 60s
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = wait_ms)]
    pub wait: u64,
    /// How long the jobs are reserved; by default the TTR of each job
    #[arg(long, value_name = "DURATION", value_parser = ttr_ms)]
    pub ttr: Option<u64>,
}

fn wait_ms(text: &str) -> Result<u64, String> {
    let ms = parse_duration_ms(text)?;
    if u128::from(ms) > MAX_POP_WAIT.as_millis() {
        Err(format!("at most {}s", MAX_POP_WAIT.as_secs()))
    } else {
        Ok(ms)
    }
}

/// Parses the length of a lease.
pub(super) fn ttr_ms(text: &str) -> Result<u64, String> {
    match parse_duration_ms(text)? {
        0 => Err("a lease lasts for at least 1 ms".to_owned()),
        ms => Ok(ms),
    }
}

/// The consumers of a command.
pub(super) async fn consumers(
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<Consumers, Stop> {
    let store = Arc::new(Store::attach(&settings.redis).await?);
    let rules = settings.delivery.late_rules();
    Ok(Consumers::new(store, rules, Arc::new(()), stop.clone()))
}

/// Prints the jobs, each with its lease. Exits with 2 if there is none.
pub(super) async fn run(common: &Common, args: Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    check(&settings, &args.queues)?;
    // From here on a signal ends the wait, and no job is lost to it.
    let mut signals = Signals::new()?;
    let stop = CancellationToken::new();
    let consumers = consumers(&settings, &stop).await?;
    let Args { queues, max, wait, ttr } = args;
    let wait = Duration::from_millis(wait);
    let asked = PopRequest {
        queues,
        max,
        max_bytes: MAX_POP_BYTES,
        wait,
        ttr_ms: ttr,
        max_ttr_ms: settings.limits.max_ttr.ms(),
    };
    let mut popping = Box::pin(consumers.pop(&asked));
    let jobs = tokio::select! {
        jobs = &mut popping => jobs?,
        _ = signals.next() => {
            stop.cancel();
            popping.await?
        }
    };
    print(common, &consumers, jobs).await
}

fn check(settings: &Settings, queues: &[String]) -> Result<(), Stop> {
    if queues.len() > MAX_POP_QUEUES {
        return Err(Stop::because(
            Exit::Usage,
            format!("{} queues: at most {MAX_POP_QUEUES}", queues.len()),
            "",
        ));
    }
    let Some(unknown) = queues.iter().find(|queue| settings.queues.get(queue).is_none()) else {
        return Ok(());
    };
    let (code, name) = (Code::UnknownQueue.as_str(), quote(unknown));
    let hint = "add its name or a pattern to [queues], as where dwell runs";
    Err(Stop::because(
        Exit::Usage,
        format!("{code}: no [queues] of the settings fits {name}"),
        hint,
    ))
}

async fn print(common: &Common, consumers: &Consumers, jobs: PoppedJobs) -> Result<Exit, Stop> {
    let jobs = jobs.sent();
    for (at, popped) in jobs.iter().enumerate() {
        let gap = if at > 0 { "\n" } else { "" };
        let job = FetchedJob::popped(popped);
        if let Err(stop) = common.answer(&job, &format!("{gap}{}", text(&job, popped))) {
            // Nobody sees these: they are due again.
            let release = |job: &Popped| Acknowledgement {
                id: job.id.clone(),
                lease: job.lease.clone(),
                action: LeaseAction::Release { wait_ms: 0 },
            };
            consumers.acknowledge(&jobs[at..].iter().map(release).collect::<Vec<_>>()).await;
            return Err(stop);
        }
    }
    Ok(if jobs.is_empty() { Exit::NotFound } else { Exit::Ok })
}

fn text(job: &FetchedJob<'_>, popped: &Popped) -> String {
    let mut lines = vec![
        ("id", job.id.to_owned()),
        ("queue", job.queue.to_owned()),
        ("lease", job.lease.clone().unwrap_or_default()),
        ("attempt", job.attempt.to_string()),
        ("due", local(job.due_ms)),
        ("deadline", local(popped.deadline_ms)),
    ];
    for (name, value) in &job.headers {
        lines.push((
            "header",
            format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        ));
    }
    let head: Vec<String> =
        lines.into_iter().map(|(name, value)| format!("{name:<11} {}", clean(&value))).collect();
    format!("{}\n{}", head.join("\n"), preview(&popped.record.job.body))
}
