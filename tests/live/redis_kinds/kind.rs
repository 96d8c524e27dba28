//! Jobs under load on a kind of Redis, their results, and the commands.

use std::collections::HashMap;
use std::sync::Arc;

use dwell::clock;
use dwell::config::{Redis, RedisMode};
use dwell::job::{Action, Verdict};
use dwell::store::{Store, Unobserved};

use crate::bridge::environment::{Environment, NO_DEDUPE};
use crate::commands::fixture::{Said, run_with};
use crate::store::fixture::{FAR, PAST, RETRY, action, request, target_on};
use crate::support::{namespace, wait_until};

/// A broker of the namespace that nobody delivers to.
const IDLE: &str = "idle";

/// Returns the fewest jobs of a story with a failover.
pub(super) fn jobs(default: usize) -> usize {
    std::env::var("DWELL_KIND_JOBS").map_or(default, |count| count.parse().unwrap())
}

/// Returns the number of jobs that are sent each tenth of a second: the long form must not take all
/// day.
pub(super) fn per_tick() -> usize {
    (jobs(0) / 100).max(60)
}

/// The settings that lead to a Redis of this kind.
pub(super) fn lines(mode: &str, urls: &[String], durability: &str) -> String {
    format!("redis.mode = \"{mode}\"\nredis.urls = {urls:?}\nredis.durability = \"{durability}\"")
}

/// A bridge on this Redis, not started yet, and its settings as a file.
pub(super) async fn env<R>(
    test: &str,
    redis: R,
    lines: &str,
) -> (Environment<R>, tempfile::NamedTempFile) {
    let env = Environment::over(test, redis, lines, "", NO_DEDUPE).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), env.text()).unwrap();
    (env, file)
}

/// Runs a command with these settings; it must succeed.
#[track_caller]
pub(super) fn command(file: &tempfile::NamedTempFile, arguments: &[&str]) -> Said {
    let said = run_with(&[&["-c", file.path().to_str().unwrap()], arguments].concat(), b"");
    assert_eq!(said.code, 0, "{arguments:?}: {} {}", said.out, said.err);
    said
}

/// Runs every command once, beside an instance that runs: reports, an action, and no damage.
/// Answers the lines of `check`.
pub(super) async fn all_commands(file: &tempfile::NamedTempFile) -> Vec<serde_json::Value> {
    let checks = command(file, &["check", "-o", "json"]).lines();
    assert!(checks.iter().any(|check| check["check"] == "redis.durability"), "{checks:?}");
    let id = namespace("by-hand");
    command(file, &["send", "--target", "orders.new", "--for", "1h", "--id", &id]);
    let settings = file.path().to_str().unwrap();
    wait_until("it is stored", async || {
        (run_with(&["-c", settings, "show", &id], b"").code == 0).then_some(())
    })
    .await;
    assert!(command(file, &["ls", "--limit", "1000"]).out.contains(&id));
    assert!(command(file, &["stats"]).out.contains("scheduled"));
    assert!(command(file, &["reschedule", &id, "--for", "2h"]).out.contains("rescheduled"));
    assert!(command(file, &["cancel", &id]).out.contains("cancelled"));
    for arguments in [&["fsck"][..], &["fsck", "--repair"]] {
        assert!(command(file, arguments).out.starts_with("no damage"), "{arguments:?}");
    }
    checks
}

/// Checks a run in which a master was lost: no job lost, early or damaged. Completions that were
/// not replicated are made again, and where the claim was lost with them, under the number that the
/// first one had. Prints the copies.
#[track_caller]
pub(super) fn nothing_lost<R>(env: &Environment<R>, story: &str) {
    let ledger = env.ledger.lock();
    let report = ledger.report();
    let wrong =
        [&report.lost, &report.early, &report.misdated, &report.damaged, &report.unexpected];
    assert!(wrong.iter().all(|list| list.is_empty()), "{story}: {wrong:?}");
    println!(
        "{story}: {} jobs asked for, {} lost, {} arrived, {} copies past the first, {} of them under the number of the first",
        ledger.count(),
        report.lost.len(),
        ledger.distinct(),
        report.duplicates.values().sum::<usize>(),
        report.unnumbered.len()
    );
}

/// Prints how long after this time (epoch ms) the first job was delivered: of any, and of these
/// buckets.
pub(super) fn tell_recovery<R>(
    env: &Environment<R>,
    story: &str,
    since_ms: i64,
    is_meant: impl Fn(&str) -> bool,
) {
    let ledger = env.ledger.lock();
    let first = |meant: &dyn Fn(&str) -> bool| {
        let times = ledger
            .arrivals()
            .filter(|(id, arrival)| arrival.at_ms >= since_ms && meant(id))
            .map(|(_, arrival)| arrival.at_ms);
        times.min().map_or("none".to_owned(), |at_ms| format!("{} ms", at_ms - since_ms))
    };
    println!(
        "{story}: first delivery after the failover: of any job {}, of the master's own {}",
        first(&|_| true),
        first(&is_meant)
    );
}

/// The wall clock, epoch ms: JetStream's.
pub(super) fn now_ms() -> i64 {
    clock::wall_ms()
}

/// Jobs that nobody delivers, one due long ago and one that is not due yet per bucket: what a
/// cancel says of them after a failover.
pub(super) struct Bystanders {
    store: Store,
    /// By bucket.
    ids: HashMap<u16, (String, String)>,
}

impl Bystanders {
    pub(super) async fn new(settings: &Redis) -> Bystanders {
        let store = Store::open(settings, &[IDLE.to_owned()], Arc::new(Unobserved)).await.unwrap();
        let mut ids = HashMap::new();
        for number in 0.. {
            let (due, ahead) = (format!("due-{number}"), format!("ahead-{number}"));
            let bucket = store.keys().bucket_of(&due);
            // The number of one that goes to the same bucket.
            let twin = (0..)
                .map(|salt| format!("{ahead}-{salt}"))
                .find(|id| store.keys().bucket_of(id) == bucket)
                .unwrap();
            ids.entry(bucket).or_insert((due, twin));
            if ids.len() == usize::from(store.keys().buckets()) {
                break;
            }
        }
        let mut batch = Vec::new();
        for (message, (due, ahead)) in (1_u64..).step_by(2).zip(ids.values()) {
            batch.extend([request(due, message, PAST), request(ahead, message + 1, FAR)]);
        }
        batch.iter_mut().for_each(|request| request.job.target = target_on(IDLE));
        store.jobs.schedule(&batch).await.unwrap();
        Bystanders { store, ids }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Cancels all of them: `cancelled` is never said of one that was due before the master of its
    /// bucket changed.
    pub(super) async fn cancel(&self, has_changed: impl Fn(u16) -> bool) {
        for (message, (bucket, (due, ahead))) in (100_000_u64..).step_by(2).zip(&self.ids) {
            let cancel = async |id: &str, message| {
                let act = action(Action::Cancel, id, message);
                wait_until("an answer", async || self.store.jobs.act(&act, RETRY).await.ok())
                    .await
                    .verdict
            };
            let wanted = if has_changed(*bucket) {
                Verdict::CancelledAfterAttempt
            } else {
                Verdict::Cancelled
            };
            assert_eq!(
                (cancel(due, message).await, cancel(ahead, message + 1).await),
                (wanted, Verdict::Cancelled),
                "bucket {bucket}"
            );
        }
    }
}

/// In a cluster a key is in the slot of its tag.
pub(super) fn tag(settings: &Redis, bucket: u16) -> String {
    assert_eq!(settings.mode, RedisMode::Cluster);
    format!("{{{}:{bucket:02}}}", settings.namespace)
}
