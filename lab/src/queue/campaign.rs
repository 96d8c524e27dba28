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
use super::http::Link;
use super::limit;
use super::producer::{crowd, produce};
use super::scene::{QUEUE, Scene};
use super::tally::Counts;
use crate::chaos::campaign::{damage, redis_word};
use crate::chaos::fault::FaultKind;
use crate::chaos::system::{System, SystemOptions};

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
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of jobs.
    pub jobs: u64,
    /// Jobs scheduled a second; 0: as many as possible.
    pub rate: u64,
    /// The number of other queues, which have a job each; every second job is cancelled.
    pub names: u64,
    /// The number of consumers at a time.
    pub consumers: usize,
    /// The share of them that is killed, from 0 to 1.
    pub killed: f64,
    /// The number of instances.
    pub instances: usize,
    /// The kind of Redis.
    pub redis: RedisMode,
    /// `redis.durability`
    pub durability: Durability,
    /// Kill instances and Redis too.
    pub faults: bool,
    /// Only these kinds of faults; empty: all that kill.
    pub only: Vec<FaultKind>,
    /// The seed of all that is random.
    pub seed: u64,
    /// Prints progress.
    pub say: fn(&str),
}

/// The result of a campaign.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// `redis.mode`
    pub redis: &'static str,
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
pub async fn run(options: Options) -> Result<Summary, Failure> {
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
        instances: options.instances,
        durability: options.durability,
        more: format!("queues.\"lab.*\" = {{ {QUEUE_RULES}, retry = [{waits}] }}"),
        ..SystemOptions::default()
    };
    let kinds = if options.faults { faults::kinds(&options.only, &system)? } else { Vec::new() };
    let system = System::start(system).await.map_err(failure)?;
    (options.say)(&system.describe());
    let scene = Arc::new(Scene::new(
        (0..options.instances).map(|instance| system.http(instance).port()).collect(),
    ));
    let (began, mortal) = (clock::now(), mortal(&options));
    let mut consumers = JoinSet::new();
    for number in 0..options.consumers {
        consumers.spawn(consume(
            scene.clone(),
            options.seed ^ (number as u64 + 1),
            number < mortal,
        ));
    }
    let crowding = tokio::spawn(crowd(scene.clone(), options.names));
    let producing = tokio::spawn(produce(
        scene.clone(),
        options.jobs,
        options.rate,
        options.seed.wrapping_add(7),
    ));
    let mut struck = Struck::default();
    let mut wrong = Vec::new();
    let striking = struck
        .strike(&system, &scene, (options.seed, &kinds), options.say, || producing.is_finished());
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
    Ok(Summary { secs, names, ..summary(&options, &scene, &struck, wrong) })
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
        seed: options.seed,
        redis: redis_word(options.redis),
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
