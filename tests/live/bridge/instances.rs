//! Several instances on one namespace: all take part, one is killed, one sleeps through its lease,
//! one has a wrong clock.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use dwell::clock;
use dwell_connectors::conformance::proxy::{Direction, Flow, Proxy};
use dwell_testkit::servers::{DwellServer, RedisOptions};
use futures_util::future::join_all;
use tempfile::TempDir;

use super::environment::{Claims, Environment, SETTLE, published, scraped};
use super::load::{Job, When};
use crate::preload::compiled;
use crate::support::wait_within;

/// A lease is five seconds more than the publish timeout. A busy machine confirms after seconds at
/// times.
const SETTINGS: &str = "redis.buckets = 64\ndelivery.max_in_flight = 200\ndelivery.publish_timeout = \"15s\"\n\
                        delivery.retry = [\"1s\", \"1s\", \"1s\", \"1s\", \"1s\", \"1s\"]";
/// The jobs that an instance has in flight when it is killed or stopped.
const MIN_IN_FLIGHT: usize = 10;

/// The time for which an instance hears nothing while it is not stopped. It gives up its connection
/// after six seconds.
const STALL_DURATION: Duration = Duration::from_secs(5);

/// An instance, and the proxy between it and NATS.
struct Instance {
    dwell: DwellServer,
    wire: Proxy,
}

impl Instance {
    async fn start(env: &Environment) -> Instance {
        let wire = Proxy::start(format!("127.0.0.1:{}", env.nats.port())).await.unwrap();
        let text = env
            .text()
            .replace(&format!(":{}", env.nats.port()), &format!(":{}", wire.address().port()));
        Instance {
            dwell: DwellServer::start(env!("CARGO_BIN_EXE_dwell").into(), &text).await.unwrap(),
            wire,
        }
    }

    /// Holds what NATS says to this instance, and stops the instance, by SIGSTOP, when it has jobs
    /// in flight. Returns all ids that were in flight meanwhile. The store does not say who claimed
    /// a job: a job belongs to this instance if it stays claimed while each of the others delivers.
    /// An instance that hears nothing gives up its connection after seconds, and its jobs with it:
    /// a busy machine may need several tries. The second part: the unknown outcomes that this
    /// instance had counted when the last try began.
    async fn freeze_in_flight(
        &self,
        claims: &Claims,
        others: &[Instance],
    ) -> (HashSet<String>, u64) {
        let (mut all, mut unknown) = (HashSet::new(), 0);
        wait_within(SETTLE, "it has jobs in flight of its own", async || {
            // After a try it connects again, and claims nothing meanwhile.
            let before = published(&self.dwell, "confirmed").await;
            wait_within(SETTLE, "it delivers", async || {
                (published(&self.dwell, "confirmed").await >= before + 5).then_some(())
            })
            .await;
            unknown = self.duplicates("unknown_outcome").await;
            self.wire.set(Direction::Down, Flow::Stall);
            let stalled = Instant::now();
            let (mut seen, mut confirmed) = (HashSet::new(), vec![u64::MAX; others.len()]);
            while stalled.elapsed() < STALL_DURATION {
                let (ids, now) = (claims.ids().await, confirmed_of(others).await);
                let own = ids.intersection(&seen).count();
                all.extend(ids.iter().cloned());
                if own >= MIN_IN_FLIGHT
                    && now
                        .iter()
                        .zip(&confirmed)
                        .all(|(now, before)| *now >= before.saturating_add(5))
                {
                    self.dwell.freeze().unwrap();
                    let left = claims.ids().await;
                    // Once more: a claim that it had sent may have been read by Redis after the
                    // first look.
                    all.extend(claims.ids().await);
                    if left.intersection(&seen).count() >= MIN_IN_FLIGHT {
                        all.extend(left);
                        return Some(());
                    }
                    self.dwell.thaw().unwrap();
                    break;
                }
                if own < MIN_IN_FLIGHT {
                    (seen, confirmed) = (ids, now);
                }
            }
            self.wire.heal();
            None
        })
        .await;
        (all, unknown)
    }

    /// Possible duplicates of this cause, so far.
    async fn duplicates(&self, cause: &str) -> u64 {
        scraped(&self.dwell, &format!("dwell_possible_duplicates_total{{cause=\"{cause}\"}}")).await
    }
}

/// Publications of each instance that are confirmed.
async fn confirmed_of(instances: &[Instance]) -> Vec<u64> {
    join_all(instances.iter().map(|one| published(&one.dwell, "confirmed"))).await
}

/// Leases that these instances took over.
async fn rescued_by(instances: &[Instance]) -> u64 {
    let mut rescued = 0;
    for one in instances {
        rescued += one.duplicates("rescued").await;
    }
    rescued
}

/// Returns the number of these jobs that have not arrived.
fn missing(env: &Environment, ids: &HashSet<String>) -> usize {
    let ledger = env.ledger.lock();
    ids.iter().filter(|id| ledger.arrivals_of(id) == 0).count()
}

#[tokio::test]
async fn of_four_instances_one_is_killed_and_one_sleeps_and_every_job_arrives() {
    let env = Environment::new("four", RedisOptions::default(), SETTINGS).await;
    let mut fleet: Vec<Instance> = Vec::new();
    for _ in 0..4 {
        fleet.push(Instance::start(&env).await);
    }
    let claims = Claims::of(&env).await;
    let load = env.load(10);
    env.until_arrived(1000).await;
    for one in &fleet {
        assert!(published(&one.dwell, "confirmed").await > 0, "all take part");
    }

    // On a busy machine a confirm may come too late. That copy is counted. The counts of instances
    // that are cut off or asleep concern jobs that are known to be in flight then.
    let rescued_before = rescued_by(&fleet[1..]).await;
    let (mut in_flight, mut unknown) = fleet[0].freeze_in_flight(&claims, &fleet[1..]).await;
    fleet[0].dwell.kill().unwrap();
    in_flight.extend(claims.ids().await);
    let killed = Instant::now();
    wait_within(SETTLE, "what it held was taken over, delivered and settled", async || {
        let is_over = missing(&env, &in_flight) == 0 && claims.ids().await.is_disjoint(&in_flight);
        (is_over && rescued_by(&fleet[1..]).await > rescued_before).then_some(())
    })
    .await;
    println!(
        "{} jobs that were in flight at the kill were taken over and settled after {:?}; the lease is 20 s",
        in_flight.len(),
        killed.elapsed()
    );

    let sleeper = &fleet[1];
    let rescued_before = rescued_by(&fleet[2..]).await;
    let (asleep, unknown_before) = sleeper.freeze_in_flight(&claims, &fleet[2..]).await;
    unknown += unknown_before;
    wait_within(SETTLE, "what it held was taken over", async || {
        (missing(&env, &asleep) == 0 && rescued_by(&fleet[2..]).await > rescued_before)
            .then_some(())
    })
    .await;
    let log = sleeper.dwell.dir().join("log");
    let logged = std::fs::read_to_string(&log).unwrap().len();
    sleeper.wire.heal();
    sleeper.dwell.thaw().unwrap();
    // The jobs that it slept over are in its hands, or in the answer to a claim or a settlement,
    // which comes too late when it wakes.
    wait_within(SETTLE, "it finds that it lost them", async || {
        let log = std::fs::read_to_string(&log).unwrap();
        let is_answer_lost =
            ["claiming failed", "settling failed"].iter().any(|line| log[logged..].contains(line));
        (is_answer_lost || scraped(&sleeper.dwell, "dwell_leases_lost_total").await > 0)
            .then_some(())
    })
    .await;
    let before = published(&sleeper.dwell, "confirmed").await;
    wait_within(SETTLE, "it takes part again", async || {
        (published(&sleeper.dwell, "confirmed").await > before + 20).then_some(())
    })
    .await;
    let awake = sleeper.duplicates("unknown_outcome").await;
    load.finish().await;
    let left = env.settled().await;

    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    unknown += sleeper.duplicates("unknown_outcome").await - awake;
    for one in &fleet[2..] {
        unknown += one.duplicates("unknown_outcome").await;
    }
    let ledger = env.ledger.lock();
    let copies = ledger.sound_where(&asleep);
    in_flight.extend(asleep);
    println!("{} jobs, {} copies, {unknown} unknown outcomes", ledger.count(), copies.len());
    let of_no_fault = |id: &str| copies.contains_key(id) && !in_flight.contains(id);
    let stray: Vec<_> = ledger
        .arrivals()
        .filter(|(id, _)| of_no_fault(id))
        .map(|(id, of)| (id, of.attempt, of.due_ms, of.at_ms))
        .collect();
    let count = stray.iter().map(|(id, ..)| id).collect::<HashSet<_>>().len() as u64;
    assert!(
        count <= unknown,
        "{count} repeated, not in flight at a fault, and only {unknown} counted; id, attempt, due and arrival in ms: {:?}",
        &stray[..stray.len().min(20)]
    );
    assert_eq!(ledger.uncertain(), 0, "the broker was up");
}

#[tokio::test]
async fn instances_whose_clocks_are_a_minute_wrong_fire_nothing_early_and_lose_nothing() {
    let folder = TempDir::new().unwrap();
    // That of the campaigns: the wall clock is wrong by as many seconds as a file says.
    let library = compiled(folder.path(), "lab/src/chaos/system/clock.c");
    let env = Environment::new("clock", RedisOptions::default(), SETTINGS).await;
    let mut fleet = Vec::new();
    for offset in ["-60", "60", ""] {
        let mut dwell = env.prepared();
        // The wall clock alone: a host's is set, its monotonic one never jumps.
        if !offset.is_empty() {
            let file = folder.path().join(offset);
            std::fs::write(&file, offset).unwrap();
            dwell.set_env([
                ("LD_PRELOAD", library.to_str().unwrap()),
                ("CHAOS_CLOCK_OFFSET", file.to_str().unwrap()),
            ]);
        }
        dwell.restart().await.unwrap();
        let log = std::fs::read_to_string(dwell.dir().join("log")).unwrap();
        let line: serde_json::Value =
            log.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap();
        let said_ms = dwell::units::parse_time_ms(line["timestamp"].as_str().unwrap()).unwrap();
        assert_eq!(
            (clock::wall_ms() - said_ms).abs() > 45_000,
            !offset.is_empty(),
            "its clock is {offset:?}: {line}"
        );
        fleet.push(dwell);
    }
    let load = env.load(60);
    env.until_arrived(800).await;
    let due_ms = clock::wall_ms() + 2500;
    let named: Vec<Job> =
        (0..200).map(|n| Job { id: format!("named-{n}"), when: When::At(due_ms) }).collect();
    env.producer().send(&named).await;
    load.finish().await;
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    for dwell in &fleet {
        assert!(published(dwell, "confirmed").await > 0, "all take part");
    }
    let ledger = env.ledger.lock();
    assert_eq!(
        (ledger.sound().len(), ledger.attempts_burned(), ledger.uncertain()),
        (0, 0, 0),
        "nothing early, lost or repeated"
    );
}
