//! Records in the format of a later version: unreadable, and the target of control requests.

use std::time::Duration;

use dwell::clock;
use dwell::store::keys::Keys;
use dwell::store::record::VERSION;
use rand::RngExt;

use super::{Done, Injection, Outcome, both};
use crate::chaos::history::{Job, Only};
use crate::chaos::load::extra::{Action, Extra, job};
use crate::chaos::system::{Error, Servers, System};
use crate::chaos::wait::within;

/// The version of a later program.
const LATER_VERSION: u8 = 250;
/// Sets the version of a record that has this one.
const SET_VERSION: &str = "local record = redis.call('HGET', KEYS[1], ARGV[1]) \
     if not record or string.byte(record, 1) ~= tonumber(ARGV[2]) then return 0 end \
     redis.call('HSET', KEYS[1], ARGV[1], string.char(ARGV[3]) .. string.sub(record, 2)) return 1";
/// The delays of the jobs, ms. One is cancelled, one rescheduled, one fired (over HTTP), and one
/// scheduled again with another time. Two fall due while their records are unreadable.
const DUE_MS: [i64; 4] = [8000, 8000, 35_000, 35_000];
/// The longest time until the jobs are stored: until before the first is due.
const STORE_TIMEOUT: Duration = Duration::from_secs(7);
/// The longest wait for the answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

pub(super) async fn record_damaged(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let keys = &system.redis.census.keys;
    let mut aside = Extra::open(system).await?;
    let target = system.any_target(rng);
    let now_ms = clock::wall_ms();
    let jobs = DUE_MS.map(|after_ms| {
        (format!("d-{:016x}", rng.random::<u64>()), job(target, now_ms + after_ms))
    });
    let ids = jobs.each_ref().map(|(id, _)| id.clone());
    aside.jobs(jobs.to_vec()).await;
    let servers = system.redis.servers.lock().await;
    // Each job, once it is stored.
    let damaged = within(STORE_TIMEOUT, "the jobs were not stored", async {
        for id in &ids {
            while !set_version(&servers, keys, id, (VERSION, LATER_VERSION)).await? {
                clock::sleep(CHECK_INTERVAL).await;
            }
        }
        Ok(())
    });
    let damaged = damaged.await;
    let from_us = clock::wall_us();
    if damaged.is_ok() {
        let overdue = clock::sleep(hold.max(Duration::from_millis(9000)));
        tokio::join!(overdue, clock::timeout(ANSWER_TIMEOUT, ask(system, &mut aside, &jobs)));
    }
    let mut restored = Ok(());
    for id in &ids {
        let set = set_version(&servers, keys, id, (LATER_VERSION, VERSION)).await;
        restored = restored.and(set.map(drop));
    }
    both(damaged, restored)?;
    let recorder = system.recorder()?;
    let set_aside: usize = ids.iter().map(|id| recorder.set_aside(id)).sum();
    let count = ids.len();
    let detail =
        format!("version {LATER_VERSION} in {count} records, {set_aside} requests were returned");
    let done = Done::healed_beside(detail, from_us, Only::Jobs(ids.into()));
    aside.close().await;
    Ok(done)
}

async fn set_version(
    servers: &Servers,
    keys: &Keys,
    id: &str,
    (from, to): (u8, u8),
) -> Result<bool, Error> {
    let key = keys.jobs(keys.bucket_of(id));
    let mut connection = servers.connect_to(key).await?;
    let mut call = redis::cmd("EVAL");
    call.arg(SET_VERSION).arg(1).arg(key).arg(id).arg(from).arg(to);
    Ok(call.query_async(&mut connection).await?)
}

/// Sends the control requests, and waits until each message was returned.
async fn ask(
    system: &System,
    aside: &mut Extra<'_>,
    [cancelled, moved, fired, again]: &[(String, Job); 4],
) {
    let Ok(recorder) = system.recorder() else { return };
    let later_ms = clock::wall_ms() + 60_000;
    let http = Some(system.instances.len() - 1);
    aside.ask(&cancelled.0, Action::Cancel, None, None).await;
    aside.ask(&moved.0, Action::Reschedule, Some(later_ms), None).await;
    aside.again(&again.0, Job { due_ms: later_ms, ..again.1.clone() }).await;
    aside.ask(&fired.0, Action::Fire, None, http).await;
    while [cancelled, moved, again].iter().any(|(id, _)| recorder.set_aside(id) == 0) {
        clock::sleep(CHECK_INTERVAL).await;
    }
}
