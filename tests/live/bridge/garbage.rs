//! Garbage written by hand into every key of a namespace while two instances deliver: it harms no
//! job but its own, and does not drown the log.

use std::collections::BTreeSet;

use dwell::clock;
use dwell::store::record;
use dwell_testkit::servers::{DwellServer, RedisOptions};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ToRedisArgs};

use super::environment::{Environment, SETTLE};
use super::load::{Job, When};
use crate::commands::fixture::run_with;
use crate::store::fixture::{FAR, request};
use crate::support::{jetstream, wait_within};

const BUCKETS: u16 = 8;
/// The most warnings and errors of an instance a second, whatever stands in Redis.
const MAX_LOGS_PER_SECOND: usize = 20;

/// A hand that writes into the namespace, past Dwell.
struct Vandal {
    link: MultiplexedConnection,
    namespace: String,
    random: StdRng,
    /// Ids that were written, all of them with something wrong.
    written: usize,
}

impl Vandal {
    async fn new(env: &Environment) -> Self {
        let link = crate::support::redis_link(env.redis.url()).await;
        Vandal {
            link,
            namespace: env.settings.redis.namespace.clone(),
            random: StdRng::seed_from_u64(7),
            written: 0,
        }
    }

    fn key(&self, bucket: u16, part: &str) -> String {
        format!("{{{}:{bucket:02}}}:{part}", self.namespace)
    }

    async fn does(&mut self, command: &Cmd) {
        command.query_async::<redis::Value>(&mut self.link).await.unwrap();
    }

    async fn hset(&mut self, key: String, field: impl ToRedisArgs, value: impl ToRedisArgs) {
        self.does(redis::cmd("HSET").arg(key).arg(field).arg(value)).await;
    }

    async fn zadd(&mut self, key: String, score: impl ToRedisArgs, id: impl ToRedisArgs) {
        self.does(redis::cmd("ZADD").arg(key).arg(score).arg(id)).await;
    }

    fn noise(&mut self, most: usize) -> Vec<u8> {
        let length = self.random.random_range(1..=most);
        let mut bytes = vec![0; length];
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    /// A name that no job has, now and then no text.
    fn id(&mut self) -> Vec<u8> {
        self.written += 1;
        let mut id = format!("vandal-{}", self.written).into_bytes();
        if self.written.is_multiple_of(7) {
            id.extend([0xff, 0, b'\n']);
        }
        id
    }

    /// A record with something wrong.
    fn bad_record(&mut self) -> Vec<u8> {
        let mut good = record::encode(&request("vandal", 1, FAR), *b"generate");
        match self.random.random_range(0..6) {
            0 => self.noise(300),
            1 => good[..self.random.random_range(1..good.len() - 4)].to_vec(),
            // A version that is not known.
            2 => {
                good[0] = self.random.random_range(2..=255);
                good
            }
            // Metadata that is none, and lengths that lead anywhere.
            3 => {
                good[35..].fill(0xc1);
                good
            }
            4 => {
                good[31..].fill(0xff);
                good
            }
            _ => {
                let at = self.random.random_range(31..good.len());
                good[at] ^= 0x80;
                good
            }
        }
    }

    /// Something of everything into every key of a bucket that can hold it.
    async fn litter(&mut self, bucket: u16) {
        let now_ms = clock::wall_ms();
        for set in ["due:main", "held", "dead"] {
            for _ in 0..6 {
                let (id, bytes) = (self.id(), self.bad_record());
                self.hset(self.key(bucket, "jobs"), &id, bytes).await;
                self.zadd(self.key(bucket, set), now_ms - 1, &id).await;
            }
            // Without a record; with a record that is whole, and a state that is not.
            let (id, other, noise) = (self.id(), self.id(), self.noise(60));
            self.zadd(self.key(bucket, set), now_ms - 2, &id).await;
            let good = record::encode(&request("vandal", 1, FAR), *b"generate");
            self.hset(self.key(bucket, "jobs"), &other, good).await;
            self.hset(self.key(bucket, "state"), &other, noise).await;
            self.zadd(self.key(bucket, set), "-inf", &other).await;
            let never = self.id();
            let good = record::encode(&request("vandal", 1, FAR), *b"generate");
            self.hset(self.key(bucket, "jobs"), &never, good).await;
            self.zadd(self.key(bucket, set), ["+inf", "1.5"][usize::from(bucket % 2)], &never)
                .await;
        }
        for hash in
            ["state", "completed", "completed_old", "applied", "applied_old", "claims", "settled"]
        {
            let (field, noise) = (self.noise(20), self.noise(60));
            self.hset(self.key(bucket, hash), field, noise).await;
        }
        // Leases of which a part is missing, and one with odd parts.
        let (nonce, text, bits) = (self.noise(8), self.noise(60), self.noise(5));
        self.hset(self.key(bucket, "claims"), &nonce, text).await;
        self.hset(self.key(bucket, "settled"), &nonce, bits).await;
        for member in [nonce, self.noise(8)] {
            self.does(
                redis::cmd("ZADD")
                    .arg(self.key(bucket, "claim_deadlines"))
                    .arg(now_ms - 1)
                    .arg(member),
            )
            .await;
        }
        let (key, noise) = (format!("{}:wake", self.namespace), self.noise(40));
        self.does(redis::cmd("PUBLISH").arg(key).arg(noise)).await;
    }
}

/// Returns the number of warnings and errors that an instance has logged, and the fixed messages
/// among them.
fn complaints(dwell: &DwellServer) -> (usize, BTreeSet<String>) {
    let log = std::fs::read_to_string(dwell.dir().join("log")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let loud: Vec<String> = lines
        .filter(|line| line["level"] == "ERROR" || line["level"] == "WARN")
        .map(|line| line["message"].as_str().unwrap().to_owned())
        .collect();
    (loud.len(), loud.into_iter().collect())
}

#[tokio::test]
async fn garbage_in_every_key_harms_no_job_and_does_not_drown_the_log() {
    let env =
        Environment::new("garbage", RedisOptions::default(), &format!("redis.buckets = {BUCKETS}"))
            .await;
    let (one, two) = (env.dwell().await, env.dwell().await);
    let load = env.load(20);
    env.until_arrived(200).await;
    let mut vandal = Vandal::new(&env).await;
    let began = clock::now();
    for bucket in 0..BUCKETS {
        vandal.litter(bucket).await;
    }
    let (instances, meta) =
        (format!("{}:instances", vandal.namespace), format!("{}:meta", vandal.namespace));
    let (field, noise) = (vandal.noise(20), vandal.noise(20));
    vandal.hset(meta, field, noise).await;
    let name = vandal.noise(20);
    vandal.zadd(instances.clone(), clock::wall_ms(), name).await;
    let arrived = env.ledger.lock().distinct();
    env.until_arrived(arrived + 1000).await;

    load.finish().await;
    let count = env.ledger.lock().count();
    env.until_arrived(count).await;

    // Keys of another type: nothing of these buckets can be delivered until they are repaired, and
    // everything of the others is.
    let due_ms = clock::wall_ms() + 15_000;
    let jobs: Vec<Job> =
        (0..400).map(|n| Job { id: format!("late-{n}"), when: When::At(due_ms) }).collect();
    env.producer().send(&jobs).await;
    let port = env.nats.port();
    wait_within(SETTLE, "every request is taken", async || {
        (jetstream::messages(port, "REQUESTS").await == 0).then_some(())
    })
    .await;
    for key in [vandal.key(0, "state"), vandal.key(1, "claim_deadlines"), instances] {
        vandal.does(redis::cmd("DEL").arg(&key)).await;
        vandal.does(redis::cmd("SET").arg(&key).arg("mine")).await;
    }
    assert!(clock::wall_ms() < due_ms, "the keys were broken before any of them was due");
    let store = env.store().await;
    let whole = jobs.iter().filter(|job| store.keys().bucket_of(&job.id) > 1).count();
    env.until_arrived(count + whole).await;
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    for dwell in [&one, &two] {
        let (count, messages) = complaints(dwell);
        println!("{count} complaints in {seconds} s: {messages:#?}");
        assert!(count <= MAX_LOGS_PER_SECOND * seconds, "{count} in {seconds} s: {messages:#?}");
        assert!(count > 0, "damage is told");
    }

    assert_eq!(env.ledger.lock().distinct(), count + whole);
    let config = one.dir().join("dwell.toml").display().to_string();
    let found = run_with(&["-c", &config, "-o", "json", "fsck"], b"");
    assert_eq!(found.code, 1, "{}", found.err);
    let problems: BTreeSet<String> =
        found.lines().iter().map(|line| line["problem"].as_str().unwrap().to_owned()).collect();
    println!("{} findings: {problems:?}", found.lines().len());
    for problem in
        ["unreadable_record", "unknown_version", "bad_score", "bad_id", "wrong_type", "bad_memory"]
    {
        assert!(problems.contains(problem), "{problem} in {problems:?}");
    }
    // Records that another version may have written stay, and are named again. A job in the wrong
    // bucket that an instance has claimed stays until its lease ends.
    wait_within(SETTLE, "no finding but those of unknown versions", async || {
        assert_eq!(run_with(&["-c", &config, "fsck", "--repair"], b"").code, 1);
        let left = run_with(&["-c", &config, "-o", "json", "fsck"], b"");
        left.lines().iter().all(|line| line["problem"] == "unknown_version").then_some(())
    })
    .await;

    env.until_arrived(count + jobs.len()).await;
    let (copies, uncertain) = {
        let ledger = env.ledger.lock();
        (ledger.sound().len(), ledger.uncertain())
    };
    assert_eq!((copies, uncertain), (0, 0), "no job was repeated");
    for mut dwell in [one, two] {
        assert_eq!(dwell.stop().await.unwrap().unwrap().code(), Some(0), "it ran to its end");
    }
}
