//! Consumers that are killed, instances that are killed with waiting pops, and a Redis that is
//! killed and fails over: every job is finished once, by a consumer that held its lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::config::{Durability, RedisMode};
use dwell_testkit::environment::Failure;
use serde::Serialize;
use tokio::task::JoinSet;

use super::consumer::consume;
use super::faults::{self, Struck};
use super::limit;
use super::producer::{crowd, produce};
use super::scene::{QUEUE, Scene};
use super::tally::Counts;
use crate::chaos::campaign::damage;
use crate::chaos::fault::FaultKind;
use crate::chaos::system::{System, SystemOptions};
use crate::client::Link;
use crate::words::{self, word};

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
    /// of at most 4 s, is killed whatever it is doing (while it waits, between a pop and its finish,
    /// while its finish is under way), and another one takes its place. The lease of a pop is 2 s
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
    pub jobs: usize,
    /// Hand-outs that a consumer saw.
    pub hand_outs: usize,
    /// Attempts that no consumer saw: the answer to a pop was lost.
    pub unseen: u64,
    /// The most attempts that may be unseen, by the pops without an answer.
    pub unseen_at_most: u64,
    /// Hand-outs that a promoted master forgot, so that their attempts came again.
    pub forgotten: usize,
    /// The counts of events at consumers.
    pub consumers: Counts,
    /// Instances that were killed.
    pub instances_killed: usize,
    /// Kills of Redis.
    pub redis_killed: usize,
    /// Another master was promoted.
    pub failovers: usize,
    /// Faults by kind.
    pub faults: BTreeMap<String, usize>,
    /// The number of broken promises.
    pub wrongs: usize,
    /// The first of them.
    pub wrong: Vec<String>,
}

/// Runs a campaign.
///
/// # Errors
/// The options do not fit, or the servers failed.
pub async fn run(options: &Options, say: fn(&str)) -> Result<Summary, Failure> {
    limit::allow(options.consumers)?;
    if options.redis != RedisMode::Single
        && !matches!(options.durability, Durability::Replica | Durability::FsyncReplica)
    {
        return Err(Failure::Unexpected(
            "a Cluster and sentinels lose acknowledged jobs below durability replica".to_owned(),
        ));
    }
    let waits = vec!["\"100ms\""; RETRY_COUNT].join(", ");
    let system = SystemOptions {
        redis: options.redis,
        instances: usize::from(options.instances),
        durability: options.durability,
        more: format!("queues.\"lab.*\" = {{ {QUEUE_RULES}, retry = [{waits}] }}"),
        ..SystemOptions::default()
    };
    let kinds =
        if options.consumers_only { Vec::new() } else { faults::kinds(&options.only, &system)? };
    let system = System::start(system).await.map_err(failure)?;
    say(&system.describe());
    let scene = Arc::new(Scene::new(
        (0..usize::from(options.instances)).map(|instance| system.http(instance).port()).collect(),
    ));
    let (began, mortal, seed) =
        (clock::now(), mortal(options), options.seed.unwrap_or_else(rand::random));
    let mut consumers = JoinSet::new();
    for number in 0..options.consumers {
        consumers.spawn(consume(scene.clone(), seed ^ (number as u64 + 1), number < mortal));
    }
    let crowding = tokio::spawn(crowd(scene.clone(), options.names));
    let producing =
        tokio::spawn(produce(scene.clone(), options.jobs, options.rate, seed.wrapping_add(7)));
    let mut struck = Struck::default();
    let mut wrong = Vec::new();
    let striking = struck.strike(&system, &scene, (seed, &kinds), say, || producing.is_finished());
    let (struck_well, in_time) = tokio::join!(striking, finished(&scene, options.jobs));
    struck_well?;
    let secs = began.elapsed().as_secs_f64();
    if !in_time {
        wrong.push(format!("no job was finished for {PROGRESS_TIMEOUT:?}"));
    }
    wrong.append(&mut struck.wrong);
    wrong.extend(left(&scene).await);
    scene.stop.cancel();
    producing.abort();
    let names = crowding.await.unwrap_or_default();
    while consumers.join_next().await.is_some() {}
    let mut inquests = std::mem::take(&mut *scene.inquests.lock());
    while inquests.join_next().await.is_some() {}
    wrong.extend(damage(&system).await?.into_iter().map(|damage| format!("fsck: {damage}")));
    wrong.extend(system.stop_instances().await);
    system.stop_servers().await.map_err(failure)?;
    Ok(Summary { seed, secs, names, ..summary(options, &scene, &struck, wrong) })
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

fn summary(options: &Options, scene: &Scene, struck: &Struck, mut wrong: Vec<String>) -> Summary {
    let ledger = scene.ledger.lock();
    let (sums, found) = (ledger.sums(), ledger.check(&struck.faults));
    let unseen_at_most = scene.tally.unanswered_jobs.get();
    if sums.unseen > unseen_at_most {
        wrong.push(format!(
            "{} attempts were seen by nobody, and pops without an answer explain {unseen_at_most}",
            sums.unseen
        ));
    }
    wrong.extend(found.wrong);
    Summary {
        seed: 0,
        redis: word(&options.redis),
        secs: 0.0,
        names: 0,
        jobs: sums.jobs,
        hand_outs: sums.hand_outs,
        unseen: sums.unseen,
        unseen_at_most,
        forgotten: found.forgotten,
        consumers: scene.tally.counts(),
        instances_killed: struck.count(faults::kills_dwell),
        redis_killed: struck.count(faults::kills_redis),
        failovers: struck.count(faults::fails_over),
        faults: struck.by_kind(),
        wrongs: wrong.len(),
        wrong: wrong.into_iter().take(MAX_REPORTED_FINDINGS).collect(),
    }
}

/// Waits until every job is finished; false if none is any more.
async fn finished(scene: &Scene, jobs: u64) -> bool {
    let (mut last, mut progress_at) = (0, clock::now());
    loop {
        let finished = scene.ledger.lock().finished();
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

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failure(error: crate::chaos::system::Error) -> Failure {
    Failure::Unexpected(error.to_string())
}
