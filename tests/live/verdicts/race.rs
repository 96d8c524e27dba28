//! Thousands of jobs on three brokers, cancelled by five clients around their due time, with two
//! instances.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dwell::clock;
use dwell::store::meta::SweepRules;
use dwell_testkit::servers::BrokerKind;
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::interfaces::{Asks, INTERFACES, replies};
use crate::routes::environment::{Environment, Reading, request, text};
use crate::support::verdicts::{Tally, Verdicts};
use crate::support::{DEADLINE, wait_within};

/// Jobs a race; `DWELL_RACE_JOBS` names another number.
const JOBS: usize = 1200;
/// The jobs that fall due a second.
const RATE: usize = 1000;
/// From the first request until the first job is due, and a tenth of a millisecond a job: longer
/// than it takes to send them all, while Kafka shares the topic out among two readers.
const AHEAD_MS: i64 = 12_000;
/// So long before and after their due times a few jobs are cancelled, whatever the race: on a busy
/// machine those in between may all come too late, or too early.
const CLEAR_MS: i64 = 2000;
/// Of each instance, so that the copies after a kill are bounded.
const MAX_IN_FLIGHT: usize = 200;
/// The most answers that may be lost with an instance, where a queue took none in time.
const LOST_ANSWERS: usize = 10;
const BODY: &str = "body";
/// The last message at each target: earlier messages have been read.
const END: &str = "the end";

/// One race.
struct Race {
    name: &'static str,
    /// Its settings in `[delivery]`.
    settings: &'static str,
    /// When a job is cancelled, ms after it is due: each half of them in one range.
    asked_ms: [Range<i64>; 2],
    /// An instance is killed half-way, and started again.
    kill: bool,
    /// Memories are turned over as soon as `dedupe_window` allows. Instances do it twice a minute.
    sweep: bool,
    /// The verdicts that such a race must bring, or it was none.
    brings: &'static [&'static str],
}

const RACES: [Race; 3] = [
    Race {
        name: "plain",
        settings: "",
        asked_ms: [-60..0, -20..40],
        kill: false,
        sweep: false,
        brings: &["cancelled", "fired"],
    },
    // The lease, and so how long what was in flight waits for another owner, is five seconds more
    // than the publish timeout.
    Race {
        name: "killed",
        settings: "publish_timeout = \"3s\"",
        asked_ms: [-60..40, 0..12_000],
        kill: true,
        sweep: false,
        brings: &["cancelled", "fired"],
    },
    Race {
        name: "forgotten",
        settings: "dedupe_window = \"1s\"",
        asked_ms: [-60..40, 0..4000],
        kill: false,
        sweep: true,
        brings: &["cancelled", "fired", "not_found"],
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_of_a_job_that_falls_due_is_what_becomes_of_it() {
    let jobs = std::env::var("DWELL_RACE_JOBS")
        .map_or(JOBS, |text| text.parse().expect("DWELL_RACE_JOBS is a number"));
    let mut env = Environment::start().await;
    for race in &RACES {
        let settings =
            env.text_with(&format!("max_in_flight = {MAX_IN_FLIGHT}\n{}\n", race.settings));
        env.run_many_instead(&settings, 2).await;
        race.run(&mut env, jobs).await;
    }
    env.end().await;
}

impl Race {
    async fn run(&self, env: &mut Environment, jobs: usize) {
        let (target, replies) = (format!("out.{}", self.name), replies(self.name));
        let mut readings = Vec::new();
        for kind in BrokerKind::ALL {
            for destination in [&target, &replies] {
                env.declare(kind, destination).await;
                readings.push(env.read(kind, destination).await);
            }
        }
        join_all(BrokerKind::ALL.iter().zip(readings.iter().step_by(2)).map(
            async |(kind, reading)| {
                env.send(
                    *kind,
                    [request("first", &[("delay-for", "0"), ("delay-target", &target)])],
                )
                .await;
                reading.until(1).await;
            },
        ))
        .await;
        let verdicts = Arc::new(Mutex::new(Verdicts::default()));
        let first_ms = clock::wall_ms() + AHEAD_MS + i64::try_from(jobs / 10).unwrap();
        let due_ms = |number: usize| first_ms + i64::try_from(number * 1000 / RATE).unwrap();
        join_all(BrokerKind::ALL.iter().enumerate().map(async |(place, kind)| {
            let requests =
                (0..jobs).filter(|number| number % BrokerKind::ALL.len() == place).map(|number| {
                    let (id, due) = (self.id(number), due_ms(number).to_string());
                    verdicts.lock().scheduled(id.clone());
                    request(
                        BODY,
                        &[
                            ("delay-id", &id),
                            ("delay-until", &due),
                            ("delay-target", &target),
                            ("delay-retry", "none"),
                        ],
                    )
                });
            env.send(*kind, requests.collect::<Vec<_>>()).await;
        }))
        .await;
        self.until_stored(env, jobs).await;
        assert!(
            clock::wall_ms() < first_ms - CLEAR_MS,
            "{}: it took too long to send them",
            self.name
        );

        let mut asks: Vec<Vec<(i64, String)>> = vec![Vec::new(); INTERFACES.len()];
        for number in 0..jobs {
            // Each client cancels jobs of all brokers.
            let after_ms = match number % 20 {
                0 => -CLEAR_MS,
                1 => CLEAR_MS,
                _ => rand::random_range(self.asked_ms[rand::random_range(0..2)].clone()),
            };
            asks[rand::random_range(0..INTERFACES.len())]
                .push((due_ms(number) + after_ms, self.id(number)));
        }
        let half_ms = due_ms(jobs / 2);
        let mut killed = env.dwells.pop().unwrap();
        // Where a queue took no verdict in time, requests do not wait for theirs: verdicts on their
        // way there are lost with their instance.
        let mut takes_answers_along = false;
        let crash = async {
            if self.kill {
                clock::sleep(Duration::from_millis(
                    (half_ms - clock::wall_ms()).try_into().unwrap_or(0),
                ))
                .await;
                killed.kill().unwrap();
                let log = std::fs::read_to_string(killed.dir().join("log")).unwrap();
                takes_answers_along = log.contains("requests do not wait for their verdicts there");
                killed.restart().await.unwrap();
            }
        };
        let clients = join_all(INTERFACES.iter().zip(asks).map(|(interface, mut asks)| {
            asks.sort_unstable();
            interface.cancel(env, self.name, Asks::from(asks), &verdicts)
        }));
        let sweep = async {
            if !self.sweep {
                std::future::pending::<()>().await;
            }
            loop {
                self.sweep(env).await;
            }
        };
        tokio::select! {
            ((), _) = async { tokio::join!(crash, clients) } => {}
            () = sweep => {}
        }
        env.dwells.push(killed);
        self.settle(env, &target, &readings, &verdicts, takes_answers_along).await;

        let verdicts = verdicts.lock();
        let tally = verdicts.tally();
        println!(
            "{}: {jobs} jobs, told and arrived: {:?}, copies {}",
            self.name, tally.verdicts, tally.copies
        );
        assert_eq!(verdicts.contradictions(), [""; 0], "{}", self.name);
        self.classify(&tally, jobs);
    }

    fn id(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    async fn until_stored(&self, env: &Environment, jobs: usize) {
        wait_within(DEADLINE, &format!("{}: all requests are stored", self.name), async || {
            let counts = env.store().reader.counts(&[]).await.unwrap();
            (counts.scheduled.iter().sum::<u64>() == jobs as u64).then_some(())
        })
        .await;
    }

    /// Waits until each has its answer and nothing is out, and enters all that came.
    async fn settle(
        &self,
        env: &mut Environment,
        target: &str,
        readings: &[Reading],
        verdicts: &Mutex<Verdicts>,
        may_lack_answers: bool,
    ) {
        let patience = Instant::now() + DEADLINE * 2;
        loop {
            for (_, reply) in readings.iter().skip(1).step_by(2).flat_map(Reading::now) {
                let reply: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
                verdicts
                    .lock()
                    .told(reply["id"].as_str().unwrap(), reply["verdict"].as_str().unwrap());
            }
            let counts = env.store().reader.counts(&[]).await.unwrap();
            let left: u64 = counts.scheduled.iter().chain(&counts.reserved).sum();
            // A broker that stalls for publish_timeout may cost an answer, never the cancel.
            for line in env
                .complaints()
                .lines()
                .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            {
                if let ("the verdict could not be delivered", Some(id)) =
                    (line["message"].as_str().unwrap_or_default(), line["id"].as_str())
                {
                    verdicts.lock().unheard(id);
                }
            }
            let unanswered = verdicts.lock().unanswered();
            if unanswered.is_empty() && left == 0 {
                break;
            }
            if may_lack_answers
                && left == 0
                && unanswered.len() <= LOST_ANSWERS
                && Instant::now() > patience - DEADLINE
            {
                println!("{}: without an answer: {unanswered:?}", self.name);
                unanswered.iter().for_each(|id| verdicts.lock().unheard(id));
                continue;
            }
            let said = format!(
                "{}: {left} jobs are not over, {} have no answer: {unanswered:?}",
                self.name,
                unanswered.len()
            );
            assert!(Instant::now() < patience, "{said}\n{}", env.complaints());
            clock::sleep(Duration::from_millis(100)).await;
        }
        // Of a job that was cancelled in flight the store knows no more, but its instance does.
        env.stop().await;
        for (kind, reading) in BrokerKind::ALL.iter().zip(readings.iter().step_by(2)) {
            env.send_to(*kind, target, [request(END, &[])]).await;
            let all = wait_within(DEADLINE, "the end of a target", async || {
                Some(reading.now())
                    .filter(|seen| seen.iter().any(|(_, message)| message.body == END))
            })
            .await;
            for (_, message) in all.iter().filter(|(_, message)| message.body == BODY) {
                verdicts.lock().arrived(&text(message, "delayed-id").unwrap());
            }
        }
    }

    async fn sweep(&self, env: &Environment) {
        for bucket in 0..env.store().keys().buckets() {
            env.store()
                .admin
                .sweep(bucket, SweepRules { dead_retention_ms: 3_600_000, dedupe_window_ms: 1000 })
                .await
                .unwrap();
        }
        clock::sleep(Duration::from_millis(100)).await;
    }

    fn classify(&self, tally: &Tally, jobs: usize) {
        let told: usize = tally.verdicts.values().map(|(told, _)| told).sum();
        assert_eq!(told, jobs, "{}: {tally:?}", self.name);
        assert!(
            tally.copies <= if self.kill { MAX_IN_FLIGHT } else { 0 },
            "{}: {tally:?}",
            self.name
        );
        for verdict in self.brings {
            assert!(
                tally.verdicts.contains_key(*verdict),
                "{}: no {verdict} in {tally:?}",
                self.name
            );
        }
    }
}
