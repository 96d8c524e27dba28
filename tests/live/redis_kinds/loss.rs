//! The jobs that survive at each durability level: a power cut that keeps only the synced part of
//! the append-only file, and a replica that is promoted while its master still runs. Prints the
//! figures.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell::config::{Durability, Redis};
use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisServer, find};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::store::fixture::{FAR, MAIN, open, request, settings};
use crate::support::{namespace, wait_until};

/// Callers side by side.
const CALLERS: u64 = 4;
/// Jobs a call.
const BATCH: u64 = 10;

/// Callers that schedule one batch after another until the store refuses one, and the jobs that
/// were acknowledged to them.
struct Callers {
    acked: Arc<Mutex<Vec<String>>>,
    tasks: JoinSet<()>,
}

impl Callers {
    async fn start(settings: &Redis) -> Callers {
        let store = Arc::new(open(settings, &[MAIN]).await);
        let acked: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut tasks = JoinSet::new();
        for caller in 0..CALLERS {
            let (store, acked) = (store.clone(), acked.clone());
            tasks.spawn(async move {
                for number in 0.. {
                    let first = (number * CALLERS + caller) * BATCH;
                    let batch: Vec<_> = (first..first + BATCH)
                        .map(|n| request(&format!("job-{n}"), n, FAR))
                        .collect();
                    if store.jobs.schedule(&batch).await.is_err() {
                        return;
                    }
                    acked
                        .lock()
                        .extend(batch.into_iter().map(|request| request.id.as_str().to_owned()));
                }
            });
        }
        Callers { acked, tasks }
    }

    fn count(&self) -> usize {
        self.acked.lock().len()
    }

    async fn until(&self, count: usize) {
        wait_until("jobs are acknowledged", async || (self.count() >= count).then_some(())).await;
    }

    /// Returns the acknowledged jobs, once every caller was refused.
    async fn refused(mut self) -> Vec<String> {
        while self.tasks.join_next().await.is_some() {}
        self.taken()
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.acked.lock())
    }
}

/// Returns the number of these jobs that the server does not have.
async fn missing(server: &RedisServer, namespace: &str, acked: &[String]) -> usize {
    let mut raw = crate::support::redis_link(&server.url()).await;
    let mut there: HashSet<String> = HashSet::new();
    for bucket in 0..4 {
        let key = format!("{{{namespace}:{bucket:02}}}:jobs");
        there.extend(
            redis::cmd("HKEYS").arg(key).query_async::<Vec<String>>(&mut raw).await.unwrap(),
        );
    }
    acked.iter().filter(|id| !there.contains(*id)).count()
}

/// The one file that grows.
fn appended(server: &RedisServer) -> PathBuf {
    let files = std::fs::read_dir(server.dir().join("appendonlydir"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files.max_by_key(|path| (path.to_string_lossy().contains(".incr."), path.clone())).unwrap()
}

/// Returns the part of this file that was synced for sure, bytes.
fn synced(notes: &Path, file: &Path) -> u64 {
    let notes = std::fs::read_to_string(notes).unwrap_or_default();
    let of_file = |line: &str| {
        line.split_once(' ')
            .filter(|(_, path)| Path::new(path) == file)
            .and_then(|(size, _)| size.parse().ok())
    };
    notes.lines().filter_map(of_file).max().unwrap_or(0)
}

/// Returns the number of acknowledged jobs, and the numbers that are gone after a kill and after a
/// power cut.
async fn cut(
    program: Option<PathBuf>,
    fsync: AppendFsync,
    durability: Durability,
) -> (usize, usize, usize) {
    let folder = TempDir::new().unwrap();
    // It notes what was synced.
    let library = crate::preload::compiled(folder.path(), "tests/live/redis_kinds/synced.c");
    let notes = folder.path().join("notes");
    let options = RedisOptions { program, appendonly: Some(fsync), ..RedisOptions::default() };
    let mut server = RedisServer::start(options).await.unwrap();
    server
        .set_env([("LD_PRELOAD", library.to_str().unwrap()), ("SYNCED", notes.to_str().unwrap())]);
    server.restart().await.unwrap();
    let settings = Redis { durability, ..settings(&server.url(), &namespace("cut"), 4) };
    let callers = Callers::start(&settings).await;
    callers.until(200).await;
    // It has been synced under load, and there is more since.
    let file = appended(&server);
    let first = synced(&notes, &file);
    wait_until("the file is synced", async || (synced(&notes, &file) > first).then_some(())).await;
    let then = callers.count();
    callers.until(then + 200).await;
    server.kill().unwrap();
    let acked = callers.refused().await;
    let (all, left) = (std::fs::read(&file).unwrap(), synced(&notes, &file));
    assert!(left <= all.len() as u64);
    server.set_env([]);
    server.restart().await.unwrap();
    let killed = missing(&server, &settings.namespace, &acked).await;
    server.kill().unwrap();
    std::fs::write(&file, &all[..usize::try_from(left).unwrap()]).unwrap();
    server.restart().await.unwrap();
    (acked.len(), killed, missing(&server, &settings.namespace, &acked).await)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_power_cut_takes_what_was_not_synced_and_nothing_of_what_fsync_acknowledged() {
    let newer = find::redis_server_waitaof().unwrap();
    let memory = async {
        let mut cut_off = cut(None, AppendFsync::EverySec, Durability::Memory).await;
        // A machine that stands still for a second right before the cut leaves nothing to sync.
        for _again in 0..3 {
            if cut_off.2 == 0 {
                cut_off = cut(None, AppendFsync::EverySec, Durability::Memory).await;
            }
        }
        cut_off
    };
    let (memory, always, waited) = tokio::join!(
        memory,
        cut(None, AppendFsync::Always, Durability::Fsync),
        cut(Some(newer), AppendFsync::EverySec, Durability::Fsync),
    );
    for (level, (acked, killed, cut)) in [
        ("memory, everysec", memory),
        ("fsync, appendfsync always", always),
        ("fsync, everysec and WAITAOF", waited),
    ] {
        println!(
            "{level}: of {acked} acknowledged, a killed server lost {killed}, a power cut {cut}"
        );
    }
    assert!(memory.2 > 0, "the window of `memory` was not met");
    assert_eq!((always.1, always.2, waited.1, waited.2), (0, 0, 0, 0));
}

/// Returns the jobs that were acknowledged before the replica took over and after, and the number
/// of both that the replica does not have.
async fn promoted(program: Option<PathBuf>, durability: Durability) -> (usize, usize, usize) {
    let options = RedisOptions {
        program,
        appendonly: Some(AppendFsync::EverySec),
        ..RedisOptions::default()
    };
    let master = RedisServer::start(options.clone()).await.unwrap();
    let replica = RedisServer::start(RedisOptions { replica_of: Some(master.port()), ..options })
        .await
        .unwrap();
    let settings = Redis { durability, ..settings(&master.url(), &namespace("promoted"), 4) };
    let callers = Callers::start(&settings).await;
    callers.until(200).await;
    replica.order(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    let before = callers.count();
    let acked = if durability == Durability::Memory {
        // The master was cut off, and does not know.
        callers.until(before + 200).await;
        drop(master);
        callers.refused().await
    } else {
        callers.refused().await
    };
    (before, acked.len() - before, missing(&replica, &settings.namespace, &acked).await)
}

#[tokio::test]
async fn a_replica_that_takes_over_has_all_that_replica_acknowledged() {
    let newer = find::redis_server_waitaof().unwrap();
    let (memory, replica, both) = tokio::join!(
        promoted(None, Durability::Memory),
        promoted(None, Durability::Replica),
        promoted(Some(newer), Durability::FsyncReplica),
    );
    for (level, (before, after, lost)) in
        [("memory", memory), ("replica", replica), ("fsync+replica", both)]
    {
        println!(
            "{level}: {before} acknowledged until a replica took over and {after} after, {lost} of them lost"
        );
    }
    assert!(memory.2 > 0, "what only the master had is lost");
    assert_eq!((replica.2, both.2), (0, 0));
}
