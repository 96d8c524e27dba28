//! A campaign: a system under load, faults in the order of a plan, the wait for all outstanding
//! jobs, and the verdict. [`queue`]: the scenario of consumers that fetch the jobs of a queue.

mod drain;
mod injection;
mod options;
pub mod queue;
mod sample;

pub use self::options::Options;
pub use super::error::Error;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::config::RedisMode;
use dwell::dispatch::lease_of;

use crate::chaos::checker::check;
use crate::chaos::checker::verdict::Verdict;
use crate::chaos::history::{End, FORMAT, History, Op, Phase, RunHeader};
use crate::chaos::load::Load;
use crate::chaos::recorder::Recorder;
use crate::chaos::report::Report;
use crate::chaos::system::{System, SystemOptions};
use crate::chaos::wait::until;
use crate::words::word;

/// The result of a campaign.
#[derive(Debug)]
pub struct Outcome {
    /// The verdict of the checker.
    pub verdict: Verdict,
    /// The report.
    pub report: Report,
    /// The file of the history.
    pub history: PathBuf,
}

/// An in-flight window that a silent target can fill, and a `hold` for an unreachable Redis that
/// is shorter than a fault.
const EXTRA_SETTINGS: &str = "delivery.max_in_flight = 128\ningest.main.hold = \"3s\"";
/// The bound on lateness after all faults are healed: a lease, plus JetStream's `ack_wait` for a
/// reader that is gone, plus a margin.
const MAX_LATENESS_MS: i64 = 45_000;
/// The longest wait for the first arrival.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait for arrivals after a fault, and for an empty store at the end.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval between two checks of a condition, and between two samples of an instance.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The store must stay empty for this time: a redelivery would arrive within it.
const MIN_EMPTY_DURATION: Duration = Duration::from_secs(2);

/// Runs a campaign.
///
/// # Errors
/// The system did not start, or the history cannot be written. Later errors are part of the
/// verdict.
pub async fn run(options: Options) -> Result<Outcome, Error> {
    if let Some(kind) = options.only.iter().find(|kind| !kind.applies(&options.system)) {
        let (broker, redis) = (options.system.broker.as_str(), word(&options.system.redis));
        return Err(Error::Unexpected(format!(
            "{kind} is not possible over {broker} and a {redis} Redis with this durability, or without --http"
        )));
    }
    needs_replica(&options.system)?;
    std::fs::create_dir_all(&options.out).map_err(Error::file(&options.out))?;
    let file = options.out.join(format!("history-{}.jsonl", options.name()));
    let more = format!("{EXTRA_SETTINGS}\n{}", queue::settings());
    // The share of the load for the limited target is 4 %, so that what waits for turns is caught up.
    let limited_per_s = Some((options.rate / 10).max(2));
    let system = SystemOptions { more, limited_per_s, ..options.system.clone() };
    let system = System::start(system).await?;
    (options.say)(&system.describe());
    let lease = lease_of(&system.settings().delivery);
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let head = head(system.options(), options.seed, lease_ms, &options.repeat);
    let recorder = Arc::new(Recorder::create(&file, &head).map_err(Error::file(&file))?);
    system.record_in(&recorder);
    let mut load = Load::start(&system, (options.seed, options.rate), &recorder);
    let campaign = Campaign { system: &system, recorder: &recorder, say: options.say, pops: false };
    let mut end = tokio::select! {
        end = campaign.timeline(&options, &mut load) => end,
        never = campaign.sample() => never,
    };
    end.consumers = Some(load.tally());
    end.broken.extend(load.stop().await);
    conclude(system, &recorder, end, file, &options.name()).await
}

/// Stops the system, and checks the history in this file. After violations the logs are beside it.
async fn conclude(
    system: System,
    recorder: &Recorder,
    mut end: End,
    file: PathBuf,
    name: &str,
) -> Result<Outcome, Error> {
    end.exits = system.stop_instances().await;
    let logs = system.logs();
    drop(system);
    recorder.record("campaign", Phase::Ok, Op::End(end));
    recorder.flush().map_err(Error::file(&file))?;
    let history = History::read(&file)?;
    let verdict = check(&history);
    let report = Report::of(&history, &verdict);
    if !verdict.is_sound() {
        let folder = file.with_file_name(format!("logs-{name}"));
        std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        for (name, text) in logs {
            std::fs::write(folder.join(name), text).map_err(Error::file(&folder))?;
        }
    }
    Ok(Outcome { verdict, report, history: file })
}

/// Removes the report of an earlier run: it must not pass for the report of this one.
pub(crate) fn remove_earlier(report: &Path) -> Result<(), Error> {
    match std::fs::remove_file(report) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file(report)(error))
        }
        _ => Ok(()),
    }
}

/// Any fault of a Cluster or of sentinels may end in a failover.
fn needs_replica(system: &SystemOptions) -> Result<(), Error> {
    if system.redis == RedisMode::Single || system.has_replica() {
        return Ok(());
    }
    let why = "a Cluster and sentinels lose acknowledged jobs below durability replica";
    Err(Error::unexpected(why))
}

fn head(system: &SystemOptions, seed: u64, lease_ms: i64, repeat: &str) -> RunHeader {
    RunHeader {
        format: FORMAT,
        seed,
        commit: commit(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        broker: system.broker.as_str().to_owned(),
        instances: system.instances,
        durability: format!("{:?}", system.durability).to_lowercase(),
        redis: word(&system.redis),
        lease_ms,
        late_ms: MAX_LATENESS_MS + lease_ms,
        limited_per_s: system.limited_per_s,
        repeat: repeat.to_owned(),
    }
}

/// The commit of the current folder; empty if there is none.
fn commit() -> String {
    let describe = ["describe", "--always", "--dirty", "--exclude=*"];
    let said = Command::new("git").args(describe).output().ok();
    let said = said.filter(|said| said.status.success()).map(|said| said.stdout);
    String::from_utf8_lossy(&said.unwrap_or_default()).trim().to_owned()
}

struct Campaign<'a> {
    system: &'a System,
    recorder: &'a Recorder,
    /// Prints progress.
    say: fn(&str),
    /// Consumers pop the jobs.
    pops: bool,
}

impl Campaign<'_> {
    async fn timeline(&self, options: &Options, load: &mut Load) -> End {
        let injected = async {
            until(WARM_UP_TIMEOUT, "nothing arrived", async || Ok(self.recorder.arrivals() > 0))
                .await?;
            self.inject_faults(options).await
        };
        let mut broken = Vec::from_iter(injected.await.err().map(|error| error.to_string()));
        broken.extend(load.finish_sending().await.err());
        match self.drain().await {
            Ok(end) => End { broken, ..end },
            Err(error) => {
                broken.push(format!("the final state cannot be read: {error}"));
                End { broken, ..End::default() }
            }
        }
    }

    /// Samples each instance once a second, until dropped.
    async fn sample<T>(&self) -> T {
        loop {
            self.sample_all().await;
            clock::sleep(SAMPLE_INTERVAL).await;
        }
    }

    async fn sample_all(&self) {
        for instance in 0..self.system.options().instances {
            self.system.look_after(instance);
            if let Some(sample) = sample::sample(self.system, instance).await {
                self.recorder.record("campaign", Phase::Ok, Op::Sample(sample));
            }
        }
    }
}
