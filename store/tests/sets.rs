//! The sets of queues: the sets that a call names, the calls that a script refuses again, and the
//! queues that a bucket knows.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "../src/raw_link.rs"]
mod raw_link;

use std::sync::Arc;

use dwell_store::config::{Durability, Redis};
use dwell_store::job::{Action, Conflict, Due, Job, JobId, Verdict};
use dwell_store::request::{Act, NewJob, Origin, OwnQueues};
use dwell_store::store::admin::fsck::{self, FsckRules};
use dwell_store::store::error::StoreError;
use dwell_store::store::jobs::acknowledge::{Acknowledgement, LeaseAction, LeaseVerdict};
use dwell_store::store::jobs::batch::RequestRef;
use dwell_store::store::jobs::pop::{PopLimits, Popped, Return};
use dwell_store::store::jobs::settle::{Release, SettleResult};
use dwell_store::store::meta::SweepRules;
use dwell_store::store::reader::list::Query;
use dwell_store::store::reader::lookup::JobState;
use dwell_store::store::{Store, Unobserved};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;

/// A due time outside the life of a test.
const FAR: Due = Due::At(4_000_000_000_000);

struct Fixture {
    server: RedisServer,
    store: Store,
    raw: MultiplexedConnection,
}

impl Fixture {
    async fn new(buckets: u16) -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let store = open(&Redis { buckets, ..Redis::new(server.url()) }).await;
        let raw = raw_link::raw_link(server.url()).await;
        Fixture { server, store, raw }
    }

    /// Applies a batch of distinct ids, which all get this verdict.
    async fn all(&self, asked: &[RequestRef<'_>], verdict: Verdict) {
        let answers = self.store.jobs.apply(asked, &[]).await.answers;
        let told: Vec<Verdict> =
            answers.into_iter().map(|answer| answer.unwrap().verdict).collect();
        assert_eq!(told, vec![verdict; asked.len()]);
    }

    async fn schedule(&self, jobs: &[NewJob], verdict: Verdict) {
        self.all(&jobs.iter().map(RequestRef::NewJob).collect::<Vec<_>>(), verdict).await;
    }

    async fn act(&self, acts: &[Act], verdict: Verdict) {
        self.all(&acts.iter().map(RequestRef::Act).collect::<Vec<_>>(), verdict).await;
    }

    /// Due jobs, which their consumer holds for this long.
    async fn take(&self, queue: &str, ttr_ms: u64) -> Vec<Popped> {
        let limits = PopLimits {
            ttr_ms: Some(ttr_ms),
            max_ttr_ms: 60_000,
            most: 128,
            most_bytes: 1 << 30,
            room: None,
        };
        let mut jobs = Vec::new();
        loop {
            let popped = self.store.jobs.pop(rand::random(), 0, queue, limits).await.unwrap();
            jobs.extend(popped.jobs);
            if !popped.more {
                return jobs;
            }
        }
    }

    /// Sends these acknowledgements.
    async fn say(
        &self,
        acknowledgements: &[(&Popped, LeaseAction)],
    ) -> Vec<Result<LeaseVerdict, bool>> {
        let acknowledgements: Vec<Acknowledgement> = acknowledgements
            .iter()
            .map(|(job, action)| Acknowledgement {
                id: job.id.clone(),
                lease: job.lease.clone(),
                action: action.clone(),
            })
            .collect();
        let answers = self.store.jobs.acknowledge(&acknowledgements).await;
        answers
            .into_iter()
            .map(|answer| answer.map(|told| told.verdict).map_err(|error| error.is_refusal()))
            .collect()
    }

    async fn scheduled(&self, queue: &str) -> u64 {
        self.store.reader.queue_counts(&[queue.to_owned()]).await.unwrap()[0].scheduled
    }

    async fn raw(&self, acknowledgements: &[&[u8]]) -> redis::Value {
        let mut command = redis::cmd(std::str::from_utf8(acknowledgements[0]).unwrap());
        acknowledgements[1..].iter().for_each(|action| {
            command.arg(action);
        });
        command.query_async(&mut self.raw.clone()).await.unwrap()
    }

    async fn stat(&self, name: &str) -> u64 {
        let info: String =
            redis::cmd("INFO").arg("stats").query_async(&mut self.raw.clone()).await.unwrap();
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
    }

    /// Runs fsck until it finds nothing more. Returns the findings and the number of jobs.
    async fn repair(&self) -> (Vec<String>, u64) {
        let mut all = Vec::new();
        loop {
            let mut found = Vec::new();
            let sweep = SweepRules { dead_retention_ms: 3_600_000, dedupe_window_ms: 3_600_000 };
            let rules = FsckRules { lease_ms: 60_000, retry_ms: Vec::new(), sweep, repair: true };
            let settings = Redis { buckets: 1, ..Redis::new(self.server.url()) };
            let jobs =
                fsck::run(&settings, rules, &mut |finding| found.push(finding)).await.unwrap();
            if found.is_empty() {
                return (all, jobs);
            }
            assert!(found.iter().all(|finding| finding.repaired), "{found:?}");
            all.extend(found.iter().map(|finding| finding.problem.as_str().to_owned()));
        }
    }

    /// Bytes that Redis has received.
    async fn received(&self) -> u64 {
        self.stat("total_net_input_bytes:").await
    }

    /// Commands that Redis has carried out, also by scripts.
    async fn commands(&self) -> u64 {
        self.stat("total_commands_processed:").await
    }

    /// Script calls that Redis has received.
    async fn script_calls(&self) -> u64 {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut self.raw.clone())
            .await
            .unwrap();
        let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    }
}

async fn open(settings: &Redis) -> Store {
    Store::open(settings, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap()
}

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

/// Jobs, one in each of these queues.
fn jobs(count: usize, queue: impl Fn(usize) -> String) -> Vec<NewJob> {
    (0..count)
        .map(|n| NewJob::new(Job::for_queue(queue(n), "x"), FAR).id(id(&format!("job-{n}"))))
        .collect()
}

fn told(
    answers: Vec<Result<dwell_store::store::jobs::batch::Answer, StoreError>>,
) -> Vec<Result<Verdict, bool>> {
    answers
        .into_iter()
        .map(|answer| answer.map(|answer| answer.verdict).map_err(|error| error.is_refusal()))
        .collect()
}

#[tokio::test]
async fn jobs_of_many_queues_go_into_another_queue_in_one_batch() {
    let fixture = Fixture::new(1).await;
    fixture.schedule(&jobs(300, |n| format!("of.{n}")), Verdict::Added).await;
    let again: Vec<NewJob> = jobs(300, |_| "all".to_owned())
        .into_iter()
        .map(|job| job.on_conflict(Conflict::Keep))
        .collect();
    fixture.schedule(&again, Verdict::Kept).await;
    fixture.schedule(&jobs(300, |_| "all".to_owned()), Verdict::Replaced).await;
    assert_eq!((fixture.scheduled("all").await, fixture.scheduled("of.17").await), (300, 0));
    fixture.schedule(&jobs(300, |n| format!("back.{n}")), Verdict::Replaced).await;
    assert_eq!((fixture.scheduled("all").await, fixture.scheduled("back.17").await), (0, 1));
}

/// Requests for one id, in pairs: the first moves the job into a queue of its own, the second
/// leaves it there, and names another queue.
fn pairs(count: usize, of: &str) -> Vec<NewJob> {
    let one = |n: usize| {
        let (queue, conflict) =
            if n.is_multiple_of(2) { ("a", Conflict::Replace) } else { ("b", Conflict::Keep) };
        NewJob::new(Job::for_queue(format!("mine.{queue}{}", n / 2), "x"), FAR)
            .id(id(of))
            .on_conflict(conflict)
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn many_requests_for_one_id_in_many_queues_are_sent_once() {
    const MANY: usize = 1000;
    let fixture = Fixture::new(1).await;
    let told_of_pairs = |first: Verdict| -> Vec<Result<Verdict, bool>> {
        let of = |n: usize| match n {
            0 => first,
            n if n % 2 == 0 => Verdict::Replaced,
            _ => Verdict::Kept,
        };
        (0..MANY).map(|n| Ok(of(n))).collect()
    };
    let (first, second) = (pairs(MANY, "x"), pairs(MANY, "x"));
    // The job of others stays where it is.
    let mut refused = pairs(MANY, "theirs");
    refused.iter_mut().for_each(|job| job.own_queues = Some(OwnQueues::new(["mine.*"])));
    let theirs = NewJob::new(Job::for_queue("theirs", "x"), FAR).id(id("theirs"));
    fixture.schedule(&[theirs], Verdict::Added).await;
    let batches = [
        ("of a new id", &first, told_of_pairs(Verdict::Added)),
        ("again, by other messages", &second, told_of_pairs(Verdict::Replaced)),
        ("again, by the same messages", &second, told_of_pairs(Verdict::Replaced)),
        ("of the id of others", &refused, vec![Err(true); MANY]),
    ];
    for (what, batch, expected) in batches {
        let asked: Vec<RequestRef<'_>> = batch.iter().map(RequestRef::NewJob).collect();
        let (calls, bytes) = (fixture.script_calls().await, fixture.received().await);
        assert_eq!(told(fixture.store.jobs.apply(&asked, &[]).await.answers), expected, "{what}");
        let calls = fixture.script_calls().await - calls;
        let bytes = fixture.received().await - bytes;
        println!("{MANY} requests {what}: {calls} calls, {bytes} bytes to Redis");
        assert!(calls < MANY as u64 + 16, "{what}: {calls} calls");
        assert!(bytes < MANY as u64 * 2048, "{what}: {bytes} bytes");
    }
    assert_eq!(fixture.scheduled(&format!("mine.a{}", MANY / 2 - 1)).await, 1);
}

#[tokio::test]
async fn an_action_names_the_set_of_its_own_job() {
    let fixture = Fixture::new(16).await;
    let queues = jobs(1500, |n| format!("of.{n}"));
    fixture.schedule(&queues, Verdict::Added).await;
    let acts = |action: Action| -> Vec<Act> {
        queues.iter().map(|job| Act::new(action, job.id.clone())).collect()
    };
    for (action, verdict) in [(Action::Fire, Verdict::Firing), (Action::Cancel, Verdict::Cancelled)]
    {
        let before = fixture.received().await;
        fixture.act(&acts(action), verdict).await;
        let sent = fixture.received().await - before;
        println!("1500 times {action:?} on 1500 queues: {sent} bytes to Redis");
        // Two calls of less than 1 KiB each.
        assert!(sent < 1500 * 2048, "{sent} bytes");
    }
}

#[tokio::test]
async fn an_action_on_a_job_of_a_queue_is_carried_out_while_a_replica_hangs() {
    let fixture = Fixture::new(1).await;
    let replica = RedisServer::start(RedisOptions {
        replica_of: Some(fixture.server.port()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let settings =
        Redis { durability: Durability::Replica, buckets: 1, ..Redis::new(fixture.server.url()) };
    let store = open(&settings).await;
    fixture.schedule(&jobs(1, |_| "q".to_owned()), Verdict::Added).await;
    replica.freeze().unwrap();
    let cancel = Act::new(Action::Cancel, id("job-0"));
    let error = store.jobs.act(&cancel, &[]).await.unwrap_err();
    assert!(error.message.contains("not durable"), "{error}");
    assert!(
        fixture.store.reader.find(&id("job-0")).await.unwrap().is_none(),
        "the action was not carried out"
    );
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_a_refusal_of_that_request_alone() {
    let fixture = Fixture::new(1).await;
    fixture.schedule(&jobs(2, |_| "q".to_owned()), Verdict::Added).await;
    let origin = Origin { fingerprint: [7; 8], maybe_redelivered: true, is_message: true };
    fixture.raw(&[b"HSET", b"{dwell:00}:applied", &origin.fingerprint, b"nothing"]).await;
    let acts = [
        Act { origin, ..Act::new(Action::Cancel, id("job-0")) },
        Act::new(Action::Cancel, id("job-1")),
    ];
    let asked: Vec<RequestRef<'_>> = acts.iter().map(RequestRef::Act).collect();
    assert_eq!(
        told(fixture.store.jobs.apply(&asked, &[]).await.answers),
        [Err(true), Ok(Verdict::Cancelled)]
    );
}

#[tokio::test]
async fn a_job_that_fails_its_script_is_refused_alone_and_what_follows_keeps_its_order() {
    let fixture = Fixture::new(1).await;
    fixture.schedule(&jobs(1, |_| "q".to_owned()), Verdict::Added).await;
    // The job is in no set: the script looks for the job in the claims, one of which no script can
    // read.
    fixture.raw(&[b"ZREM", b"{dwell:00}:due:=q", b"job-0"]).await;
    fixture.raw(&[b"HSET", b"{dwell:00}:settled", b"a lease.", &[0; 9000]]).await;
    fixture.raw(&[b"HSET", b"{dwell:00}:claims", b"a lease.", b"\0x\x015"]).await;
    let batch = jobs(3, |_| "r".to_owned());
    let cancel = Act::new(Action::Cancel, id("job-1"));
    let mut asked: Vec<RequestRef<'_>> = batch.iter().map(RequestRef::NewJob).collect();
    asked.push(RequestRef::Act(&cancel));
    let answers = told(fixture.store.jobs.apply(&asked, &[]).await.answers);
    assert_eq!(
        answers,
        [Err(true), Ok(Verdict::Added), Ok(Verdict::Added), Ok(Verdict::Cancelled)]
    );
}

#[tokio::test]
async fn a_queue_whose_jobs_are_over_leaves_nothing_behind() {
    let fixture = Fixture::new(16).await;
    let queues = jobs(300, |n| format!("of.{n}"));
    fixture.schedule(&queues, Verdict::Added).await;
    assert_eq!(fixture.store.reader.queues().await.unwrap().len(), 300);
    fixture
        .act(
            &queues.iter().map(|job| Act::new(Action::Cancel, job.id.clone())).collect::<Vec<_>>(),
            Verdict::Cancelled,
        )
        .await;
    let counts = fixture.store.reader.active_counts(|_| true).await.unwrap();
    assert_eq!((counts.queues.len(), counts.empty.iter().map(Vec::len).sum::<usize>()), (0, 300));
    fixture.store.admin.forget_queues(&counts.empty).await.unwrap();

    assert_eq!(fixture.store.reader.queues().await.unwrap().len(), 0);
    let redis::Value::Array(fields) = fixture.raw(&[b"HKEYS", b"dwell:meta"]).await else {
        panic!()
    };
    assert_eq!(fields.len(), 4, "buckets, epoch, schema and one broker: {fields:?}");
    for bucket in 0..16 {
        let key = fixture.store.keys().queues(bucket).as_bytes().to_vec();
        assert_eq!(fixture.raw(&[b"EXISTS", &key]).await, redis::Value::Int(0));
    }
    let before = fixture.commands().await;
    fixture.store.reader.counts(&[1, 60]).await.unwrap();
    fixture.store.reader.active_counts(|_| true).await.unwrap();
    fixture.store.reader.list(&Query::new(JobState::Scheduled)).await.unwrap();
    let asked = fixture.commands().await - before;
    assert!(asked < 500, "{asked} commands in a namespace without a job");
}

#[tokio::test]
async fn a_job_that_comes_while_its_queue_is_forgotten_is_known() {
    let fixture = Fixture::new(1).await;
    let job = jobs(1, |_| "q".to_owned());
    fixture.schedule(&job, Verdict::Added).await;
    fixture.act(&[Act::new(Action::Cancel, id("job-0"))], Verdict::Cancelled).await;
    let empty = fixture.store.reader.active_counts(|_| true).await.unwrap().empty;
    assert_eq!(empty, [["q".to_owned()]]);
    // Another instance, which has counted nothing.
    let other = open(&Redis { buckets: 1, ..Redis::new(fixture.server.url()) }).await;
    other.jobs.schedule(&jobs(1, |_| "q".to_owned())).await.unwrap();
    fixture.store.admin.forget_queues(&empty).await.unwrap();
    let listed = fixture.store.reader.list(&Query::new(JobState::Scheduled)).await.unwrap().jobs;
    assert_eq!((listed.len(), fixture.store.reader.queues().await.unwrap().len()), (1, 1));

    // A job in a claim of the rescue is in no set of its queue.
    fixture.act(&[Act::new(Action::Fire, id("job-0"))], Verdict::Firing).await;
    let limits =
        PopLimits { ttr_ms: Some(0), max_ttr_ms: 1, most: 1, most_bytes: 1 << 20, room: None };
    assert_eq!(fixture.store.jobs.pop([1; 8], 0, "q", limits).await.unwrap().jobs.len(), 1);
    let leased = fixture
        .store
        .jobs
        .rescue(0, std::time::Duration::from_secs(60), 1, 1 << 20)
        .await
        .unwrap()
        .jobs
        .remove(0);
    fixture.store.admin.forget_queues(&empty).await.unwrap();
    assert_eq!(fixture.store.reader.queues().await.unwrap().len(), 0);
    let released = Release { job: leased.token, pause_ms: 0, unpublished: true };
    assert_eq!(
        fixture.store.jobs.release(0, "=q", &[released]).await.unwrap(),
        [SettleResult::Settled]
    );
    assert_eq!(fixture.store.reader.active_counts(|_| true).await.unwrap().queues["q"].ready, 1);
}

#[tokio::test]
async fn the_pops_of_a_bucket_stay_few_while_the_clock_stands_behind() {
    let fixture = Fixture::new(1).await;
    for round in 0..3_u8 {
        // The time was written before the clock of Redis went back.
        fixture.raw(&[b"HSET", b"{dwell:00}:pops", b"", b"9000000000000"]).await;
        for number in 0..1100_u16 {
            let [high, low] = number.to_be_bytes();
            fixture
                .store
                .jobs
                .unpop([1, round, high, low, 0, 0, 0, 0], Return::Due, 0, "q", &[])
                .await
                .unwrap();
        }
    }
    let number = async |key: &[u8]| match fixture.raw(&[b"HLEN", key]).await {
        redis::Value::Int(number) => number,
        other => panic!("{other:?}"),
    };
    let (newer, older) = (number(b"{dwell:00}:pops").await, number(b"{dwell:00}:pops_old").await);
    assert!(newer + older < 2 * 1100, "{newer} and {older}");
}

/// Due at once.
fn due(name: &str, queue: &str) -> NewJob {
    NewJob::new(Job::for_queue(queue, "x"), Due::In(0)).id(id(name))
}

#[tokio::test]
async fn a_queue_with_a_key_of_another_type_refuses_its_own_requests_alone() {
    let fixture = Fixture::new(1).await;
    fixture.raw(&[b"SET", b"{dwell:00}:due:=a", b"x"]).await;
    let batch = jobs(96, |n| if n == 0 { "a" } else { "b" }.to_owned());
    let cancel = Act::new(Action::Cancel, id("job-7"));
    let mut asked: Vec<RequestRef<'_>> = batch.iter().map(RequestRef::NewJob).collect();
    asked.push(RequestRef::Act(&cancel));
    let answers = told(fixture.store.jobs.apply(&asked, &[]).await.answers);
    assert_eq!(answers[0], Err(true));
    assert_eq!(answers[1..96], vec![Ok(Verdict::Added); 95]);
    assert_eq!(answers[96], Ok(Verdict::Cancelled), "it waits for the job before it");
}

#[tokio::test]
async fn a_refused_move_into_a_damaged_queue_refuses_no_later_request_for_its_id() {
    let fixture = Fixture::new(1).await;
    fixture.schedule(&jobs(1, |_| "b".to_owned()), Verdict::Added).await;
    fixture.raw(&[b"SET", b"{dwell:00}:due:=a", b"x"]).await;
    let into_a = jobs(1, |_| "a".to_owned());
    let into_c = jobs(1, |_| "c".to_owned());
    let [fire, cancel] = [Action::Fire, Action::Cancel].map(|action| Act::new(action, id("job-0")));
    let later = [
        (RequestRef::Act(&fire), Verdict::Firing),
        (RequestRef::NewJob(&into_c[0]), Verdict::Replaced),
        (RequestRef::Act(&cancel), Verdict::Cancelled),
    ];
    for (request, verdict) in later {
        let answers = told(
            fixture.store.jobs.apply(&[RequestRef::NewJob(&into_a[0]), request], &[]).await.answers,
        );
        assert_eq!(answers, [Err(true), Ok(verdict)]);
    }
}

#[tokio::test]
async fn a_broker_with_a_key_of_another_type_refuses_no_action_on_jobs_of_others() {
    let fixture = Fixture::new(1).await;
    let settings = Redis { buckets: 1, ..Redis::new(fixture.server.url()) };
    let store =
        Store::open(&settings, &["main".to_owned(), "other".to_owned()], Arc::new(Unobserved))
            .await
            .unwrap();
    fixture.schedule(&jobs(1, |_| "q".to_owned()), Verdict::Added).await;
    fixture.raw(&[b"SET", b"{dwell:00}:due:other", b"x"]).await;
    let acts = [Act::new(Action::Cancel, id("job-0")), Act::new(Action::Cancel, id("nobody"))];
    let asked: Vec<RequestRef<'_>> = acts.iter().map(RequestRef::Act).collect();
    assert_eq!(
        told(store.jobs.apply(&asked, &[]).await.answers),
        [Ok(Verdict::Cancelled), Ok(Verdict::NotFound)]
    );
}

#[tokio::test]
async fn a_queue_with_a_key_of_another_type_refuses_no_word_on_leases_of_others() {
    let fixture = Fixture::new(1).await;
    fixture.schedule(&[due("of-a", "a"), due("of-b", "b")], Verdict::Added).await;
    let of_a = fixture.take("a", 60_000).await.remove(0);
    let of_b = fixture.take("b", 60_000).await.remove(0);
    fixture.raw(&[b"DEL", b"{dwell:00}:due:=a"]).await;
    fixture.raw(&[b"SET", b"{dwell:00}:due:=a", b"x"]).await;
    let touch = LeaseAction::Touch { ttr_ms: 30_000 };
    let fail = LeaseAction::Fail { wait_ms: Some(1000), error: String::new() };
    let acknowledgements = [(&of_a, fail), (&of_b, touch), (&of_b, LeaseAction::Finish)];
    assert_eq!(
        fixture.say(&acknowledgements).await,
        [Err(true), Ok(LeaseVerdict::Touched), Ok(LeaseVerdict::Finished)]
    );
    // Only what writes the key needs it.
    assert_eq!(fixture.say(&[(&of_a, LeaseAction::Finish)]).await, [Ok(LeaseVerdict::Finished)]);
}

#[tokio::test]
async fn a_damaged_count_of_a_queue_leaves_every_answer_true() {
    let fixture = Fixture::new(1).await;
    let ids = ["cancelled", "finished", "failed", "fetched", "replaced", "rescued"];
    fixture.schedule(&ids.map(|id| due(id, "q")), Verdict::Added).await;
    let damage = [&b"HSET"[..], b"{dwell:00}:queues", b"=q", b"x"];
    fixture.raw(&damage).await;
    let jobs = fixture.take("q", 60_000).await;
    assert_eq!(jobs.len(), ids.len());
    let of = |id: &str| jobs.iter().find(|job| job.id.as_str() == id).unwrap();
    assert!(fixture.take("q", 60_000).await.is_empty(), "handed out twice");

    let act = |action, of: &str| Act::new(action, id(of));
    fixture.act(&[act(Action::Cancel, "cancelled")], Verdict::CancelledAfterAttempt).await;
    fixture.act(&[act(Action::Finish, "finished")], Verdict::Finished).await;
    fixture.act(&[act(Action::Finish, "finished")], Verdict::Fired).await;
    fixture.act(&[act(Action::Fail, "failed")], Verdict::Dead).await;
    fixture.schedule(&[due("replaced", "q")], Verdict::Replaced).await;
    let finish = [(of("fetched"), LeaseAction::Finish), (of("fetched"), LeaseAction::Finish)];
    assert_eq!(fixture.say(&finish).await, [Ok(LeaseVerdict::Finished), Ok(LeaseVerdict::Fired)]);
    fixture.raw(&[b"ZADD", b"{dwell:00}:held", b"1", b"rescued"]).await;
    let lease = std::time::Duration::from_secs(60);
    assert_eq!(fixture.store.jobs.rescue(0, lease, 8, 1 << 20).await.unwrap().jobs.len(), 1);

    let (problems, _) = fixture.repair().await;
    assert_eq!(problems, ["bad_count"]);
    assert_eq!(
        fixture.raw(&[b"HGET", b"{dwell:00}:queues", b"=q"]).await,
        redis::Value::BulkString(b"0".to_vec())
    );
}

#[tokio::test]
async fn a_repaired_job_is_in_a_queue_that_its_bucket_knows() {
    let fixture = Fixture::new(1).await;
    fixture.schedule(&jobs(1, |_| "q".to_owned()), Verdict::Added).await;
    fixture.raw(&[b"ZREM", b"{dwell:00}:due:=q", b"job-0"]).await;
    fixture.raw(&[b"HDEL", b"{dwell:00}:queues", b"=q"]).await;
    assert_eq!(fixture.repair().await, (vec!["record_without_index".to_owned()], 1));
    assert_eq!(fixture.store.reader.queues().await.unwrap(), ["q".to_owned()].into());
    let dead = Query { queue: Some("q".to_owned()), ..Query::new(JobState::Dead) };
    assert_eq!(fixture.store.reader.list(&dead).await.unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn the_rescue_of_few_jobs_reads_few_large_records() {
    let fixture = Fixture::new(1).await;
    let of = |n: usize| format!("{n:02}");
    let job = |n: usize| Job::for_queue("q", vec![b'x'; if n < 20 { 10 } else { 1 << 20 }]);
    let batch: Vec<NewJob> =
        (0..52).map(|n| NewJob::new(job(n), Due::In(0)).id(id(&of(n)))).collect();
    fixture.schedule(&batch, Verdict::Added).await;
    assert_eq!(fixture.take("q", 60_000).await.len(), 52);
    for n in 0..52 {
        fixture
            .raw(&[b"ZADD", b"{dwell:00}:held", n.to_string().as_bytes(), of(n).as_bytes()])
            .await;
    }
    // The commands that Redis receives, from scripts too.
    let monitor =
        redis::Client::open(fixture.server.url()).unwrap().get_async_monitor().await.unwrap();
    let rescued = fixture
        .store
        .jobs
        .rescue(0, std::time::Duration::from_secs(60), 128, 1 << 20)
        .await
        .unwrap();
    assert_eq!(rescued.jobs.len(), 20);
    fixture.raw(&[b"ECHO", b"the end"]).await;
    let mut seen = std::pin::pin!(monitor.into_on_message::<String>());
    let mut large = 0;
    while let Some(line) = seen.next().await.filter(|line| !line.contains("the end")) {
        let reads = line.contains("\"HMGET\" \"{dwell:00}:jobs\"")
            || line.contains("\"HGET\" \"{dwell:00}:jobs\"");
        large += (20..52).filter(|n| reads && line.contains(&format!("\"{}\"", of(*n)))).count();
    }
    assert!(large <= 1, "{large} records of 1 MiB were read, and none taken");
}
