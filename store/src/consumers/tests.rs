//! Pops, lease actions and counts, on a private Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

mod ahead;
mod bounds;
mod gone;
mod in_flight;
mod limited;
mod memory;
mod order;
mod others;
mod shared;

use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::*;
use crate::config::Redis;
use crate::job::{Action, Conflict, DeadReason, Due, Expire, Job, JobId, Late, OnTimeout, Verdict};
use crate::request::{Act, NewJob};
use crate::store::Unobserved;
use crate::store::jobs::acknowledge::{LeaseAction, LeaseVerdict};
use crate::store::jobs::batch::RequestRef;
use crate::store::jobs::lease::Lease;
use crate::store::jobs::pop::{PopLimits, Popped, Return};
use crate::store::jobs::settle::{Bury, SettleResult};
use crate::store::reader::lookup::JobState;
use crate::store::reader::queues::QueueCounts;

const QUEUE: &str = "orders.Close-1";
const FAR: Due = Due::In(3_600_000);

struct Fixture {
    server: RedisServer,
    store: Arc<Store>,
    consumers: Consumers,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture::with(LateRules::default()).await
    }

    async fn with(rules: LateRules) -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let store = Arc::new(
            Store::open(&Redis::new(server.url()), &["main".to_owned()], Arc::new(Unobserved))
                .await
                .unwrap(),
        );
        let consumers =
            Consumers::new(store.clone(), rules, Arc::new(()), CancellationToken::new());
        Fixture { server, store, consumers }
    }

    async fn add(&self, id: &str, due: Due) -> NewJob {
        let job = Job { retry: Some(vec![3_600_000]), ..Job::for_queue(QUEUE, id.to_owned()) };
        self.schedule(NewJob::new(job, due).id(id.parse().unwrap())).await
    }

    async fn schedule(&self, new_job: NewJob) -> NewJob {
        let scheduled = self.store.jobs.schedule(std::slice::from_ref(&new_job)).await.unwrap();
        assert!(
            matches!(scheduled.answers[0].verdict, Verdict::Added | Verdict::Replaced),
            "{scheduled:?}"
        );
        self.consumers.wake_all(scheduled.wake_ups).await;
        new_job
    }

    async fn pop(&self, max: usize, wait: Duration) -> PoppedJobs {
        self.consumers.pop(&request(max, wait)).await.unwrap()
    }

    /// Pops one job, which the consumer keeps.
    async fn take(&self) -> Popped {
        let mut jobs = self.pop(1, Duration::ZERO).await.sent();
        assert_eq!(jobs.len(), 1);
        jobs.remove(0)
    }

    async fn say(&self, job: &Popped, action: LeaseAction) -> Acknowledged {
        let action = Acknowledgement { id: job.id.clone(), lease: job.lease.clone(), action };
        self.consumers.acknowledge(&[action]).await.remove(0).unwrap()
    }

    async fn verdict(&self, job: &Popped, action: LeaseAction) -> LeaseVerdict {
        self.say(job, action).await.verdict
    }

    async fn act(&self, action: Action, id: &str) -> Verdict {
        self.store.jobs.act(&Act::new(action, id.parse().unwrap()), &[]).await.unwrap().verdict
    }

    /// The counts of scheduled, ready, reserved and dead jobs.
    async fn counts(&self) -> [u64; 4] {
        let counts = self.store.reader.queue_counts(&[QUEUE.to_owned()]).await.unwrap().remove(0);
        let QueueCounts { scheduled, ready, reserved, dead, .. } = counts;
        [scheduled, ready, reserved, dead]
    }
}

fn request(max: usize, wait: Duration) -> PopRequest {
    PopRequest {
        queues: vec![QUEUE.to_owned()],
        max,
        max_bytes: 1 << 23,
        wait,
        ttr_ms: None,
        max_ttr_ms: 43_200_000,
    }
}

fn fail(wait_ms: Option<u64>) -> LeaseAction {
    LeaseAction::Fail { wait_ms, error: "no".to_owned() }
}

#[tokio::test]
async fn a_job_that_cannot_be_read_dies_among_the_dead_of_its_queue() {
    let fixture = Fixture::new().await;
    fixture.add("x", Due::In(0)).await;
    let asked = PopRequest { max_ttr_ms: 1, ..request(1, Duration::ZERO) };
    assert_eq!(fixture.consumers.pop(&asked).await.unwrap().sent().len(), 1);
    let bucket = fixture.store.keys().bucket_of("x");
    let mut raw = crate::raw_link::raw_link(fixture.server.url()).await;
    let jobs = fixture.store.keys().jobs(bucket);
    let mut record: Vec<u8> =
        redis::cmd("HGET").arg(jobs).arg("x").query_async(&mut raw).await.unwrap();
    // The cut is in the metadata.
    record.truncate(60);
    redis::cmd("HSET").arg(jobs).arg("x").arg(record).exec_async(&mut raw).await.unwrap();
    let broken = loop {
        let taken =
            fixture.store.jobs.rescue(bucket, Duration::from_secs(9), 10, 1 << 20).await.unwrap();
        if let Some(broken) = taken.broken.into_iter().next() {
            break broken;
        }
    };
    assert_eq!(broken.queue.as_deref(), Some(QUEUE));
    let bury = Bury { job: broken.token(), reason: DeadReason::Invalid, error: broken.why.clone() };
    assert_eq!(
        fixture.store.jobs.bury_of(bucket, broken.queue.as_deref(), &[bury]).await.unwrap(),
        [SettleResult::Settled]
    );
    // In the set of the brokers' dead jobs, no action would find the job, and the sweep would
    // remove a later job of the id.
    assert_eq!(
        (fixture.counts().await, fixture.act(Action::Fire, "x").await),
        ([0, 0, 0, 1], Verdict::Dead)
    );
    fixture.add("x", FAR).await;
    assert_eq!(fixture.counts().await, [1, 0, 0, 0]);
}

#[tokio::test]
async fn a_due_job_is_fetched_once_and_finished() {
    let fixture = Fixture::new().await;
    fixture.add("later", FAR).await;
    assert!(fixture.pop(10, Duration::ZERO).await.is_empty());
    fixture.add("now", Due::In(0)).await;
    assert_eq!(fixture.counts().await, [1, 1, 0, 0]);
    let job = fixture.take().await;
    assert_eq!(
        (job.id.as_str(), job.state.attempt, &job.record.job.body[..]),
        ("now", 1, &b"now"[..])
    );
    assert_eq!((job.lease.ttr_ms, job.lease.wait_ms), (30_000, Some(3_600_000)));
    assert!(fixture.pop(10, Duration::ZERO).await.is_empty());
    assert_eq!(fixture.counts().await, [1, 0, 1, 0]);
    assert_eq!(
        fixture.store.reader.find(&job.id).await.unwrap().unwrap().state,
        JobState::Reserved
    );
    assert_eq!(fixture.verdict(&job, LeaseAction::Finish).await, LeaseVerdict::Finished);
    assert_eq!(fixture.verdict(&job, LeaseAction::Finish).await, LeaseVerdict::Fired);
    assert_eq!(
        (fixture.counts().await, fixture.act(Action::Cancel, "now").await),
        ([1, 0, 0, 0], Verdict::Fired)
    );
    // A later job with the same id is another job.
    fixture.add("now", Due::In(0)).await;
    assert_eq!(fixture.verdict(&job, LeaseAction::Finish).await, LeaseVerdict::Stale);
    assert_eq!(fixture.take().await.state.attempt, 1);
}

#[tokio::test]
async fn a_failed_job_waits_and_is_dead_at_the_end_of_its_array() {
    let fixture = Fixture::new().await;
    fixture.add("x", Due::In(0)).await;
    let first = fixture.take().await;
    for _ in 0..2 {
        let failed = fixture.say(&first, fail(Some(0))).await;
        assert_eq!(
            (failed.verdict, failed.ms.is_some()),
            (LeaseVerdict::Failed, true),
            "a repeat answers the same"
        );
    }
    assert_eq!(
        fixture.verdict(&first, LeaseAction::Finish).await,
        LeaseVerdict::Stale,
        "another action does not"
    );
    let second = fixture.take().await;
    assert_eq!(
        (second.state.attempt, second.state.step, second.lease.wait_ms, second.due_ms()),
        (2, 1, None, first.due_ms())
    );
    assert_eq!(fixture.verdict(&first, fail(Some(0))).await, LeaseVerdict::Stale);
    for _ in 0..2 {
        assert_eq!(
            fixture.say(&second, fail(None)).await,
            Acknowledged { verdict: LeaseVerdict::Dead, ms: None }
        );
    }
    assert_eq!(fixture.counts().await, [0, 0, 0, 1]);
    let found = fixture.store.reader.find(&second.id).await.unwrap().unwrap();
    assert_eq!((found.state, found.last_error()), (JobState::Dead, "no"));
    assert_eq!(fixture.act(Action::Requeue, "x").await, Verdict::Requeued);
    assert_eq!((fixture.counts().await, fixture.take().await.state.attempt), ([0, 1, 0, 0], 1));
}

#[tokio::test]
async fn a_released_job_keeps_its_step_and_a_touched_one_its_lease() {
    let fixture = Fixture::new().await;
    fixture.add("x", Due::In(0)).await;
    let first = fixture.take().await;
    let touched = fixture.say(&first, LeaseAction::Touch { ttr_ms: 90_000 }).await;
    assert!(
        touched.verdict == LeaseVerdict::Touched
            && touched.ms.unwrap() > first.deadline_ms + 50_000,
        "{touched:?}"
    );
    for _ in 0..2 {
        assert_eq!(
            fixture.verdict(&first, LeaseAction::Release { wait_ms: 0 }).await,
            LeaseVerdict::Released
        );
    }
    let second = fixture.take().await;
    assert_eq!((second.state.attempt, second.state.step), (2, 0));
    assert_eq!(
        fixture.verdict(&first, LeaseAction::Release { wait_ms: 0 }).await,
        LeaseVerdict::Stale
    );
    assert_eq!(
        fixture.verdict(&second, LeaseAction::Release { wait_ms: 3_600_000 }).await,
        LeaseVerdict::Released
    );
    assert_eq!(fixture.counts().await, [1, 0, 0, 0]);
}

#[tokio::test]
async fn what_nobody_got_is_due_again_and_a_repeat_of_a_pop_is_the_pop() {
    let fixture = Fixture::new().await;
    for at in 0..20 {
        fixture.add(&format!("job-{at}"), Due::In(0)).await;
    }
    let jobs = fixture.pop(12, Duration::ZERO).await;
    assert_eq!((jobs.len(), fixture.counts().await), (12, [0, 8, 12, 0]));
    drop(jobs);
    let jobs = fixture.pop(20, Duration::from_secs(20)).await;
    let again = fixture.pop(20, Duration::from_secs(20)).await;
    assert_eq!(jobs.len() + again.len(), 20, "given back in parts, or at once");
    drop((jobs.sent(), again.sent()));

    fixture.add("one", Due::In(0)).await;
    let (bucket, nonce) = (fixture.store.keys().bucket_of("one"), [7; 8]);
    let limits = PopLimits {
        ttr_ms: Some(5000),
        max_ttr_ms: 10_000,
        most: 10,
        most_bytes: 1000,
        room: None,
    };
    let pop = || fixture.store.jobs.pop(nonce, bucket, QUEUE, limits);
    let first = pop().await.unwrap();
    fixture.add("two-of-the-bucket", Due::In(0)).await;
    let second = pop().await.unwrap();
    let of = |answer: &crate::store::jobs::pop::PopAnswer| {
        answer.jobs.iter().map(|job| (job.id.clone(), job.state.attempt)).collect::<Vec<_>>()
    };
    assert_eq!(
        (of(&first), of(&second)),
        (vec![("one".parse::<JobId>().unwrap(), 1)], vec![("one".parse().unwrap(), 1)])
    );
    for left in [1, 0] {
        assert_eq!(
            fixture.store.jobs.unpop(nonce, Return::Due, bucket, QUEUE, &[]).await.unwrap(),
            left
        );
    }
    assert!(pop().await.unwrap().jobs.is_empty(), "a late copy of the pop hands nothing out");
    assert_eq!(fixture.store.jobs.unpop([8; 8], Return::Due, bucket, QUEUE, &[]).await.unwrap(), 0);
    let unsent = fixture.store.jobs.pop([8; 8], bucket, QUEUE, limits).await.unwrap();
    assert!(unsent.jobs.is_empty(), "nor one that arrives after the jobs were asked back");
}

#[tokio::test]
async fn a_waiting_pop_gets_the_job_when_it_is_due() {
    let fixture = Fixture::new().await;
    let waiting = tokio::spawn({
        let consumers = fixture.consumers.clone();
        async move { consumers.pop(&request(5, Duration::from_secs(60))).await.unwrap().sent() }
    });
    while fixture.consumers.waiting(QUEUE) == 0 {
        tokio::task::yield_now().await;
    }
    fixture.add("soon", Due::In(150)).await;
    let jobs = waiting.await.unwrap();
    assert_eq!((jobs.len(), fixture.consumers.waiting(QUEUE)), (1, 0));
    assert!(jobs[0].late_us(fixture.store.now_us()) >= 0);
    // Nothing comes: the wait ends.
    assert!(fixture.pop(1, Duration::from_millis(20)).await.is_empty());
}

#[tokio::test]
async fn verdicts_know_whether_a_job_was_handed_out() {
    let fixture = Fixture::new().await;
    for id in ["a", "b", "c", "d"] {
        fixture.add(id, Due::In(0)).await;
    }
    assert_eq!(
        (fixture.act(Action::Finish, "a").await, fixture.act(Action::Cancel, "a").await),
        (Verdict::NotFound, Verdict::Cancelled)
    );
    let held = fixture.pop(3, Duration::ZERO).await.sent();
    assert_eq!((held.len(), fixture.counts().await), (3, [0, 0, 3, 0]));
    let (one, two, three) = (held[0].id.as_str(), held[1].id.as_str(), held[2].id.as_str());
    assert_eq!(fixture.act(Action::Cancel, one).await, Verdict::CancelledAfterAttempt);
    assert_eq!(
        (fixture.act(Action::Fire, two).await, fixture.act(Action::Finish, two).await),
        (Verdict::InFlight, Verdict::Finished)
    );
    assert_eq!(fixture.act(Action::Fail, three).await, Verdict::Failed);
    assert_eq!(fixture.counts().await, [1, 0, 0, 0]);
    assert_eq!(fixture.act(Action::Fire, three).await, Verdict::Firing);
    let last = fixture.take().await;
    assert_eq!(
        (last.id.as_str(), fixture.act(Action::Fail, three).await),
        (three, Verdict::Dead),
        "the end of the array"
    );
    assert_eq!(fixture.counts().await, [0, 0, 0, 1]);
    // A dead job of the id is over, and a reserved one is replaced.
    fixture.add(three, Due::In(0)).await;
    let held = fixture.take().await;
    fixture.add(three, FAR).await;
    assert_eq!(
        (fixture.counts().await, fixture.verdict(&held, LeaseAction::Finish).await),
        ([1, 0, 0, 0], LeaseVerdict::Stale)
    );
    // Into another queue, and back to a broker.
    let moved = NewJob::new(Job::for_queue("other", "x"), FAR).id(three.parse().unwrap());
    fixture.schedule(moved).await;
    assert_eq!(fixture.counts().await, [0, 0, 0, 0]);
    fixture
        .schedule(
            NewJob::new(Job::new("main", dwell_core::Destination::new("t"), "x"), FAR)
                .id(three.parse().unwrap()),
        )
        .await;
    assert_eq!(
        fixture
            .store
            .reader
            .find(&three.parse().unwrap())
            .await
            .unwrap()
            .unwrap()
            .record
            .job
            .broker(),
        Some("main")
    );
}

#[tokio::test]
async fn an_answer_has_more_bytes_than_asked_for_only_in_a_single_job() {
    let fixture = Fixture::new().await;
    let add = async |id: &str, due| {
        let job = Job::for_queue(QUEUE, "x".repeat(400_000));
        fixture.schedule(NewJob::new(job, due).id(id.parse().unwrap())).await
    };
    let pop = async |max_bytes, wait| {
        fixture.consumers.pop(&PopRequest { max_bytes, ..request(10, wait) }).await.unwrap().sent()
    };
    for id in ["a", "b", "c"] {
        add(id, Due::In(0)).await;
    }
    let two = pop(1_000_000, Duration::ZERO).await;
    assert_eq!((two.len(), fixture.counts().await), (2, [0, 1, 2, 0]));
    let one = pop(1, Duration::ZERO).await;
    assert_eq!(one.iter().chain(&two).map(|job| job.state.attempt).collect::<Vec<_>>(), [1, 1, 1]);
    // The same holds for a pop that waited.
    for id in ["d", "e", "f"] {
        add(id, Due::In(300)).await;
    }
    let some = pop(1_000_000, Duration::from_secs(20)).await.len();
    assert!((1..=2).contains(&some), "{some}");
}

#[tokio::test]
async fn a_paused_queue_gives_nothing_and_a_purged_one_has_nothing() {
    let fixture = Fixture::new().await;
    for at in 0..300 {
        fixture.add(&format!("job-{at}"), if at % 3 == 0 { FAR } else { Due::In(0) }).await;
    }
    fixture.store.admin.pause(QUEUE, 1).await.unwrap();
    assert!(fixture.pop(10, Duration::from_millis(30)).await.is_empty());
    assert!(fixture.store.reader.queue_counts(&[QUEUE.to_owned()]).await.unwrap()[0].paused);
    let paused = fixture.store.reader.counts(&[]).await.unwrap();
    assert_eq!(
        (paused.oldest_ready_ms, paused.ready.iter().sum::<u64>()),
        (None, 200),
        "nobody is to fetch them"
    );
    fixture.store.admin.resume(QUEUE).await.unwrap();
    assert!(fixture.store.reader.counts(&[]).await.unwrap().oldest_ready_ms.is_some());
    assert_eq!(fixture.store.reader.peek(QUEUE, 7, usize::MAX).await.unwrap().len(), 7);
    assert_eq!(fixture.pop(150, Duration::ZERO).await.sent().len(), 150);
    let counts = fixture.store.reader.counts(&[60, 7200]).await.unwrap();
    let sums = [&counts.scheduled, &counts.ready, &counts.reserved]
        .map(|counts| counts.iter().sum::<u64>());
    assert_eq!(sums, [100, 50, 150]);
    // A ready job waits for a consumer: nothing is overdue, and the next job is due later.
    assert_eq!(
        (counts.overdue, &counts.within, counts.next_due_ms.is_some_and(|ms| ms > counts.now_ms)),
        (0, &vec![0, 100], true)
    );
    assert_eq!(fixture.store.admin.purge(QUEUE, JobState::Ready).await.unwrap(), 50);
    assert_eq!(fixture.store.admin.purge(QUEUE, JobState::Scheduled).await.unwrap(), 100);
    assert_eq!(
        (fixture.store.admin.purge(QUEUE, JobState::Dead).await.unwrap(), fixture.counts().await),
        (0, [0, 0, 150, 0])
    );
}

#[tokio::test]
async fn late_jobs_and_those_past_their_end_are_not_handed_out() {
    let fixture = Fixture::with(LateRules { late: Late::Drop, max_late_ms: Some(60_000) }).await;
    let due = |ago: i64| Due::At(crate::clock::wall_ms() - ago);
    let job = || Job { on_timeout: OnTimeout::Retry, ..Job::for_queue(QUEUE, "x") };
    for (id, job, ago) in [
        ("dropped", job(), 120_000),
        ("dead", Job { late: Some(Late::Dead), ..job() }, 120_000),
        ("ended", Job { remove_at_ms: Some(1), ..job() }, 0),
        ("fires", Job { late: Some(Late::Fire), ..job() }, 120_000),
        (
            "expired",
            Job { late: Some(Late::Fire), expire: Some(Expire::After(1000)), ..job() },
            120_000,
        ),
        ("in time", Job { expire: Some(Expire::After(600_000)), ..job() }, 1000),
    ] {
        fixture.schedule(NewJob::new(job, due(ago)).id(id.parse().unwrap())).await;
    }
    let jobs = fixture.pop(10, Duration::ZERO).await.sent();
    let mut ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!((ids, fixture.counts().await), (vec!["fires", "in time"], [0, 0, 2, 2]));
}

#[tokio::test]
async fn a_lease_with_the_name_of_another_queue_moves_no_job_there() {
    let fixture = Fixture::new().await;
    fixture.add("x", Due::In(0)).await;
    let job = fixture.take().await;
    let forged =
        Popped { lease: Lease { queue: "other".to_owned(), ..job.lease.clone() }, ..job.clone() };
    let none = Popped { lease: Lease { nonce: [0; 8], ..job.lease.clone() }, ..job.clone() };
    assert_eq!(fixture.verdict(&none, LeaseAction::Finish).await, LeaseVerdict::Stale);
    for action in [
        fail(Some(0)),
        fail(None),
        LeaseAction::Release { wait_ms: 0 },
        LeaseAction::Touch { ttr_ms: 9 },
        LeaseAction::Finish,
    ] {
        assert_eq!(fixture.verdict(&forged, action).await, LeaseVerdict::NotFound);
    }
    assert_eq!(fixture.counts().await, [0, 0, 1, 0]);
    assert_eq!(fixture.verdict(&job, fail(Some(0))).await, LeaseVerdict::Failed);
}

#[tokio::test]
async fn a_lease_of_another_queue_tells_nothing_of_a_job() {
    let fixture = Fixture::new().await;
    let told = async |job: &Popped| {
        let forged = Popped {
            lease: Lease { queue: "other".to_owned(), ..job.lease.clone() },
            ..job.clone()
        };
        fixture.verdict(&forged, LeaseAction::Finish).await
    };
    fixture.add("x", Due::In(0)).await;
    let job = fixture.take().await;
    assert_eq!(told(&job).await, LeaseVerdict::NotFound, "held");
    assert_eq!(
        fixture.verdict(&job, LeaseAction::Release { wait_ms: 3_600_000 }).await,
        LeaseVerdict::Released
    );
    assert_eq!(told(&job).await, LeaseVerdict::NotFound, "scheduled");
    assert_eq!(fixture.act(Action::Finish, "x").await, Verdict::Finished);
    assert_eq!(told(&job).await, LeaseVerdict::NotFound, "finished");
    assert_eq!(fixture.verdict(&job, LeaseAction::Finish).await, LeaseVerdict::Fired);
}

#[tokio::test]
async fn words_on_leases_that_others_have_by_now_are_answered_whatever_the_size_of_the_jobs() {
    let fixture = Fixture::new().await;
    let mut acknowledgements = Vec::new();
    for id in (0..)
        .map(|n| format!("job-{n}"))
        .filter(|id| fixture.store.keys().bucket_of(id) == 0)
        .take(4)
    {
        let job = Job { body: vec![0; 1 << 20].into(), ..Job::for_queue(QUEUE, "") };
        fixture.schedule(NewJob::new(job, Due::In(0)).id(id.parse().unwrap())).await;
        let job = fixture.take().await;
        let lease = Lease { nonce: [0; 8], ..job.lease.clone() };
        acknowledgements.push(Acknowledgement { id: job.id, lease, action: LeaseAction::Finish });
    }
    let answers = fixture.consumers.acknowledge(&acknowledgements).await;
    let told: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().verdict).collect();
    assert_eq!(told, [LeaseVerdict::Stale; 4]);
}

#[tokio::test]
async fn a_lease_whose_wait_or_span_a_consumer_changed_is_stale() {
    let fixture = Fixture::new().await;
    fixture.add("x", Due::In(0)).await;
    fixture.add("y", Due::In(0)).await;
    let (x, y) = (fixture.take().await, fixture.take().await);
    let lease = Lease::read(&x.lease.text()).unwrap();
    assert_eq!(lease, x.lease);
    for changed in [
        Lease { wait_ms: Some(1 << 47), ..lease.clone() },
        Lease { wait_ms: None, ..lease.clone() },
        Lease { ttr_ms: u32::MAX, ..lease.clone() },
        Lease { seal: y.lease.seal, ..lease.clone() },
    ] {
        let changed = Popped { lease: changed, ..x.clone() };
        for action in [
            fail(changed.lease.wait_ms),
            LeaseAction::Touch { ttr_ms: changed.lease.ttr_ms.into() },
            LeaseAction::Finish,
        ] {
            assert_eq!(
                fixture.verdict(&changed, action).await,
                LeaseVerdict::Stale,
                "{:?}",
                changed.lease
            );
        }
    }
    assert_eq!(fixture.verdict(&x, LeaseAction::Finish).await, LeaseVerdict::Finished);
}

#[tokio::test]
async fn words_are_answered_in_their_order_whatever_their_bucket() {
    let fixture = Fixture::new().await;
    for at in 0..40 {
        fixture.add(&format!("job-{at}"), Due::In(0)).await;
    }
    let jobs = fixture.pop(40, Duration::ZERO).await.sent();
    let strange = Acknowledgement {
        id: "nobody".parse().unwrap(),
        lease: Lease {
            nonce: [0; 8],
            ttr_ms: 1,
            wait_ms: None,
            expires_ms: None,
            queue: QUEUE.to_owned(),
            seal: [0; 8],
        },
        action: LeaseAction::Finish,
    };
    let finish = |job: &Popped| Acknowledgement {
        id: job.id.clone(),
        lease: job.lease.clone(),
        action: LeaseAction::Finish,
    };
    let mut acknowledgements: Vec<Acknowledgement> = jobs.iter().map(finish).collect();
    acknowledgements.push(strange);
    acknowledgements
        .push(Acknowledgement { action: LeaseAction::Touch { ttr_ms: 5 }, ..finish(&jobs[0]) });
    let verdicts: Vec<LeaseVerdict> = fixture
        .consumers
        .acknowledge(&acknowledgements)
        .await
        .into_iter()
        .map(|answer| answer.unwrap().verdict)
        .collect();
    assert!(verdicts[..40].iter().all(|verdict| *verdict == LeaseVerdict::Finished));
    assert_eq!(verdicts[40..], [LeaseVerdict::NotFound, LeaseVerdict::Fired]);
}

#[tokio::test]
async fn a_full_queue_refuses_new_jobs_and_nothing_else() {
    let fixture = Fixture::new().await;
    let refused = async |new_job: &NewJob| {
        let answer = fixture.store.jobs.schedule(std::slice::from_ref(new_job)).await;
        answer
            .map(|scheduled| scheduled.answers[0].verdict)
            .map_err(|error| (error.class, error.is_refusal()))
    };
    let full = (crate::store::error::Class::QueueFull, true);
    let first = NewJob { queue_full: true, ..fixture.add("x", FAR).await };
    assert_eq!(refused(&first).await, Ok(Verdict::Added), "a repeat of what was applied");
    let job = |id: &str, body: &str| {
        NewJob { queue_full: true, ..NewJob::new(Job::for_queue(QUEUE, body.to_owned()), FAR) }
            .id(id.parse().unwrap())
    };
    for (conflict, verdict) in [
        (Conflict::Keep, Verdict::Kept),
        (Conflict::Reject, Verdict::Conflict),
        (Conflict::Replace, Verdict::Replaced),
    ] {
        assert_eq!(refused(&job("x", "other").on_conflict(conflict)).await, Ok(verdict));
    }
    let new = job("y", "y");
    assert_eq!(
        (refused(&new).await, refused(&new).await, fixture.counts().await),
        (Err(full), Err(full), [1, 0, 0, 0])
    );
    assert!(fixture.store.reader.find(&new.id).await.unwrap().is_none());
    // With room the same request is stored; with others it is refused alone.
    assert_eq!(refused(&NewJob { queue_full: false, ..new.clone() }).await, Ok(Verdict::Added));
    assert_eq!(refused(&new).await, Ok(Verdict::Added));
    let requests =
        [job("x", "third"), job("z", "z"), NewJob { queue_full: false, ..job("w", "w") }];
    let asked: Vec<RequestRef<'_>> = requests.iter().map(RequestRef::NewJob).collect();
    let answers = fixture.store.jobs.apply(&asked, &[]).await.answers;
    let told: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().map(|answer| answer.verdict).map_err(|error| error.class))
        .collect();
    assert_eq!(told, [Ok(Verdict::Replaced), Err(full.0), Ok(Verdict::Added)]);
    // A dead job is over: a message with its id is a new job.
    fixture
        .schedule(
            NewJob::new(Job { retry: Some(vec![]), ..Job::for_queue(QUEUE, "d") }, Due::In(0))
                .id("d".parse().unwrap()),
        )
        .await;
    let held = fixture.take().await;
    assert_eq!(
        (fixture.verdict(&held, fail(None)).await, refused(&job("d", "d")).await),
        (LeaseVerdict::Dead, Err(full))
    );
    assert_eq!(
        (fixture.act(Action::Requeue, "d").await, fixture.counts().await),
        (Verdict::Requeued, [3, 1, 0, 0])
    );
}
