//! Requests for recurring schedules on a real Redis.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "../src/raw_link.rs"]
mod raw_link;

use std::sync::Arc;
use std::time::Duration;

use dwell_core::Destination;
use dwell_schedule::{CatchUp, Expression};
use dwell_store::config::Redis;
use dwell_store::job::{Action, Conflict, Due, Job, JobId, Verdict};
use dwell_store::request::{Act, KeptParts, NewJob, NewSchedule, Origin, OwnQueues};
use dwell_store::schedule::{Overlap, Timing};
use dwell_store::store::admin::fsck::{self, FsckRules, Problem};
use dwell_store::store::error::{Class, StoreError};
use dwell_store::store::jobs::batch::{Answer, RequestRef};
use dwell_store::store::meta::SweepRules;
use dwell_store::store::{Store, Unobserved};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use redis::aio::MultiplexedConnection;

const FAR: Due = Due::At(4_000_000_000_000);
/// The first start of the schedules here, epoch ms.
const START: i64 = 4_000_000_000_000;

struct Fixture {
    server: RedisServer,
    store: Store,
    raw: MultiplexedConnection,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let settings = Redis { buckets: 1, ..Redis::new(server.url()) };
        let brokers = ["main".to_owned()];
        let store = Store::open(&settings, &brokers, Arc::new(Unobserved)).await.unwrap();
        let raw = raw_link::raw_link(server.url()).await;
        Fixture { server, store, raw }
    }

    async fn apply(&self, asked: &[RequestRef<'_>]) -> Vec<Answer> {
        let applied = self.store.jobs.apply(asked, &[]).await;
        applied.answers.into_iter().map(Result::unwrap).collect()
    }

    async fn put(&self, new: &NewSchedule) -> (Verdict, Option<i64>) {
        let answer = self.apply(&[RequestRef::NewSchedule(new)]).await[0];
        (answer.verdict, answer.due_ms)
    }

    async fn act(&self, act: &Act) -> (Verdict, Option<i64>) {
        let answer = self.apply(&[RequestRef::Act(act)]).await[0];
        (answer.verdict, answer.due_ms)
    }

    async fn raw<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.raw.clone()).await.unwrap()
    }

    /// The number of schedules, of their states and of their times.
    async fn counts(&self) -> [i64; 3] {
        let keys = self.store.keys();
        [
            self.raw(&["HLEN", keys.schedules(0)]).await,
            self.raw(&["HLEN", keys.schedule_states(0)]).await,
            self.raw(&["ZCARD", keys.schedule_times(0)]).await,
        ]
    }

    /// The findings of fsck: the problem, the id, and whether it was repaired.
    async fn fsck(&self, repair: bool) -> Vec<(Problem, String, bool)> {
        let settings = Redis { buckets: 1, ..Redis::new(self.server.url()) };
        let sweep = SweepRules::DEFAULT;
        let rules = FsckRules { lease_ms: 60_000, retry_ms: Vec::new(), sweep, repair };
        let mut found = Vec::new();
        fsck::run(&settings, rules, &mut |finding| {
            found.push((finding.problem, finding.id, finding.repaired));
        })
        .await
        .unwrap();
        found
    }

    async fn has_job(&self, id: &str) -> bool {
        self.store.reader.find(&id.parse().unwrap()).await.unwrap().is_some()
    }
}

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

/// The identity of the message of this number.
fn message(number: u8) -> Origin {
    Origin { fingerprint: [number; 8], maybe_redelivered: true, is_message: true }
}

/// Each two hours from [`START`], by a message.
fn new(name: &str, number: u8) -> NewSchedule {
    NewSchedule {
        id: id(name),
        conflict: Conflict::Replace,
        own_queues: None,
        is_paused: false,
        from_settings: false,
        timing: Timing {
            text: "@every 2h".to_owned(),
            expression: Expression::parse("@every 2h").unwrap(),
            zone: None,
            start_ms: Some(START),
            end_ms: None,
            count: None,
            catch_up: CatchUp::One,
            overlap: Overlap::Allow,
            spread_ms: 0,
        },
        job: Job { created_ms: 0, ..Job::for_queue("jobs", "x") },
        keep: KeptParts::default(),
        origin: message(number),
        reply_to: None,
    }
}

fn action(action: Action, name: &str, number: u8) -> Act {
    let mut act = Act::new(action, id(name));
    (act.origin, act.due) = (message(number), Some(FAR));
    act
}

#[tokio::test]
async fn a_schedule_is_stored_and_ended_whole_or_not_at_all_while_a_key_is_of_another_type() {
    for at in [0, 1, 3] {
        let fixture = Fixture::new().await;
        let key = fixture.store.keys().schedule_keys(0)[at].clone();
        let (put, end) = (new("a", 1), action(Action::Cancel, "a", 2));
        let refused = async |asked: RequestRef<'_>| {
            fixture.raw::<()>(&["DEL", &key]).await;
            fixture.raw::<()>(&["SET", &key, "foreign"]).await;
            let applied = fixture.store.jobs.apply(&[asked], &[]).await;
            assert!(applied.answers[0].is_err(), "{key}");
            fixture.raw::<()>(&["DEL", &key]).await;
        };
        refused(RequestRef::NewSchedule(&put)).await;
        assert_eq!(fixture.counts().await, [0, 0, 0], "{key}");
        assert_eq!(fixture.put(&put).await.0, Verdict::Added, "{key}");
        if at == 0 {
            // All but what was removed with the key is there.
            refused(RequestRef::Act(&end)).await;
            assert_eq!(fixture.counts().await, [1, 1, 0]);
            assert_eq!(fixture.act(&end).await.0, Verdict::Cancelled);
            assert_eq!(fixture.counts().await, [0, 0, 0]);
        }
    }
}

#[tokio::test]
async fn a_schedule_is_stored_replaced_and_ended() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.put(&new("a", 1)).await, (Verdict::Added, Some(START)));
    assert_eq!(fixture.counts().await, [1, 1, 1]);
    let keys = fixture.store.keys().clone();
    let next: i64 = fixture.raw(&["ZSCORE", keys.schedule_times(0), "a"]).await;
    assert_eq!(next, START);
    assert_eq!(fixture.put(&new("a", 2)).await, (Verdict::Duplicate, Some(START)));
    let mut other = new("a", 3);
    other.timing.start_ms = Some(START + 5);
    for (conflict, verdict) in
        [(Conflict::Keep, Verdict::Kept), (Conflict::Reject, Verdict::Conflict)]
    {
        other.conflict = conflict;
        other.origin = message(other.origin.fingerprint[0] + 1);
        assert_eq!(fixture.put(&other).await, (verdict, Some(START)));
    }
    (other.conflict, other.origin) = (Conflict::Replace, message(6));
    assert_eq!(fixture.put(&other).await, (Verdict::Replaced, Some(START + 5)));
    for (number, name) in
        (7..).zip([Action::Reschedule, Action::Finish, Action::Fail, Action::Requeue])
    {
        let answer = fixture.act(&action(name, "a", number)).await;
        assert_eq!(answer, (Verdict::Waiting, Some(START + 5)), "{name:?}");
    }
    let cancelled = fixture.act(&action(Action::Cancel, "a", 20)).await;
    assert_eq!(cancelled, (Verdict::Cancelled, Some(START + 5)));
    assert_eq!(fixture.counts().await, [0, 0, 0]);
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 21)).await, (Verdict::NotFound, None));
}

#[tokio::test]
async fn a_paused_schedule_has_no_time_in_the_index() {
    let fixture = Fixture::new().await;
    let paused = NewSchedule { is_paused: true, ..new("a", 1) };
    assert_eq!(fixture.put(&paused).await, (Verdict::Added, Some(START)));
    assert_eq!(fixture.counts().await, [1, 1, 0]);
    // A replacement leaves it paused.
    let mut other = new("a", 2);
    other.timing.spread_ms = 9;
    assert_eq!(fixture.put(&other).await, (Verdict::Replaced, Some(START)));
    assert_eq!(fixture.counts().await, [1, 1, 0]);
    assert_eq!(fixture.act(&action(Action::Fire, "a", 3)).await.0, Verdict::Firing);
}

#[tokio::test]
async fn a_fired_occurrence_is_a_job_of_its_own() {
    let fixture = Fixture::new().await;
    fixture.put(&new("a", 1)).await;
    let (verdict, due_ms) = fixture.act(&action(Action::Fire, "a", 2)).await;
    let (first, now_ms) = (due_ms.unwrap(), fixture.store.now_ms());
    assert_eq!(verdict, Verdict::Firing);
    assert!((now_ms - 60_000..=now_ms + 1000).contains(&first), "{first} at {now_ms}");
    let job = fixture.store.reader.find(&id(&format!("a@{first}"))).await.unwrap().unwrap();
    assert_eq!((job.due_ms(), job.job().queue()), (first, Some("jobs")));
    // Another one in the same moment.
    let (_, due_ms) = fixture.act(&action(Action::Fire, "a", 3)).await;
    let second = due_ms.unwrap();
    assert!(second > first);
    // A cancel takes the newest alone.
    let cancelled = fixture.act(&action(Action::Cancel, "a", 4)).await;
    assert_eq!(cancelled, (Verdict::Cancelled, Some(START)));
    assert!(!fixture.has_job(&format!("a@{second}")).await);
    assert!(fixture.has_job(&format!("a@{first}")).await);
}

#[tokio::test]
async fn a_fire_steps_over_ids_that_other_jobs_have() {
    let fixture = Fixture::new().await;
    fixture.put(&new("a", 1)).await;
    // The next 40 milliseconds.
    let now_ms = fixture.store.now_ms();
    let taken: Vec<NewJob> = (0..40)
        .map(|ms| {
            NewJob::new(Job::for_queue("other", "x"), FAR).id(id(&format!("a@{}", now_ms + ms)))
        })
        .collect();
    fixture.store.jobs.schedule(&taken).await.unwrap();
    let (verdict, due_ms) = fixture.act(&action(Action::Fire, "a", 2)).await;
    assert_eq!(verdict, Verdict::Firing);
    let made = fixture.store.reader.find(&id(&format!("a@{}", due_ms.unwrap()))).await.unwrap();
    assert_eq!(made.unwrap().job().queue(), Some("jobs"));
    let others = fixture.store.reader.queue_counts(&["other".to_owned()]).await.unwrap();
    assert_eq!(others[0].scheduled, 40);
}

#[tokio::test]
async fn the_last_of_a_count_frees_the_id() {
    let fixture = Fixture::new().await;
    let mut once = new("a", 1);
    once.timing.count = Some(1);
    fixture.put(&once).await;
    assert_eq!(fixture.act(&action(Action::Fire, "a", 2)).await.0, Verdict::Firing);
    assert_eq!(fixture.counts().await, [0, 0, 0]);
    let job = NewJob::new(Job::for_queue("jobs", "x"), FAR).id(id("a"));
    assert_eq!(fixture.apply(&[RequestRef::NewJob(&job)]).await[0].verdict, Verdict::Added);
}

#[tokio::test]
async fn requests_of_one_batch_are_applied_in_their_order() {
    let fixture = Fixture::new().await;
    let job = NewJob::new(Job::for_queue("jobs", "x"), FAR).id(id("a"));
    let (put, fire) = (new("a", 1), action(Action::Fire, "a", 2));
    let (cancel, again) = (action(Action::Cancel, "a", 3), new("a", 4));
    let (last, other) = (action(Action::Cancel, "a", 5), new("b", 6));
    let answers = fixture
        .apply(&[
            RequestRef::NewSchedule(&put),
            RequestRef::Act(&fire),
            RequestRef::NewSchedule(&other),
            RequestRef::NewJob(&job),
            RequestRef::Act(&cancel),
            RequestRef::NewSchedule(&again),
            RequestRef::Act(&last),
            RequestRef::NewJob(&job),
        ])
        .await;
    let told: Vec<Verdict> = answers.iter().map(|answer| answer.verdict).collect();
    let expected = [
        Verdict::Added,
        Verdict::Firing,
        Verdict::Added,
        Verdict::Conflict,
        Verdict::Cancelled,
        Verdict::Added,
        Verdict::Cancelled,
        // The repeat of a call that was answered.
        Verdict::Conflict,
    ];
    assert_eq!(told, expected);
    assert_eq!(fixture.counts().await, [1, 1, 1]);
}

#[tokio::test]
async fn a_job_that_is_alive_and_a_schedule_never_share_an_id() {
    let fixture = Fixture::new().await;
    let job = |name: &str, conflict| {
        NewJob::new(Job::for_queue("jobs", "x"), FAR).id(id(name)).on_conflict(conflict)
    };
    fixture.put(&new("schedule", 1)).await;
    let of_broker = NewJob::new(Job::new("main", Destination::new("t"), "x"), FAR).id(id("job"));
    fixture.apply(&[RequestRef::NewJob(&of_broker)]).await;
    for (number, conflict) in (2..).zip([Conflict::Replace, Conflict::Keep, Conflict::Reject]) {
        let answer = fixture.apply(&[RequestRef::NewJob(&job("schedule", conflict))]).await[0];
        assert_eq!(answer.verdict, Verdict::Conflict, "{conflict:?}");
        let put = NewSchedule { conflict, ..new("job", number) };
        assert_eq!(fixture.put(&put).await, (Verdict::Conflict, Some(START)), "{conflict:?}");
    }
    assert_eq!(fixture.counts().await, [1, 1, 1]);
    // A dead job is over.
    fixture.apply(&[RequestRef::NewJob(&job("dead", Conflict::Replace))]).await;
    let keys = fixture.store.keys().clone();
    let _: i64 = fixture.raw(&["ZREM", &keys.due(0, "=jobs"), "dead"]).await;
    let _: i64 = fixture.raw(&["ZADD", &keys.dead_of(0, "=jobs"), "1", "dead"]).await;
    assert_eq!(fixture.put(&new("dead", 9)).await, (Verdict::Added, Some(START)));
    assert!(!fixture.has_job("dead").await);
}

#[tokio::test]
async fn a_job_in_no_place_gives_its_id_to_a_schedule() {
    let fixture = Fixture::new().await;
    let job = NewJob::new(Job::for_queue("jobs", "x"), FAR).id(id("a"));
    fixture.apply(&[RequestRef::NewJob(&job)]).await;
    // An interrupted call left the record alone.
    let keys = fixture.store.keys().clone();
    let _: i64 = fixture.raw(&["ZREM", &keys.due(0, "=jobs"), "a"]).await;
    assert_eq!(fixture.put(&new("a", 1)).await, (Verdict::Added, Some(START)));
    assert!(!fixture.has_job("a").await);
    assert!(fixture.fsck(false).await.is_empty());
}

#[tokio::test]
async fn the_longest_id_has_occurrences() {
    let fixture = Fixture::new().await;
    let name = "é".repeat(120);
    fixture.put(&new(&name, 1)).await;
    let (verdict, due_ms) = fixture.act(&action(Action::Fire, &name, 2)).await;
    assert_eq!(verdict, Verdict::Firing);
    assert!(fixture.has_job(&format!("{name}@{}", due_ms.unwrap())).await);
    let longer = new(&format!("{name}x"), 3);
    let applied = fixture.store.jobs.apply(&[RequestRef::NewSchedule(&longer)], &[]).await;
    assert!(applied.answers[0].as_ref().is_err_and(StoreError::is_refusal), "one byte more");
}

#[tokio::test]
async fn a_message_that_comes_again_changes_nothing() {
    let fixture = Fixture::new().await;
    let (first, mut second) = (new("a", 1), new("a", 2));
    second.timing.start_ms = Some(START + 5);
    fixture.put(&first).await;
    assert_eq!(fixture.put(&second).await, (Verdict::Replaced, Some(START + 5)));
    assert_eq!(fixture.put(&first).await, (Verdict::Added, Some(START)), "as before");
    assert_eq!(fixture.put(&second).await, (Verdict::Replaced, Some(START + 5)));
    let fire = action(Action::Fire, "a", 3);
    let fired = fixture.act(&fire).await;
    assert_eq!(fixture.act(&fire).await, fired);
    let queues = ["jobs".to_owned()];
    let jobs = fixture.store.reader.queue_counts(&queues).await.unwrap();
    assert_eq!(jobs[0].scheduled + jobs[0].ready, 1);
    let waiting = action(Action::Reschedule, "a", 4);
    let told = fixture.act(&waiting).await;
    let cancel = action(Action::Cancel, "a", 5);
    fixture.act(&cancel).await;
    // The id has a job and then a schedule of others by now.
    let job = NewJob::new(Job::for_queue("jobs", "x"), Due::At(START + 1)).id(id("a"));
    fixture.apply(&[RequestRef::NewJob(&job)]).await;
    assert_eq!(fixture.act(&waiting).await, told, "the job is not rescheduled");
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 6)).await.0, Verdict::Cancelled);
    fixture.put(&new("a", 7)).await;
    assert_eq!(fixture.act(&cancel).await, (Verdict::Cancelled, Some(START + 5)));
    assert_eq!(fixture.put(&first).await, (Verdict::Added, Some(START)));
    assert_eq!(fixture.counts().await, [1, 1, 1], "the new schedule stays");
}

#[tokio::test]
async fn nobody_changes_what_is_of_others() {
    let fixture = Fixture::new().await;
    fixture.put(&new("a", 1)).await;
    let own = |names: &[&str]| Some(OwnQueues::new(names.iter().copied()));
    let refused = async |asked: RequestRef<'_>| {
        let answer = fixture.store.jobs.apply(&[asked], &[]).await.answers.remove(0);
        answer.map_err(|error| (error.class, error.is_refusal()))
    };
    let mut put = new("a", 2);
    put.own_queues = own(&["mine.*"]);
    let taken = Err((Class::Taken, true));
    assert_eq!(refused(RequestRef::NewSchedule(&put)).await, taken);
    let job =
        NewJob { own_queues: own(&["mine.*"]), ..NewJob::new(put.job.clone(), FAR) }.id(id("a"));
    assert_eq!(refused(RequestRef::NewJob(&job)).await, taken);
    let mut cancel = action(Action::Cancel, "a", 3);
    cancel.own_queues = own(&["mine.*"]);
    assert_eq!(fixture.act(&cancel).await, (Verdict::NotFound, None));
    assert_eq!(fixture.counts().await, [1, 1, 1]);
    (cancel.own_queues, cancel.origin) = (own(&["job*"]), message(4));
    assert_eq!(fixture.act(&cancel).await, (Verdict::Cancelled, Some(START)));
}

#[tokio::test]
async fn a_wrong_schedule_is_refused_alone() {
    let fixture = Fixture::new().await;
    let mut over = new("over", 1);
    over.timing.end_ms = Some(START);
    fixture.put(&over).await;
    let mut never = new("never", 2);
    (never.timing.start_ms, never.timing.end_ms) = (Some(1), Some(5));
    let sound = new("sound", 3);
    let asked = [RequestRef::NewSchedule(&never), RequestRef::NewSchedule(&sound)];
    let mut answers = fixture.store.jobs.apply(&asked, &[]).await.answers;
    assert_eq!(answers.remove(1).unwrap().verdict, Verdict::Added);
    assert!(answers.remove(0).unwrap_err().is_refusal());
    // A damaged one too.
    let keys = fixture.store.keys().clone();
    let _: i64 = fixture.raw(&["HSET", keys.schedules(0), "sound", "?"]).await;
    let again = new("sound", 4);
    let asked = [RequestRef::NewSchedule(&again), RequestRef::NewSchedule(&over)];
    let mut answers = fixture.store.jobs.apply(&asked, &[]).await.answers;
    assert_eq!(answers.remove(1).unwrap().verdict, Verdict::Added, "of the message of before");
    assert!(answers.remove(0).unwrap_err().is_unreadable());
}

#[tokio::test]
async fn a_fire_waits_for_room_in_its_queue() {
    let fixture = Fixture::new().await;
    fixture.put(&new("a", 1)).await;
    fixture.store.schedules.know_full_queues(Arc::new(|queue| queue == "jobs"));
    let fire = action(Action::Fire, "a", 2);
    let answer = fixture.store.jobs.apply(&[RequestRef::Act(&fire)], &[]).await.answers.remove(0);
    assert_eq!(answer.map_err(|error| error.class), Err(Class::QueueFull));
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 3)).await.0, Verdict::Cancelled);
}

#[tokio::test]
async fn an_occurrence_that_is_out_goes_on_when_its_schedule_ends() {
    let fixture = Fixture::new().await;
    let job = Job { created_ms: 0, ..Job::new("main", Destination::new("t"), "x") };
    fixture.put(&NewSchedule { job, ..new("a", 1) }).await;
    let fired = fixture.act(&action(Action::Fire, "a", 2)).await.1.unwrap();
    // The clock of this process may be ahead of that of Redis.
    let lease = Duration::from_secs(60);
    let mut claimed = Vec::new();
    for _ in 0..10_000 {
        claimed = fixture.store.jobs.claim(0, "main", lease, 1, 1 << 20).await.unwrap().jobs;
        if !claimed.is_empty() {
            break;
        }
    }
    assert_eq!(claimed[0].token.id, id(&format!("a@{fired}")));
    let cancelled = fixture.act(&action(Action::Cancel, "a", 3)).await;
    assert_eq!(cancelled, (Verdict::InFlight, Some(START)));
    assert_eq!(fixture.counts().await, [0, 0, 0], "it is ended all the same");
    assert!(fixture.has_job(&format!("a@{fired}")).await);
}

#[tokio::test]
async fn fsck_repairs_the_times_and_leaves_what_it_cannot_read() {
    let fixture = Fixture::new().await;
    for (number, name) in (1..).zip(["early", "lost", "damaged", "sound"]) {
        fixture.put(&new(name, number)).await;
    }
    fixture.put(&NewSchedule { is_paused: true, ..new("paused", 9) }).await;
    assert!(fixture.fsck(false).await.is_empty());
    let keys = fixture.store.keys().clone();
    let (times, states) = (keys.schedule_times(0), keys.schedule_states(0));
    let _: i64 = fixture.raw(&["ZADD", times, "5", "early", "6", "nobody"]).await;
    let _: i64 = fixture.raw(&["ZREM", times, "lost"]).await;
    let _: i64 = fixture.raw(&["ZADD", times, "7", "paused"]).await;
    let _: i64 = fixture.raw(&["HSET", states, "damaged", "?", "gone", "?"]).await;
    let expected = |repaired: bool| {
        [
            (Problem::IndexWithoutRecord, "nobody".to_owned(), repaired),
            (Problem::StateWithoutRecord, "gone".to_owned(), repaired),
            (Problem::UnreadableRecord, "damaged".to_owned(), false),
            (Problem::ScheduleTime, "early".to_owned(), repaired),
            (Problem::ScheduleTime, "lost".to_owned(), repaired),
            (Problem::ScheduleTime, "paused".to_owned(), repaired),
        ]
    };
    for repair in [false, true] {
        let mut found = fixture.fsck(repair).await;
        found.sort_by(|one, other| (one.0.as_str(), &one.1).cmp(&(other.0.as_str(), &other.1)));
        let mut expected = expected(repair).to_vec();
        expected.sort_by(|one, other| (one.0.as_str(), &one.1).cmp(&(other.0.as_str(), &other.1)));
        assert_eq!(found, expected);
    }
    let left = [(Problem::UnreadableRecord, "damaged".to_owned(), false)];
    assert_eq!(fixture.fsck(true).await, left);
    let early: i64 = fixture.raw(&["ZSCORE", times, "early"]).await;
    assert_eq!((early, fixture.counts().await), (START, [5, 5, 4]));
}

#[tokio::test]
async fn what_is_left_of_a_schedule_takes_no_job_with_it() {
    let fixture = Fixture::new().await;
    let job = |name: &str| NewJob::new(Job::for_queue("jobs", "x"), FAR).id(id(name));
    for name in ["dead", "alive"] {
        fixture.apply(&[RequestRef::NewJob(&job(name))]).await;
    }
    let keys = fixture.store.keys().clone();
    let now_ms = fixture.store.now_ms().to_string();
    let _: i64 = fixture.raw(&["ZREM", &keys.due(0, "=jobs"), "dead"]).await;
    let _: i64 = fixture.raw(&["ZADD", &keys.dead_of(0, "=jobs"), &now_ms, "dead"]).await;
    let times = keys.schedule_times(0);
    let _: i64 = fixture.raw(&["ZADD", times, "5", "dead", "6", "alive"]).await;
    let mut found = fixture.fsck(true).await;
    found.retain(|(problem, ..)| *problem == Problem::IndexWithoutRecord);
    found.sort_by(|one, other| one.1.cmp(&other.1));
    let expected =
        ["alive", "dead"].map(|name| (Problem::IndexWithoutRecord, name.to_owned(), true));
    assert_eq!(found, expected);
    assert!(fixture.has_job("dead").await && fixture.has_job("alive").await);
    assert_eq!(fixture.counts().await, [0, 0, 0]);
}

#[tokio::test]
async fn a_key_of_a_wrong_type_fails_before_anything_is_written() {
    let fixture = Fixture::new().await;
    fixture.put(&new("a", 1)).await;
    let keys = fixture.store.keys().clone();
    let _: i64 = fixture.raw(&["UNLINK", keys.schedule_times(0)]).await;
    let _: i64 = fixture.raw(&["HSET", keys.schedule_times(0), "a", "b"]).await;
    let other = NewSchedule { job: Job::for_queue("jobs", "y"), ..new("a", 2) };
    let asked = [RequestRef::NewSchedule(&other)];
    let refused = fixture.store.jobs.apply(&asked, &[]).await.answers.remove(0).unwrap_err();
    assert!(refused.is_unreadable(), "{refused}");
    let found = fixture.fsck(true).await;
    assert_eq!(found[0], (Problem::WrongType, keys.schedule_times(0).to_owned(), true));
    assert_eq!(found[1], (Problem::ScheduleTime, "a".to_owned(), true));
    assert_eq!(fixture.put(&other).await, (Verdict::Replaced, Some(START)));
}
