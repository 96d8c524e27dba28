//! The events of jobs of mixed ends, compared with what became of the jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::delayed_headers::EVENT_TYPE_PREFIX;
use dwell_connectors::Message;
use dwell_testkit::environment::Result;
use dwell_testkit::servers::BrokerKind;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use super::Options;
use super::receipts::{Receipts, distinct, header, receive};
use crate::chaos::wait::grown;
use crate::checker::Wrongs;
use crate::checker::trail::{Kind, Ledger, Told, compare};
use crate::client::Link;
use crate::place::Place;

const INSTANCES: usize = 2;
const JOBS: u32 = 100_000;
const TARGET: &str = "lab.done";
/// A target that does not exist.
const ABSENT: &str = "lab.absent";
/// The destination of dead letters, and that of events: the defaults, which the instances create.
const DEAD: &str = "delay.dead";
const EVENTS: &str = "delay.events";
/// The metric of events that were dropped.
const DROPPED: &str = "dwell_events_dropped_total";
/// Jobs of one call.
const JOBS_PER_CALL: u32 = 500;
/// The longest time without an end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time without an event.
const EVENT_PATIENCE: Duration = Duration::from_secs(5);

/// The figures.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The jobs.
    pub jobs: u32,
    /// From the first call to the last end, ms.
    pub ended_in_ms: u64,
    /// Events that the instances counted as dropped.
    pub dropped: u64,
    /// By kind.
    pub kinds: BTreeMap<String, Kind>,
    /// What was wrong.
    #[serde(flatten)]
    pub wrongs: Wrongs,
}

/// The end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    /// Too late at its first attempt.
    Late,
    /// Its target is not there, at two attempts.
    Unroutable,
    Cancelled,
}

impl End {
    /// The end of the job of this number.
    fn of(number: u32) -> End {
        match number % 10 {
            0..=5 => End::Done,
            6 | 7 => End::Late,
            8 => End::Unroutable,
            _ => End::Cancelled,
        }
    }
}

/// Runs the scenario; `say` prints progress.
///
/// # Errors
/// The servers failed.
pub async fn run(options: &Options, say: fn(&str)) -> Result<Summary> {
    let (kind, jobs) = (options.broker, options.jobs.unwrap_or(JOBS));
    let settings = "[events]\nbroker = \"main\"\n";
    let starting = Place::with_broker(INSTANCES, kind, &[TARGET], ABSENT, settings);
    let mut place = Box::pin(starting).await?;
    let (done, dead) = (Receipts::default(), Receipts::default());
    let told = Arc::new(Mutex::new(Vec::<Told>::new()));
    receive(&mut place, TARGET, &done).await?;
    receive(&mut place, DEAD, &dead).await?;
    let noted = told.clone();
    place.read(EVENTS, move |_, message| noted.lock().push(event(kind, message))).await?;

    let (mut wrongs, began) = (Wrongs::default(), clock::now());
    let mut links: Vec<Link> = place.ports().into_iter().map(Link::to).collect();
    let mut cancelled = BTreeSet::new();
    for (turn, first) in (0..jobs).step_by(JOBS_PER_CALL as usize).enumerate() {
        let link = &mut links[turn % INSTANCES];
        let numbers = first..jobs.min(first + JOBS_PER_CALL);
        link.schedule(numbers.clone().map(job)).await?;
        for number in numbers.filter(|number| End::of(*number) == End::Cancelled) {
            cancelled.insert(cancel(link, number).await?);
        }
    }
    say(&format!("{jobs} jobs were scheduled, {} of them cancelled", cancelled.len()));
    let planned =
        |ends: &[End]| (0..jobs).filter(|number| ends.contains(&End::of(*number))).count();
    grown(planned(&[End::Done]), PATIENCE, || distinct(&done)).await;
    let dying = planned(&[End::Late, End::Unroutable]);
    grown(dying, PATIENCE, || distinct(&dead)).await;
    let ended_in_ms = clock::whole_ms(began.elapsed());
    say(&format!("{} arrived, {} are dead", distinct(&done), distinct(&dead)));
    let ends = [("delivered", planned(&[End::Done]), &done), ("dead", dying, &dead)];
    for (what, planned, receipts) in ends {
        let found = distinct(receipts);
        if found != planned {
            wrongs.broken(format!("{found} jobs are {what}, and {planned} had to be"));
        }
    }

    let of = |receipts: &Receipts, least_attempt: u32| -> BTreeSet<String> {
        let receipts = receipts.lock();
        let some = receipts.iter().filter(|receipt| receipt.attempt >= least_attempt);
        some.map(|receipt| receipt.id.clone()).collect()
    };
    let ledger = Ledger::from([
        ("scheduled", (0..jobs).map(id).collect()),
        ("delivered", of(&done, 0)),
        // A dead letter of a second attempt: a wait began after the first one.
        ("retried", of(&dead, 2)),
        ("dead", of(&dead, 0)),
        ("cancelled", cancelled),
    ]);
    let happened: usize = ledger.values().map(BTreeSet::len).sum();
    grown(happened, EVENT_PATIENCE, || told.lock().len()).await;
    // What comes after the last one is too much.
    clock::sleep(Duration::from_secs(1)).await;
    let dropped = place.counted(DROPPED).await?;
    place.stop().await?;
    let told = told.lock().clone();
    let kinds = compare(&ledger, &told, dropped, &mut wrongs);
    Ok(Summary { jobs, ended_in_ms, dropped, kinds, wrongs })
}

fn id(number: u32) -> String {
    format!("job-{number}")
}

fn job(number: u32) -> Value {
    let (now_ms, id) = (clock::wall_ms(), id(number));
    match End::of(number) {
        End::Done => json!({ "id": id, "target": TARGET, "until": now_ms, "body": "x" }),
        End::Late => json!({
            "id": id, "target": TARGET, "until": now_ms - 3_600_000, "late": "dead", "max_late": "1s", "body": "x",
        }),
        End::Unroutable => {
            json!({ "id": id, "target": ABSENT, "until": now_ms, "retry": ["100ms"], "body": "x" })
        }
        End::Cancelled => {
            json!({ "id": id, "target": TARGET, "until": now_ms + 3_600_000, "body": "x" })
        }
    }
}

/// Cancels a job that waits. Returns its id.
async fn cancel(link: &mut Link, number: u32) -> Result<String> {
    let id = id(number);
    let (status, answer) = link.delete(&format!("/v1/jobs/{id}")).await?;
    if status == 200 {
        return Ok(id);
    }
    let answer = String::from_utf8_lossy(&answer);
    Err(format!("DELETE /v1/jobs/{id} answered {status}: {answer}").into())
}

/// The kind of an event, and the id of its job. A message that is no event has no kind.
fn event(kind: BrokerKind, message: &Message) -> Told {
    let prefix = match kind {
        BrokerKind::Nats => "ce-",
        BrokerKind::Kafka => "ce_",
        BrokerKind::Amqp => "cloudEvents_",
    };
    let attribute = |name: &str| header(message, &format!("{prefix}{name}")).unwrap_or_default();
    let told = attribute("type");
    let word = told.strip_prefix(EVENT_TYPE_PREFIX).and_then(|rest| rest.strip_suffix(".v1"));
    (word.unwrap_or_default().to_owned(), attribute("subject"))
}
