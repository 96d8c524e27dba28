//! Jobs that are due at one instant and have a limit, from two instances, of which one may be
//! killed in the middle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::delayed_headers::{ATTEMPT, ID};
use dwell_testkit::environment::Result;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Options;
use super::receipts::{Receipts, distinct, receive};
use crate::chaos::wait::grown;
use crate::checker::pace::{Pace, Tally, pace, tally};
use crate::checker::{Receipt, Wrongs};
use crate::client::Link;
use crate::http::receiver::{Arrival, Handler, Receiver, status};
use crate::place::{self, Place};
use crate::schedules::consumer::consume;

const INSTANCES: usize = 2;
const JOBS: u32 = 5000;
/// The limited target, another one of the same broker, one that nobody uses, and the queue.
const TARGET: &str = "lab.limited";
const OTHER: &str = "lab.other";
const ABSENT: &str = "lab.absent";
const QUEUE: &str = "lab.limited";
/// Consumers of the queue.
const CONSUMERS: usize = 8;
/// The time from the start to the due time, ms, and what each job adds, µs.
const LEAD_MS: i64 = 3000;
const LEAD_PER_JOB_US: i64 = 500;
/// The interval of the jobs for the other target, ms, and the most of them.
const OTHER_EVERY_MS: i64 = 10;
const MAX_OTHERS: i64 = 20_000;
/// The longest attempt: a lease is five seconds longer.
const ATTEMPT_TIMEOUT: &str =
    "publish_timeout = \"3s\"\nretry = [\"100ms\", \"100ms\", \"100ms\"]\n";
/// The longest time without an arrival: longer than a lease.
const PATIENCE: Duration = Duration::from_secs(30);
/// The wait for copies, and where an instance was killed.
const COPIES: Duration = Duration::from_secs(1);
const COPIES_OF_KILLED: Duration = Duration::from_secs(12);

/// What has the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Limited {
    /// A target of the broker, beside another one
    Target,
    /// An HTTP host
    Host,
    /// A queue, over HTTP
    Queue,
}

/// The figures.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The target or queue that had the limit.
    pub limit: Limited,
    /// The rate in the settings.
    pub rate: String,
    /// Whether an instance was killed.
    pub killed: bool,
    /// How fast the jobs arrived.
    pub pace: Pace,
    /// The jobs with the limit; they are late by their turns.
    pub jobs: Tally,
    /// Those of another target of the same broker meanwhile.
    pub others: Option<Tally>,
    /// What was wrong.
    #[serde(flatten)]
    pub wrongs: Wrongs,
}

/// Runs the scenario; `say` prints progress.
///
/// # Errors
/// The servers failed.
pub async fn run(options: &Options, limited: Limited, say: fn(&str)) -> Result<Summary> {
    let (received, of_others) = (Receipts::default(), Receipts::default());
    let mut scene = Box::pin(Scene::start(options, limited, &received, &of_others)).await?;
    let (rate, count) = (options.rate, options.jobs.unwrap_or(JOBS));
    let span_ms = rate.span_ms(count.into());
    let due_ms = clock::wall_ms() + LEAD_MS + i64::from(count) * LEAD_PER_JOB_US / 1000;
    let dues: BTreeMap<String, i64> =
        (0..count).map(|number| (format!("limited-{number}"), due_ms)).collect();
    let others = if limited == Limited::Target { span_ms / OTHER_EVERY_MS } else { 0 };
    let other_dues: BTreeMap<String, i64> = (0..others.min(MAX_OTHERS))
        .map(|number| (format!("other-{number}"), due_ms + number * OTHER_EVERY_MS))
        .collect();
    let mut link = Link::to(scene.place.port());
    link.schedule(dues.iter().map(|(id, due_ms)| scene.job(id, *due_ms))).await?;
    let other = |(id, due_ms): (&String, &i64)| json!({ "id": id, "target": OTHER, "until": due_ms, "body": "x" });
    link.schedule(other_dues.iter().map(other)).await?;
    if clock::wall_ms() >= due_ms {
        return Err("storing the jobs took until after their due time: try fewer --jobs".into());
    }
    say(&format!("{count} jobs and {} others wait, the limit is {rate}", other_dues.len()));

    if options.kill {
        clock::sleep(clock::micros((due_ms + span_ms / 2 - clock::wall_ms()) * 1000)).await;
        place::kill(&mut scene.place.instances[1])?;
        say(&format!("an instance was killed after {} jobs", distinct(&received)));
    }
    let turns = Duration::from_millis(rate.span_ms(2).unsigned_abs());
    let lead = clock::micros((due_ms - clock::wall_ms()) * 1000);
    grown(dues.len(), PATIENCE + turns + lead, || distinct(&received)).await;
    grown(other_dues.len(), PATIENCE, || distinct(&of_others)).await;
    clock::sleep(if options.kill { COPIES_OF_KILLED } else { COPIES }).await;
    scene.stop().await?;

    let (receipts, of_others) = (received.lock().clone(), of_others.lock().clone());
    let mut wrongs = Wrongs::default();
    let pace = pace(rate, &receipts, options.kill, &mut wrongs);
    let jobs = tally(&dues, &receipts, options.kill, &mut wrongs);
    let others = tally(&other_dues, &of_others, options.kill, &mut wrongs);
    Ok(Summary {
        limit: limited,
        rate: rate.to_string(),
        killed: options.kill,
        pace,
        jobs,
        others: (limited == Limited::Target).then_some(others),
        wrongs,
    })
}

/// The servers, and who receives the jobs.
struct Scene {
    place: Place,
    /// Where a job goes: the name of its field, and its value.
    to: (&'static str, String),
    /// Of a host.
    receiver: Option<Receiver>,
    /// Of a queue.
    consumers: JoinSet<()>,
}

impl Scene {
    async fn start(
        options: &Options,
        limited: Limited,
        received: &Receipts,
        of_others: &Receipts,
    ) -> Result<Scene> {
        let Options { broker, rate, .. } = *options;
        let (mut receiver, mut consumers) = (None, JoinSet::new());
        let (place, to) = match limited {
            Limited::Target => {
                let settings = format!(
                    "[delivery]\n{ATTEMPT_TIMEOUT}\n[brokers.main.limits.\"{}\"]\nrate = \"{rate}\"\n",
                    broker.pattern(TARGET)
                );
                let starting =
                    Place::with_broker(INSTANCES, broker, &[TARGET, OTHER], ABSENT, &settings);
                let mut place = Box::pin(starting).await?;
                receive(&mut place, TARGET, received).await?;
                receive(&mut place, OTHER, of_others).await?;
                (place, ("target", TARGET.to_owned()))
            }
            Limited::Host => {
                let started = Receiver::start(0, noting(received)).await?;
                let port = started.port();
                receiver = Some(started);
                // The settings of the host end with those of `[delivery]`.
                let settings = format!(
                    "{}{ATTEMPT_TIMEOUT}\n[brokers.hook.limits.\"http://127.0.0.1:{port}/*\"]\nrate = \"{rate}\"\n",
                    crate::http::settings(&[port], "2s")
                );
                let place = Box::pin(Place::without_broker(INSTANCES, &settings)).await?;
                (place, ("target", format!("http://127.0.0.1:{port}/limited")))
            }
            Limited::Queue => {
                let settings = format!(
                    "[queues.\"{QUEUE}\"]\nttr = \"5s\"\nretry = [\"100ms\", \"100ms\", \"100ms\"]\nrate = \"{rate}\"\n"
                );
                let place = Box::pin(Place::without_broker(INSTANCES, &settings)).await?;
                for number in 0..CONSUMERS {
                    consumers.spawn(consume(QUEUE, place.ports(), number, received.clone()));
                }
                (place, ("queue", QUEUE.to_owned()))
            }
        };
        Ok(Scene { place, to, receiver, consumers })
    }

    fn job(&self, id: &str, due_ms: i64) -> Value {
        let (field, value) = &self.to;
        let mut job = json!({ "id": id, "until": due_ms, "body": "x" });
        job[*field] = value.as_str().into();
        job
    }

    async fn stop(mut self) -> Result<()> {
        self.consumers.shutdown().await;
        self.place.stop().await?;
        if let Some(receiver) = self.receiver {
            receiver.stop().await;
        }
        Ok(())
    }
}

/// Notes each request, and answers 200.
fn noting(received: &Receipts) -> Handler {
    let received = received.clone();
    Arc::new(move |arrival: Arrival| {
        let id = arrival.text(ID).unwrap_or_default().to_owned();
        let attempt = arrival.number(ATTEMPT).unwrap_or_default();
        received.lock().push(Receipt { id, number: 0, attempt, at_us: arrival.at_us });
        status(200)
    })
}
