//! Records in the format of a later version: unreadable, and the target of control requests.

use std::time::Duration;

use dwell::clock;
use dwell::store::keys::Keys;
use rand::RngExt;

use super::{Done, Injection, Outcome, both, within};
use crate::chaos::history::{Job, Only};
use crate::chaos::load::extra::{Action, Extra, job};
use crate::chaos::system::{Error, Servers, System};

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
    let settings = system.store_settings();
    let keys = Keys::new(&settings.namespace, settings.buckets);
    let mut aside = Extra::open(system).await?;
    let ids: Vec<String> =
        DUE_MS.iter().map(|_| format!("d-{:016x}", rng.random::<u64>())).collect();
    let target = &system.targets()[rng.random_range(0..system.targets().len())];
    let now_ms = clock::wall_ms();
    let jobs: Vec<_> = ids
        .iter()
        .zip(DUE_MS)
        .map(|(id, after_ms)| (id.clone(), job(target, now_ms + after_ms)))
        .collect();
    aside.jobs(jobs.clone()).await;
    let servers = system.redis.servers.lock().await;
    let damaged = damage(&servers, &keys, &ids).await;
    let from_us = clock::wall_us();
    if damaged.is_ok() {
        let overdue = clock::sleep(hold.max(Duration::from_millis(9000)));
        tokio::join!(overdue, clock::timeout(ANSWER_TIMEOUT, ask(system, &mut aside, &jobs)));
    }
    let mut restored = Ok(());
    for id in &ids {
        restored = restored.and(
            set_version(&servers, &keys, id, (LATER_VERSION, dwell::store::record::VERSION))
                .await
                .map(drop),
        );
    }
    both(damaged, restored)?;
    let recorder = system.recorder()?;
    let set_aside: usize = ids.iter().map(|id| recorder.set_aside(id)).sum();
    let done = Done::healed_beside(
        format!(
            "version {LATER_VERSION} in {} records, {set_aside} requests were returned",
            ids.len()
        ),
        from_us,
        Only::Jobs(ids),
    );
    aside.close().await;
    Ok(done)
}

/// Damages each job once it is stored.
async fn damage(servers: &Servers, keys: &Keys, ids: &[String]) -> Result<(), Error> {
    let damaged = async {
        for id in ids {
            while !set_version(servers, keys, id, (dwell::store::record::VERSION, LATER_VERSION))
                .await?
            {
                clock::sleep(CHECK_INTERVAL).await;
            }
        }
        Ok(())
    };
    within(STORE_TIMEOUT, "the jobs were not stored", damaged).await
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
async fn ask(system: &System, aside: &mut Extra<'_>, jobs: &[(String, Job)]) {
    let (Ok(recorder), [cancelled, moved, fired, again]) = (system.recorder(), jobs) else {
        return;
    };
    let later_ms = clock::wall_ms() + 60_000;
    aside.ask(&cancelled.0, Action::Cancel, None).await;
    aside.ask(&moved.0, Action::Reschedule, Some(later_ms)).await;
    aside.again(&again.0, Job { due_ms: later_ms, ..again.1.clone() }).await;
    aside.ask_by_http(system.instances.len() - 1, &fired.0, Action::Fire).await;
    while [cancelled, moved, again].iter().any(|(id, _)| recorder.set_aside(id) == 0) {
        clock::sleep(CHECK_INTERVAL).await;
    }
}
