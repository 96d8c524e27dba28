//! The queue scenario: consumers that are killed, instances that are killed with waiting pops, and
//! a Redis that is killed and fails over: every job is finished once, by a consumer that held its
//! lease.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::config::{Durability, RedisMode};
use serde::Serialize;
use tokio::task::JoinSet;

use super::drain::damage;
use super::{Campaign, Error, conclude, head, io, needs_replica};
use crate::chaos::checker::verdict::QueueCounts;
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{End, Fault, QUEUE as BROKER, RunHeader};
use crate::chaos::plan::{Pace, Plan};
use crate::chaos::queue::consumer::{TTR_MS, consume};
use crate::chaos::queue::faults;
use crate::chaos::queue::producer::{crowd, produce};
use crate::chaos::queue::scene::{QUEUE, Scene};
use crate::chaos::recorder::Recorder;
use crate::chaos::system::{System, SystemOptions};
use crate::client::Link;
use crate::queue::limit;
use crate::words;

/// After this time without a job that was finished, the campaign has failed.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval between two looks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The most findings that are printed.
const MAX_REPORTED_FINDINGS: usize = 20;
/// The rules of the queue: an array that no campaign uses up.
const QUEUE_RULES: &str = "ttr = \"30s\"";
const RETRY_COUNT: usize = 60;

/// The options of a campaign.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How many jobs
    #[arg(long, default_value_t = 200_000)]
    pub jobs: u64,
    /// Jobs scheduled a second, due within two seconds; 0: as many as possible
    #[arg(long, default_value_t = 1000)]
    pub rate: u64,
    /// Other queues with a job each, every second one cancelled
    #[arg(long, default_value_t = 10_000)]
    pub names: u64,
    /// How many consumers
    #[arg(long, default_value_t = 50)]
    pub consumers: usize,
    /// The share of the consumers that is killed, from 0 to 1: each of them lives for a random time
    /// of at most 4 s, is killed whatever it is doing (while it waits, between a pop and its
    /// finish, while its finish is under way), and another one takes its place. The lease of a pop
    /// is 2 s
    #[arg(long, default_value_t = 0.33, value_parser = share)]
    pub killed: f64,
    /// How many instances; the first one is never killed
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub instances: u16,
    /// `redis.mode`: single (with a replica at durability replica), cluster or sentinel
    #[arg(long, default_value = "single", value_parser = words::parse::<RedisMode>)]
    pub redis: RedisMode,
    /// `redis.durability`: memory, fsync, replica or fsync+replica
    #[arg(long, default_value = "replica", value_parser = words::parse::<Durability>)]
    pub durability: Durability,
    /// Kill consumers only
    #[arg(long, conflicts_with = "only")]
    pub consumers_only: bool,
    /// Only these kinds of faults, separated by commas; by default those that kill instances and
    /// Redis, replace its master or move slots, as far as they apply
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<FaultKind>,
    /// The seed; by default a new one
    #[arg(long)]
    pub seed: Option<u64>,
    /// The folder for history and report, and for the logs after a violation; by default they are
    /// not kept
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a number from 0 to 1".to_owned())
}

/// The result of a campaign.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// `redis.mode`
    pub redis: String,
    /// Seconds from the first request to the last finish.
    pub secs: f64,
    /// Other queues that had a job.
    pub names: u64,
    /// Jobs that were accepted.
    pub jobs: u64,
    /// The hand-outs.
    #[serde(flatten)]
    pub queue: QueueCounts,
    /// Instances that were killed.
    pub instances_killed: usize,
    /// Kills of Redis.
    pub redis_killed: usize,
    /// Another master was promoted.
    pub failovers: usize,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// The number of broken promises.
    pub wrongs: usize,
    /// The first of them.
    pub wrong: Vec<String>,
}

/// Runs a campaign.
///
/// # Errors
/// The options do not fit, or the servers failed.
pub async fn run(options: &Options, say: fn(&str)) -> Result<Summary, Error> {
    limit::allow(options.consumers)?;
    let waits = vec!["\"100ms\""; RETRY_COUNT].join(", ");
    let system = SystemOptions {
        redis: options.redis,
        instances: usize::from(options.instances),
        durability: options.durability,
        more: format!("queues.\"lab.*\" = {{ {QUEUE_RULES}, retry = [{waits}] }}"),
        ..SystemOptions::default()
    };
    needs_replica(&system)?;
    let kinds =
        if options.consumers_only { Vec::new() } else { faults::kinds(&options.only, &system)? };
    let system = System::start(system).await?;
    say(&system.describe());
    let seed = options.seed.unwrap_or_else(rand::random);
    let (name, folder) = (format!("queue-{seed}"), tempfile::tempdir());
    let folder = folder.map_err(|error| Error::Io("a temporary folder".to_owned(), error))?;
    let out = options.out.as_deref().unwrap_or(folder.path());
    std::fs::create_dir_all(out).map_err(io(out))?;
    let file = out.join(format!("history-{name}.jsonl"));
    let head = head(system.options(), seed, TTR_MS, &repeat(options, seed));
    let head = RunHeader { broker: BROKER.to_owned(), ..head };
    let recorder = Arc::new(Recorder::create(&file, &head).map_err(io(&file))?);
    let ports = (0..system.options().instances).map(|instance| system.http(instance).port());
    let scene = Arc::new(Scene::new(Arc::clone(&recorder), ports.collect()));
    let (began, mortal) = (clock::now(), mortal(options));
    let mut consumers = JoinSet::new();
    for number in 0..options.consumers {
        consumers.spawn(consume(scene.clone(), seed ^ (number as u64 + 1), number < mortal));
    }
    let crowding = tokio::spawn(crowd(scene.clone(), options.names));
    let producing =
        tokio::spawn(produce(scene.clone(), options.jobs, options.rate, seed.wrapping_add(7)));
    let campaign = Campaign { system: &system, recorder: &recorder, say, pops: true };
    let striking = strike(&campaign, &scene, (seed, &kinds), || producing.is_finished());
    let (struck, in_time) = tokio::join!(striking, finished(&scene, options.jobs));
    let (faults, mut broken) = struck.map_err(Error::Unexpected)?;
    let secs = began.elapsed().as_secs_f64();
    if !in_time {
        broken.push(format!("no job was finished for {PROGRESS_TIMEOUT:?}"));
    }
    broken.extend(left(&scene).await);
    scene.stop.cancel();
    producing.abort();
    let names = crowding.await.unwrap_or_default();
    while consumers.join_next().await.is_some() {}
    let mut inquests = std::mem::take(&mut *scene.inquests.lock());
    while inquests.join_next().await.is_some() {}
    let damage = damage(&system).await?;
    scene.tally.lock().names = names;
    let consumers = Some(*scene.tally.lock());
    let end = End { damage, broken, consumers, ..End::default() };
    let outcome = conclude(system, &recorder, end, file, &name).await?;
    if let Some(out) = &options.out {
        let file = out.join(format!("report-{name}.json"));
        let report = serde_json::to_vec_pretty(&outcome.report).map_err(std::io::Error::from);
        report.and_then(|report| std::fs::write(&file, report)).map_err(io(&file))?;
    }
    let findings = outcome.verdict.findings.values().flatten();
    let count = |is: fn(&Fault) -> bool| faults.iter().filter(|fault| is(fault)).count();
    Ok(Summary {
        seed,
        redis: words::word(&options.redis),
        secs,
        names,
        jobs: outcome.verdict.counts.taken,
        queue: outcome.verdict.queue.unwrap_or_default(),
        instances_killed: count(|fault| fault.kind == FaultKind::DwellKill),
        redis_killed: count(faults::kills_redis),
        failovers: count(|fault| fault.kind.replaces_master() || fault.has_forgotten()),
        faults: outcome.report.faults.iter().map(|(kind, of)| (kind.clone(), of.count)).collect(),
        wrongs: findings.clone().count(),
        wrong: findings.take(MAX_REPORTED_FINDINGS).cloned().collect(),
    })
}

/// The arguments of `dwell-lab chaos` that repeat a run.
fn repeat(options: &Options, seed: u64) -> String {
    let Options { jobs, rate, names, consumers, killed, instances, only, .. } = options;
    let (redis, durability) = (words::word(&options.redis), words::word(&options.durability));
    let only: Vec<String> = only.iter().map(ToString::to_string).collect();
    let faults = match (options.consumers_only, only.is_empty()) {
        (true, _) => " --consumers-only".to_owned(),
        (_, true) => String::new(),
        _ => format!(" --only {}", only.join(",")),
    };
    format!(
        "queue --jobs {jobs} --rate {rate} --names {names} --consumers {consumers} --killed {killed} \
         --instances {instances} --redis {redis} --durability {durability} --seed {seed}{faults}"
    )
}

/// The number of consumers that are killed again and again.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of consumers"
)]
fn mortal(options: &Options) -> usize {
    (options.consumers as f64 * options.killed).ceil() as usize
}

/// Injects one fault after another until told that it is enough. Returns the faults, and the
/// problems during them.
async fn strike(
    campaign: &Campaign<'_>,
    scene: &Scene,
    (seed, kinds): (u64, &[FaultKind]),
    is_enough: impl Fn() -> bool,
) -> Result<(Vec<Fault>, Vec<String>), String> {
    let (mut faults, mut broken) = (Vec::new(), Vec::new());
    for step in Plan::new(seed, kinds, Pace::Even) {
        if is_enough() {
            break;
        }
        let before = *scene.tally.lock();
        let fault = campaign.inject_one(&step).await?;
        let now = *scene.tally.lock();
        let (cut_off, finished) =
            (now.pops_cut_off - before.pops_cut_off, scene.recorder.finished());
        (campaign.say)(&format!("  {cut_off} pops cut off, {finished} jobs finished"));
        // The masters that live have jobs.
        if step.kind == FaultKind::RedisMasterFrozen
            && campaign.system.options().redis == RedisMode::Cluster
            && now.pops_with_jobs == before.pops_with_jobs
        {
            broken.push(format!(
                "no pop had a job while one of the masters was frozen: {}",
                fault.detail
            ));
        }
        faults.push(fault);
        clock::sleep(step.pause).await;
    }
    Ok((faults, broken))
}

/// Waits until every job is finished; false if none is any more.
async fn finished(scene: &Scene, jobs: u64) -> bool {
    let (mut last, mut progress_at) = (0, clock::now());
    loop {
        let finished = scene.recorder.finished();
        if finished as u64 >= jobs {
            return true;
        }
        if finished > last {
            (last, progress_at) = (finished, clock::now());
        }
        if progress_at.elapsed() > PROGRESS_TIMEOUT {
            return false;
        }
        clock::sleep(CHECK_INTERVAL).await;
    }
}

/// Waits until the queue is empty, and reports what is left in it.
async fn left(scene: &Scene) -> Option<String> {
    let (mut link, deadline) = (Link::to(scene.ports[0]), clock::now() + PROGRESS_TIMEOUT);
    loop {
        let answer = link.get(&format!("/v1/queues/{QUEUE}")).await;
        let shown = match &answer {
            Ok((200, answer)) => String::from_utf8_lossy(answer).into_owned(),
            Ok((status, _)) => format!("status {status}"),
            Err(error) => error.to_string(),
        };
        let counts: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        if ["scheduled", "ready", "reserved", "dead"].iter().all(|state| counts[state] == 0) {
            return None;
        }
        if clock::now() > deadline {
            return Some(format!("left in the queue: {shown}"));
        }
        clock::sleep(CHECK_INTERVAL).await;
    }
}
