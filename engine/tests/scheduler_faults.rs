//! What goes wrong where a scheduler keeps the next job of a schedule in its queue, acted out with
//! workers on a private Redis: times that come twice, schedules that end by themselves, changes that
//! are not taken. None of it occurs. The numbers are those of BullMQ's issues.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::time::{Duration, SystemTime};

use dwell_engine::worker::{Context, Outcome};
use dwell_engine::{
    Client, Due, Job, JobId, JobState, NewJob, Query, Recurring, Redis, Value, Verdict, Worker,
};
use dwell_schedule::{occurrence_id, split_occurrence_id};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use futures_util::future::join_all;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const QUEUE: &str = "reports";
const SECOND_MS: i64 = 1_000;
/// The delay until the job of a killed worker is handed out again.
const TTR: Duration = Duration::from_secs(1);
/// The longest wait for a condition.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

/// A job that a handler has run.
#[derive(Debug, Clone)]
struct Ran {
    schedule: String,
    time_ms: i64,
    number: i64,
    attempt: u32,
    body: Vec<u8>,
}

impl Ran {
    fn of(job: &Job, context: &Context) -> Ran {
        let (schedule, time_ms) = split_occurrence_id(context.id().as_str()).unwrap();
        let Some(Value::I64(number)) = job.headers.get("delayed-occurrence") else {
            panic!("{} has no number", context.id())
        };
        Ran {
            schedule: schedule.to_owned(),
            time_ms,
            number: *number,
            attempt: context.attempt(),
            body: job.body.to_vec(),
        }
    }
}

/// A worker that runs.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), dwell_engine::Error>>,
}

impl Running {
    fn start(worker: Worker) -> Running {
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(worker.run(stop.clone())), stop }
    }

    async fn stop(self) {
        self.stop.cancel();
        soon(self.task).await.unwrap().unwrap();
    }

    /// Ends the worker as a crash does.
    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

struct Fixture {
    server: RedisServer,
    say: UnboundedSender<Ran>,
    said: UnboundedReceiver<Ran>,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let (say, said) = unbounded_channel();
        Fixture { server, say, said }
    }

    /// A client of its own, as each process has one.
    async fn client(&self) -> Client {
        let client = Client::connect(&Redis::new(self.server.url()), &[]).await.unwrap();
        client.default_retry([Duration::ZERO; 50])
    }

    async fn clients(&self, count: usize) -> Vec<Client> {
        join_all((0..count).map(|_| self.client())).await
    }

    /// Starts a worker whose handler tells of each job.
    async fn worker(&self) -> Running {
        let say = self.say.clone();
        let handler = move |job: Job, context: Context| {
            // A test that has seen enough is over.
            let _ = say.send(Ran::of(&job, &context));
            std::future::ready(Ok::<_, Infallible>(Outcome::Finish))
        };
        Running::start(Worker::new(self.client().await).ttr(TTR).queue(QUEUE, handler))
    }

    /// Starts a worker whose handler tells of its start and never ends.
    async fn hanging_worker(&self, say: &UnboundedSender<()>) -> Running {
        let say = say.clone();
        let handler = move |_: Job, _: Context| {
            let _ = say.send(());
            std::future::pending::<Result<Outcome, Infallible>>()
        };
        Running::start(Worker::new(self.client().await).ttr(TTR).queue(QUEUE, handler))
    }

    async fn next(&mut self) -> Ran {
        soon(self.said.recv()).await.unwrap()
    }

    /// Waits until all numbers from 1 to at least this one were run, and adds what was run.
    async fn run_to(&mut self, ran: &mut Vec<Ran>, number: i64) {
        let has_all = |ran: &[Ran]| {
            let numbers: BTreeSet<i64> = ran.iter().map(|ran| ran.number).collect();
            let last = numbers.last().copied().unwrap_or_default();
            last >= number && numbers.len() as i64 == last
        };
        while !has_all(&ran[..]) {
            ran.push(self.next().await);
        }
    }

    /// Waits for a job with this body.
    async fn with_body(&mut self, body: &str) -> Ran {
        loop {
            let ran = self.next().await;
            if ran.body == body.as_bytes() {
                return ran;
            }
        }
    }
}

/// The output of this future, which must come within the limit.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    dwell_store::clock::timeout(CONDITION_TIMEOUT, future)
        .await
        .expect("the condition came true in time")
}

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

fn every(name: &str, schedule: &str, body: &str) -> Recurring {
    Recurring::new(id(name), schedule, Job::for_queue(QUEUE, body.to_owned())).unwrap()
}

fn each_second(name: &str) -> Recurring {
    every(name, "@every 1s", "x")
}

/// What one schedule made: each time was run once, but for jobs of killed workers; each has a number
/// of its own; and the times are one grid.
fn assert_once_each(ran: &[Ran]) {
    let (mut runs, mut times) = (BTreeSet::new(), BTreeMap::new());
    for one in ran {
        assert!(runs.insert((one.time_ms, one.attempt)), "{one:?} was run twice");
        let first_ms = *times.entry(one.number).or_insert(one.time_ms);
        assert_eq!(first_ms, one.time_ms, "{one:?} has the number of another time");
    }
    let times: Vec<i64> = times.into_values().collect();
    for two in times.windows(2) {
        let apart_ms = two[1] - two[0];
        assert!(apart_ms > 0 && apart_ms % SECOND_MS == 0, "{times:?}");
    }
}

async fn waiting_jobs(client: &Client) -> usize {
    client.list(&Query::new(JobState::Scheduled)).await.unwrap().jobs.len()
}

/// 2876: tasks came twice after crash loops of processes that put their schedule at the start.
#[tokio::test]
async fn a_crash_loop_that_puts_its_schedule_makes_no_time_twice() {
    let (mut fixture, mut ran) = (Fixture::new().await, Vec::new());
    for round in 0..20 {
        // As a new process does: the same value again would be a repeat of its first call.
        let poll = each_second("poll");
        let verdict = fixture.client().await.put_schedule(&poll).await.unwrap().verdict;
        let expected = if round == 0 { Verdict::Added } else { Verdict::Duplicate };
        assert_eq!(verdict, expected);
        let worker = fixture.worker().await;
        if round % 5 == 0 {
            ran.push(fixture.next().await);
        } else {
            // Somewhere in its work.
            for _ in 0..round * 10 {
                tokio::task::yield_now().await;
            }
        }
        worker.kill().await;
    }
    let worker = fixture.worker().await;
    let number = ran.len() as i64 + 2;
    fixture.run_to(&mut ran, number).await;
    worker.stop().await;
    assert_once_each(&ran);
}

/// 2889: each restart of a worker left one more delayed job of the schedule.
#[tokio::test]
async fn workers_that_stop_and_start_leave_no_second_job_waiting() {
    let (mut fixture, mut ran) = (Fixture::new().await, Vec::new());
    let client = fixture.client().await;
    client.put_schedule(&each_second("restarted")).await.unwrap();
    for _ in 0..3 {
        let worker = fixture.worker().await;
        ran.push(fixture.next().await);
        worker.stop().await;
        assert!(waiting_jobs(&client).await <= 1);
    }
    let workers = [fixture.worker().await, fixture.worker().await];
    let number = ran.len() as i64 + 2;
    fixture.run_to(&mut ran, number).await;
    for worker in workers {
        worker.stop().await;
    }
    assert!(waiting_jobs(&client).await <= 1);
    assert_once_each(&ran);
}

/// 2954: a schedule whose jobs are recognised as duplicates ended with its first job.
#[tokio::test]
async fn jobs_that_are_alike_and_an_id_that_is_taken_end_no_schedule() {
    let (mut fixture, mut ran) = (Fixture::new().await, Vec::new());
    let client = fixture.client().await;
    let first_ms = client.put_schedule(&each_second("alike")).await.unwrap().due_ms.unwrap();
    let taken_ms = first_ms + 2 * SECOND_MS;
    let taken = id(&occurrence_id("alike", taken_ms));
    let foreign = NewJob::new(Job::for_queue("other", "x"), Due::At(4_000_000_000_000));
    client.schedule(&foreign.id(taken.clone())).await.unwrap();
    let worker = fixture.worker().await;
    fixture.run_to(&mut ran, 4).await;
    worker.stop().await;
    assert_once_each(&ran);
    assert!(ran.iter().all(|ran| ran.time_ms != taken_ms && ran.body == b"x"), "{ran:?}");
    let kept = client.get(&taken).await.unwrap().unwrap();
    assert_eq!(kept.job().queue(), Some("other"));
}

/// 2988: puts in quick succession made several delayed jobs of one schedule.
#[tokio::test]
async fn puts_in_quick_succession_leave_one_schedule_with_one_grid() {
    let (mut fixture, mut ran) = (Fixture::new().await, Vec::new());
    let workers = [fixture.worker().await, fixture.worker().await];
    let clients = fixture.clients(4).await;
    let puts = clients.iter().enumerate().map(|(who, client)| async move {
        for round in 0..25 {
            let put = every("sync", "@every 1s", &format!("{who}-{round}"));
            let verdict = client.put_schedule(&put).await.unwrap().verdict;
            assert!(matches!(verdict, Verdict::Added | Verdict::Replaced), "{verdict:?}");
        }
    });
    join_all(puts).await;
    fixture.run_to(&mut ran, 3).await;
    for worker in workers {
        worker.stop().await;
    }
    assert!(waiting_jobs(&clients[0]).await <= 1);
    assert_once_each(&ran);
}

/// 3063: a scheduler that was removed and put again at once never fired.
#[tokio::test]
async fn a_schedule_that_is_ended_and_put_again_at_once_fires() {
    let mut fixture = Fixture::new().await;
    let (client, worker) = (fixture.client().await, fixture.worker().await);
    // By the clock, so that the times before and after are the same.
    let put = |body: &str| every("again", "* * * * * *", body);
    let end = async || {
        let verdict = client.cancel(&id("again")).await.unwrap();
        assert!(matches!(verdict, Verdict::Cancelled | Verdict::InFlight), "{verdict:?}");
    };
    for round in 0..3 {
        for turn in 0..10 {
            let new = put(&format!("{round}-{turn}"));
            assert_eq!(client.put_schedule(&new).await.unwrap().verdict, Verdict::Added);
            end().await;
        }
        let body = format!("{round}");
        assert_eq!(client.put_schedule(&put(&body)).await.unwrap().verdict, Verdict::Added);
        fixture.with_body(&body).await;
        end().await;
    }
    worker.stop().await;
}

/// 3262: a scheduler stopped for good where several processes started at once while its job was
/// delayed or running.
#[tokio::test]
async fn processes_that_crash_with_jobs_and_start_at_once_go_on() {
    let (mut fixture, mut ran) = (Fixture::new().await, Vec::new());
    let (say, mut said) = unbounded_channel();
    for _ in 0..3 {
        let clients = fixture.clients(4).await;
        let workers = join_all((0..4).map(|_| fixture.hanging_worker(&say))).await;
        let puts = clients.iter().map(|client| async move {
            client.put_schedule(&each_second("crashed")).await.unwrap().verdict
        });
        let verdicts = join_all(puts).await;
        let are_new = verdicts.iter().filter(|verdict| **verdict == Verdict::Added).count();
        assert!(are_new <= 1, "{verdicts:?}");
        soon(said.recv()).await.unwrap();
        for worker in workers {
            worker.kill().await;
        }
        while said.try_recv().is_ok() {}
    }
    let workers = [fixture.worker().await, fixture.worker().await];
    // With those that hung.
    fixture.run_to(&mut ran, 6).await;
    for worker in workers {
        worker.stop().await;
    }
    assert_once_each(&ran);
}

/// 3378: a schedule that was put with another start, expression or zone kept its old time.
#[tokio::test]
async fn another_start_expression_or_zone_moves_the_next_time() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let put = async |schedule: &str, zone: &str, start_ms: u64| {
        let start = SystemTime::UNIX_EPOCH + Duration::from_millis(start_ms);
        let new = every("export", schedule, "x").time_zone(zone).unwrap().start(start);
        let answer = client.put_schedule(&new).await.unwrap();
        (answer.verdict, answer.due_ms.unwrap())
    };
    let (half_past_five, nine) = ("30 17 * * *", "0 9 * * *");
    let (new_york, berlin) = ("America/New_York", "Europe/Berlin");
    // 17:30 in New York on 8 and 9 August 2030.
    let (eighth, ninth) = (1_912_455_000_000, 1_912_541_400_000);
    let first = put(half_past_five, new_york, eighth).await;
    assert_eq!(first, (Verdict::Added, 1_912_455_000_000));
    let later = put(half_past_five, new_york, ninth).await;
    assert_eq!(later, (Verdict::Replaced, 1_912_541_400_000));
    // 9:00 on the tenth, in New York and in Berlin.
    assert_eq!(put(nine, new_york, ninth).await, (Verdict::Replaced, 1_912_597_200_000));
    assert_eq!(put(nine, berlin, ninth).await, (Verdict::Replaced, 1_912_575_600_000));
    let back = put(half_past_five, new_york, eighth).await;
    assert_eq!(back, (Verdict::Replaced, 1_912_455_000_000));
    assert_eq!(put(half_past_five, new_york, eighth).await, (Verdict::Duplicate, back.1));
}

/// 3381: schedulers vanished where each node of a restarted cluster put all of them.
#[tokio::test]
async fn nodes_that_all_put_all_schedules_at_their_start_lose_none() {
    const SCHEDULES: usize = 20;
    let (mut fixture, mut ran) = (Fixture::new().await, Vec::new());
    let names: Vec<String> = (0..SCHEDULES).map(|number| format!("task-{number}")).collect();
    let nodes = fixture.clients(6).await;
    for _ in 0..3 {
        let workers = [fixture.worker().await, fixture.worker().await];
        let puts = nodes.iter().enumerate().map(|(node, client)| {
            let names = &names;
            async move {
                // Half of the nodes have the next version.
                let body = if node % 2 == 0 { "old" } else { "new" };
                for name in names {
                    client.put_schedule(&every(name, "@every 1s", body)).await.unwrap();
                }
            }
        });
        join_all(puts).await;
        for worker in workers {
            worker.kill().await;
        }
    }
    for name in &names {
        let put = every(name, "@every 1s", "new");
        let verdict = nodes[0].put_schedule(&put).await.unwrap().verdict;
        assert!(matches!(verdict, Verdict::Duplicate | Verdict::Replaced), "{verdict:?}");
    }
    let worker = fixture.worker().await;
    let mut left: BTreeMap<&str, usize> = names.iter().map(|name| (name.as_str(), 2)).collect();
    while !left.is_empty() {
        let one = fixture.next().await;
        if let Some(count) = left.get_mut(one.schedule.as_str()).filter(|_| one.body == b"new") {
            *count -= 1;
        }
        left.retain(|_, count| *count > 0);
        ran.push(one);
    }
    worker.stop().await;
    for name in &names {
        let of_name: Vec<Ran> = ran.iter().filter(|ran| ran.schedule == *name).cloned().collect();
        assert_once_each(&of_name);
    }
}

/// 3446: a put while the scheduler worked was overwritten by the old interval and data.
#[tokio::test]
async fn a_changed_interval_and_body_hold_from_their_first_time_on() {
    let mut fixture = Fixture::new().await;
    let (client, worker) = (fixture.client().await, fixture.worker().await);
    client.put_schedule(&every("changed", "@every 1s", "first")).await.unwrap();
    fixture.with_body("first").await;
    for (seconds, body) in [(2, "two"), (1, "one"), (2, "two again")] {
        let put = every("changed", &format!("@every {seconds}s"), body);
        let answer = client.put_schedule(&put).await.unwrap();
        assert_eq!(answer.verdict, Verdict::Replaced);
        let (from_ms, mut times) = (answer.due_ms.unwrap(), Vec::new());
        while times.len() < 2 {
            let ran = fixture.next().await;
            // A job that was made before the change runs as it is.
            let is_new = ran.body == body.as_bytes();
            assert_eq!(is_new, ran.time_ms >= from_ms, "{ran:?}, from {from_ms}");
            times.extend(is_new.then_some(ran.time_ms));
        }
        let off_ms: Vec<i64> =
            times.iter().map(|ms| (ms - from_ms) % (seconds * SECOND_MS)).collect();
        assert_eq!(off_ms, [0, 0], "{times:?}");
    }
    worker.stop().await;
}
