//! The worker on a private Redis: the examples, the next step after each end of a handler, drain,
//! lost leases, crashes, upkeep for others, and a master of a cluster that hangs.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "../examples/axum_worker.rs"]
mod axum_worker;
#[path = "worker/crashes.rs"]
mod crashes;
#[path = "worker/examples.rs"]
mod examples;
#[path = "worker/limits.rs"]
mod limits;
#[path = "worker/masters.rs"]
mod masters;
#[path = "worker/pops.rs"]
mod pops;
#[path = "../examples/worker.rs"]
mod worker_process;

use std::future::Future;
use std::time::Duration;

use dwell_engine::worker::{Context, Outcome};
use dwell_engine::{
    Client, Due, ErrorKind, Job, JobId, JobState, NewJob, Redis, StoredJob, Task, Worker,
};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NOW: Due = Due::In(0);
/// The longest wait for a condition.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

struct Fixture {
    server: RedisServer,
    config: Redis,
    client: Client,
}

/// A worker that runs, and the messages of its handler.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), dwell_engine::Error>>,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let config = Redis::new(server.url());
        let client = Client::connect(&config, &[]).await.unwrap().default_retry([Duration::ZERO]);
        Fixture { server, config, client }
    }

    async fn add(&self, queue: &str, due: Due) -> JobId {
        let new_job = NewJob::new(Job::for_queue(queue, "x"), due);
        self.client.schedule(&new_job).await.unwrap();
        new_job.id
    }

    fn worker(&self) -> Worker {
        Worker::new(self.client.clone())
    }

    async fn get(&self, id: &JobId) -> Option<StoredJob> {
        self.client.get(id).await.unwrap()
    }

    /// Waits until the job has this state; `None`: removed.
    async fn until_state(&self, id: &JobId, state: Option<JobState>) -> Option<StoredJob> {
        soon(async {
            loop {
                let found = self.get(id).await;
                if found.as_ref().map(|job| job.state) == state {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

impl Running {
    fn start(worker: Worker) -> Running {
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(worker.run(stop.clone())), stop }
    }

    /// Tells the worker to stop and waits for its end.
    async fn stop(self) {
        self.stop.cancel();
        soon(self.task).await.unwrap().unwrap();
    }

    /// Ends the worker as a crash does, with its handlers and its agents.
    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// The output of this future, which must come within the limit.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    dwell_store::clock::timeout(CONDITION_TIMEOUT, future)
        .await
        .expect("the condition came true in time")
}

async fn next<T>(said: &mut UnboundedReceiver<T>) -> T {
    soon(said.recv()).await.unwrap()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Mail {
    to: String,
}

impl Task for Mail {
    const QUEUE: &'static str = "mails";
}

#[tokio::test]
async fn a_task_comes_back_as_it_was_given_after_a_restart_too() {
    let fixture = Fixture::new().await;
    let id = fixture.client.enqueue(&Mail { to: "a@b".to_owned() }, NOW).await.unwrap();
    let (say, mut said) = unbounded_channel();
    let handler = move |mail: Mail, context: Context| {
        say.send((mail, context.id().clone(), context.attempt(), context.queue().to_owned()))
            .unwrap();
        std::future::ready(Ok::<_, String>(Outcome::Finish))
    };
    let another = Client::connect(&fixture.config, &[]).await.unwrap();
    let running = Running::start(Worker::new(another).task(handler));
    assert_eq!(
        next(&mut said).await,
        (Mail { to: "a@b".to_owned() }, id.clone(), 1, "mails".to_owned())
    );
    fixture.until_state(&id, None).await;
    // A later job wakes the worker.
    fixture.client.enqueue(&Mail { to: "c@d".to_owned() }, Due::In(50)).await.unwrap();
    assert_eq!(next(&mut said).await.0.to, "c@d");
    running.stop().await;
}

#[tokio::test]
async fn an_error_a_panic_and_a_payload_that_cannot_be_read_are_failures_with_their_text() {
    let fixture = Fixture::new().await;
    let panics = |_: Job, _: Context| async move {
        if true {
            panic!("no such {}", "template");
        }
        Ok::<_, String>(Outcome::Finish)
    };
    let ids = [
        fixture.add("errs", NOW).await,
        fixture.add("panics", NOW).await,
        fixture.add("mails", NOW).await,
        fixture.add("fails", NOW).await,
    ];
    let worker = fixture
        .worker()
        .queue("errs", |_, _| std::future::ready(Err("no mail server")))
        .queue("panics", panics)
        .queue("fails", |_, _| std::future::ready(Ok::<_, String>(Outcome::Fail)))
        .task(|_: Mail, _| std::future::ready(Ok::<_, String>(Outcome::Finish)));
    let running = Running::start(worker);
    let texts = [
        "no mail server",
        "the handler panicked: no such template",
        "the payload cannot be read as",
        "the handler answered Fail",
    ];
    for (id, text) in ids.iter().zip(texts) {
        let dead = fixture.until_state(id, Some(JobState::Dead)).await.unwrap();
        assert!(dead.last_error().starts_with(text), "{}", dead.last_error());
        assert_eq!(dead.attempts(), 2, "the array has one wait");
    }
    running.stop().await;
}

#[tokio::test]
async fn retry_in_waits_for_its_time_and_release_burns_no_attempt() {
    let fixture = Fixture::new().await;
    let (later, back) = (fixture.add("later", NOW).await, fixture.add("back", NOW).await);
    let (say, mut said) = unbounded_channel();
    let handler = move |_: Job, context: Context| {
        let first = context.attempt() == 1;
        say.send((context.queue().to_owned(), context.attempt())).unwrap();
        std::future::ready(Ok::<_, String>(if first { Outcome::Release } else { Outcome::Finish }))
    };
    let worker = fixture
        .worker()
        .queue("later", |_, _| {
            std::future::ready(Ok::<_, String>(Outcome::RetryIn(CONDITION_TIMEOUT)))
        })
        .queue("back", handler);
    let running = Running::start(worker);
    let waits = fixture.until_state(&later, Some(JobState::Scheduled)).await.unwrap();
    assert_eq!(
        (waits.attempts(), waits.last_error()),
        (1, "the handler asked for another attempt")
    );
    assert_eq!(
        [next(&mut said).await, next(&mut said).await],
        [("back".to_owned(), 1), ("back".to_owned(), 2)]
    );
    fixture.until_state(&back, None).await;
    running.stop().await;
}

#[tokio::test]
async fn no_more_handlers_run_than_are_allowed() {
    let fixture = Fixture::new().await;
    for _ in 0..10 {
        fixture.add("few", NOW).await;
    }
    let (say, mut said) = unbounded_channel();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let handler = {
        let gate = gate.clone();
        move |_: Job, _: Context| {
            say.send(()).unwrap();
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Ok::<_, String>(Outcome::Finish)
            }
        }
    };
    let running = Running::start(fixture.worker().queue("few", handler).concurrency(3));
    for _ in 0..3 {
        next(&mut said).await;
    }
    assert_eq!(
        fixture.client.stats().await.unwrap().reserved.iter().sum::<u64>(),
        3,
        "no more than three are even fetched"
    );
    assert!(said.try_recv().is_err());
    gate.add_permits(10);
    for _ in 0..7 {
        next(&mut said).await;
    }
    running.stop().await;
    let counts = fixture.client.stats().await.unwrap();
    assert_eq!(
        [&counts.scheduled, &counts.ready, &counts.reserved]
            .map(|counts| counts.iter().sum::<u64>()),
        [0, 0, 0]
    );
}

#[tokio::test]
async fn a_drain_lets_handlers_end_and_gives_the_rest_back_unburned() {
    let fixture = Fixture::new().await;
    let ids = [
        fixture.add("ends", NOW).await,
        fixture.add("errs", NOW).await,
        fixture.add("hangs", NOW).await,
    ];
    let (say, mut said): (UnboundedSender<()>, _) = unbounded_channel();
    let gate = CancellationToken::new();
    let (first, second, third) = (say.clone(), say.clone(), say);
    let opened = gate.clone();
    let worker = fixture
        .worker()
        .drain(Duration::from_secs(3))
        .queue("ends", move |_, _| {
            let (say, gate) = (first.clone(), opened.clone());
            async move {
                say.send(()).unwrap();
                gate.cancelled().await;
                Ok::<_, String>(Outcome::Finish)
            }
        })
        .queue("errs", move |_, context: Context| {
            let say = second.clone();
            async move {
                say.send(()).unwrap();
                context.cancellation().cancelled().await;
                Err("interrupted")
            }
        })
        .queue("hangs", move |_, _| {
            third.send(()).unwrap();
            std::future::pending::<Result<Outcome, String>>()
        });
    let running = Running::start(worker);
    for _ in 0..3 {
        next(&mut said).await;
    }
    running.stop.cancel();
    gate.cancel();
    running.stop().await;
    assert!(fixture.get(&ids[0]).await.is_none(), "it ended within the drain");
    for id in &ids[1..] {
        let back = fixture.until_state(id, Some(JobState::Ready)).await.unwrap();
        assert_eq!((back.last_error(), back.state_record.as_ref().unwrap().step), ("", 0));
    }
}

#[tokio::test]
async fn what_a_worker_cannot_serve_is_refused() {
    let fixture = Fixture::new().await;
    let handler = |_: Job, _: Context| std::future::ready(Ok::<_, String>(Outcome::Finish));
    let workers = [
        (fixture.worker(), "no queue"),
        (fixture.worker().queue("a b", handler), "queue `a b`: this name"),
        (
            fixture.worker().queue("a", handler).queue("a", handler),
            "two handlers serve the queue `a`",
        ),
    ];
    for (worker, said) in workers {
        let error = worker.run(CancellationToken::new()).await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::Configuration
                && error.message.contains(said)
                && !error.hint.is_empty(),
            "{error}"
        );
    }
}
