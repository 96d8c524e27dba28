//! The queue scenario: consumers that are killed, instances that are killed with waiting pops, and
//! a Redis that is killed and fails over: every job is finished once, by a consumer that held its
//! lease.

mod options;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::config::RedisMode;
use serde::Serialize;
use tokio::task::JoinSet;

pub use self::options::Options;
use super::drain::damage;
use super::{Campaign, Error, conclude, head, needs_replica, remove_earlier};
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
use crate::chaos::wait::{grown, until};
use crate::client::Link;
use crate::queue::limit;
use crate::words;

/// After this time without a job that was finished, the campaign has failed.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(120);
/// The most findings that are printed.
const MAX_REPORTED_FINDINGS: usize = 20;
/// The rules of the queue: an array that no campaign uses up.
const QUEUE_RULES: &str = "ttr = \"30s\"";
const RETRY_COUNT: usize = 60;

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
    /// The file of the history; `None` if it is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<PathBuf>,
}

/// The settings of the queue.
pub(super) fn settings() -> String {
    let waits = vec!["\"100ms\""; RETRY_COUNT].join(", ");
    format!("queues.\"lab.*\" = {{ {QUEUE_RULES}, retry = [{waits}] }}")
}

/// Runs a campaign.
///
/// # Errors
/// The options do not fit, or the servers failed.
pub async fn run(options: &Options, seed: u64, say: fn(&str)) -> Result<Summary, Error> {
    let name = options.name(seed);
    let report = options.out.as_ref().map(|out| out.join(format!("report-{name}.json")));
    if let Some(report) = &report {
        remove_earlier(report)?;
    }
    limit::allow(options.consumers)?;
    let system = SystemOptions {
        redis: options.redis,
        instances: usize::from(options.instances),
        durability: options.durability,
        more: settings(),
        ..SystemOptions::default()
    };
    needs_replica(&system)?;
    let kinds =
        if options.consumers_only { Vec::new() } else { faults::kinds(&options.only, &system)? };
    let system = System::start(system).await?;
    say(&system.describe());
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let out = options.out.as_deref().unwrap_or(folder.path());
    std::fs::create_dir_all(out).map_err(Error::file(out))?;
    let file = out.join(format!("history-{name}.jsonl"));
    let head = head(system.options(), seed, TTR_MS, &options.repeat(seed));
    let head = RunHeader { broker: BROKER.to_owned(), ..head };
    let recorder = Arc::new(Recorder::create(&file, &head).map_err(Error::file(&file))?);
    let ports = system.api_addresses().iter().map(SocketAddr::port).collect();
    let scene = Arc::new(Scene::new(Arc::clone(&recorder), ports));
    let (began, mortal) = (clock::now(), options.mortal());
    let mut consumers = JoinSet::new();
    for number in 0..options.consumers {
        consumers.spawn(consume(scene.clone(), seed ^ (number as u64 + 1), number < mortal));
    }
    let crowding = tokio::spawn(crowd(scene.clone(), options.names));
    let producing =
        tokio::spawn(produce(scene.clone(), options.jobs, options.rate, seed.wrapping_add(7)));
    let campaign = Campaign { system: &system, recorder: &recorder, say, pops: true };
    let striking = strike(&campaign, &scene, (seed, &kinds), || producing.is_finished());
    let all = usize::try_from(options.jobs).unwrap_or(usize::MAX);
    let finishing = grown(all, PROGRESS_TIMEOUT, || scene.recorder.finished());
    let (struck, in_time) = tokio::join!(striking, finishing);
    let (faults, mut broken) = struck?;
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
    if let Some(file) = &report {
        let report = serde_json::to_vec_pretty(&outcome.report).map_err(std::io::Error::from);
        report.and_then(|report| std::fs::write(file, report)).map_err(Error::file(file))?;
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
        history: options.out.is_some().then(|| outcome.history.clone()),
    })
}

/// Injects one fault after another until told that it is enough. Returns the faults, and the
/// problems during them.
async fn strike(
    campaign: &Campaign<'_>,
    scene: &Scene,
    (seed, kinds): (u64, &[FaultKind]),
    is_enough: impl Fn() -> bool,
) -> Result<(Vec<Fault>, Vec<String>), Error> {
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
            let detail = &fault.detail;
            broken.push(format!("no pop had a job while one of the masters was frozen: {detail}"));
        }
        faults.push(fault);
        clock::sleep(step.pause).await;
    }
    Ok((faults, broken))
}

/// Waits until the queue is empty, and reports what is left in it.
async fn left(scene: &Scene) -> Option<String> {
    let (mut link, mut shown) = (Link::to(scene.ports[0]), String::new());
    let emptied = until(PROGRESS_TIMEOUT, "the queue was not empty", async || {
        shown = match link.get(&format!("/v1/queues/{QUEUE}")).await {
            Ok((200, answer)) => String::from_utf8_lossy(&answer).into_owned(),
            Ok((status, _)) => format!("status {status}"),
            Err(error) => error.to_string(),
        };
        let counts: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        Ok(["scheduled", "ready", "reserved", "dead"].iter().all(|state| counts[state] == 0))
    });
    emptied.await.err().map(|_| format!("left in the queue: {shown}"))
}
