//! The Redis in memory against a real one: the same calls, with the same clock, have the same
//! answers and leave the same data.

use dwell_store::store::scripts::Name;
use dwell_testkit::servers::{RedisOptions, RedisServer};

use crate::call::Call;
use crate::lua::Scripts;
use crate::random::Random;
use crate::real::Real;
use crate::redis::{Moment, Store};
use crate::reply::Reply;

const RUNS: u64 = 300;
const CALLS: usize = 60;
const CLOCK: &[u8] = b"{model:00}:clock";

/// A script that reads the clock, and the name of the master, from a key. It takes leases in the
/// order of their nonces: HGETALL promises none, and after a damage an id may be in two.
fn with_clock(name: Name) -> String {
    let edits = [
        ("call('TIME')", "call('HMGET', '{model:00}:clock', 's', 'us')"),
        ("call('INFO', 'server', 'replication')", "call('HGET', '{model:00}:clock', 'info')"),
        (
            "  return ALL_CLAIMS\n",
            "  table.sort(ALL_CLAIMS, function(a, b) return a.nonce < b.nonce end)\n  return ALL_CLAIMS\n",
        ),
    ];
    edits.iter().fold(name.source(1), |source, (old, new)| source.replace(old, new))
}

/// The Redis in memory and the real one.
struct Pair {
    scripts: Scripts,
    store: Store,
    real: Real,
    log: Vec<String>,
}

impl Pair {
    fn command(&mut self, words: &[Vec<u8>]) {
        let moment = Moment { now_us: 0, info: "" };
        let reply = self.store.command(&moment, words).unwrap_or_else(Reply::Error);
        let words_of = || {
            words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
        };
        self.log.push(words_of());
        let real = self.real.command(words);
        self.compare(&reply, &real);
    }

    fn run(&mut self, call: &Call) -> Reply {
        let arguments: Vec<String> =
            call.arguments.iter().map(|word| word.escape_ascii().to_string()).collect();
        self.log.push(format!("{} {}", call.name.as_str(), arguments.join(" ")));
        let moment = Moment { now_us: 0, info: "" };
        let reply;
        (self.store, reply) = self.scripts.run(&self.store, &moment, call);
        let real = self.real.run(call);
        // Nonces in the order of a Lua table.
        let sorted = |reply: &Reply| {
            let mut items = reply.items().to_vec();
            items.sort_by(|one, other| one.bytes().cmp(other.bytes()));
            Reply::Array(items)
        };
        match call.name {
            Name::FsckLeases => self.compare(&sorted(&reply), &sorted(&real)),
            _ => self.compare(&reply, &real),
        }
        reply
    }

    fn compare(&self, reply: &Reply, real: &Reply) {
        let same = match (reply, real) {
            // The texts of errors differ.
            (Reply::Error(_), Reply::Error(_)) => true,
            (reply, real) => reply == real,
        };
        assert!(same, "in memory: {reply:?}\nreal:      {real:?}\nafter:\n{}", self.log.join("\n"));
    }

    fn compare_data(&mut self) {
        let real = self.real.store();
        assert!(
            self.store == real,
            "in memory: {:#?}\nreal: {real:#?}\nafter:\n{}",
            self.store,
            self.log.join("\n")
        );
    }
}

#[tokio::test]
async fn a_real_redis_answers_the_same() {
    let server = RedisServer::start(RedisOptions::default()).await.expect("a redis-server");
    let url = server.url();
    let compared =
        tokio::task::spawn_blocking(move || compare(&url)).await.expect("both are alike");
    println!("{compared} calls in {RUNS} runs");
}

fn compare(url: &str) -> usize {
    assert_ne!(with_clock(Name::Sweep), Name::Sweep.source(1));
    let mut pair = Pair {
        scripts: Scripts::new(with_clock),
        store: Store::default(),
        real: Real::new(url, with_clock),
        log: Vec::new(),
    };
    let mut calls = 0;
    for seed in 0..RUNS {
        let mut random = Random::new(seed);
        pair.real.command(&[b"FLUSHALL".to_vec()]);
        pair.store = Store::default();
        pair.log = vec![format!("seed {seed}")];
        // A third of the runs has no damage, and no upgrade.
        let is_sound = seed % 3 == 0;
        let mut master = "run_id:a\r\nmaster_replid2:0\r\n";
        for _ in 0..CALLS {
            random.pass();
            if random.is_one_in(10) {
                master = random.one_of(&[
                    master,
                    "run_id:a\r\nmaster_replid2:0\r\n",
                    "run_id:b\r\nmaster_replid2:c\r\n",
                ]);
            }
            let (s, us) = (random.now_us / 1_000_000, random.now_us % 1_000_000);
            let (s, us) = (s.to_string(), us.to_string());
            let clock: [&[u8]; 8] = [
                b"HSET",
                CLOCK,
                b"s",
                s.as_bytes(),
                b"us",
                us.as_bytes(),
                b"info",
                master.as_bytes(),
            ];
            pair.command(&clock.map(<[u8]>::to_vec));
            if !is_sound && random.is_one_in(8) {
                let damage = random.damage();
                pair.command(&damage);
            }
            // Scripts that give the others work are twice as likely.
            let more = [
                Name::Schedule,
                Name::Schedule,
                Name::Claim,
                Name::Claim,
                Name::Rescue,
                Name::Complete,
            ];
            let all: Vec<Name> = Name::ALL.into_iter().chain(more).collect();
            let name = random.one_of(&all);
            if is_sound && (name.as_str().starts_with("fsck") || name == Name::Move) {
                continue;
            }
            let call = random.call(name);
            let reply = pair.run(&call);
            random.saw(&call, &reply);
            calls += 1;
        }
        pair.compare_data();
    }
    calls
}
