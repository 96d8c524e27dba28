//! Tests of changes on a real Redis: what a task does that makes occurrences.

use std::sync::Arc;

use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::change::{Change, Changed, Taken};
use super::occurrence::{Occurrence, generation_at, id_at, occurrence};
use super::plan::tests::new;
use super::*;
use crate::config::Redis;
use crate::job::{Action, Due, Job, Verdict};
use crate::request::{NewJob, Origin};
use crate::schedule::Progress;
use crate::store::jobs::batch::RequestRef;
use crate::store::wake_up::WakeUp;
use crate::store::{Store, Unobserved};

const FAR: i64 = 4_000_000_000_000;

struct Fixture {
    _server: RedisServer,
    store: Store,
    id: JobId,
}

impl Fixture {
    /// A namespace with the schedule `a`, whose jobs are for the queue `jobs`.
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let settings = Redis { buckets: 1, ..Redis::new(server.url()) };
        let store = Store::open(&settings, &[], Arc::new(Unobserved)).await.unwrap();
        let asked = new("a", "@every 1h");
        let answer = store.jobs.apply(&[RequestRef::NewSchedule(&asked)], &[]).await;
        assert_eq!(answer.answers[0].as_ref().unwrap().verdict, Verdict::Added);
        Fixture { _server: server, store, id: asked.id }
    }

    async fn read(&self) -> Read {
        self.store
            .schedules
            .read(0, std::slice::from_ref(&self.id))
            .await
            .unwrap()
            .remove(0)
            .unwrap()
    }

    async fn change(&self, change: Change) -> Changed {
        self.store.schedules.change(0, &[change]).await.unwrap().remove(0)
    }

    async fn has_job(&self, id: &JobId) -> bool {
        self.store.reader.find(id).await.unwrap().is_some()
    }

    async fn schedule_job(&self, id: &JobId, queue: &str) {
        let job = NewJob::new(Job::for_queue(queue, "x"), Due::At(FAR)).id(id.clone());
        self.store.jobs.schedule(&[job]).await.unwrap();
    }
}

/// The change that makes the occurrence of this time.
fn makes(read: &Read, nominal_ms: i64) -> Change {
    let was = &read.schedule.progress;
    let made = occurrence(&read.schedule, nominal_ms, was.occurrence + 1, Some(FAR));
    Change {
        id: read.schedule.id.clone(),
        expected: Some(read.state.clone()),
        record: None,
        progress: Some(Progress {
            occurrence: was.occurrence + 1,
            last_ms: Some(nominal_ms),
            next_ms: Some(FAR),
            revision: was.revision + 1,
            ..was.clone()
        }),
        make: vec![made],
        unless_alive: None,
        take: None,
    }
}

#[tokio::test]
async fn a_change_is_applied_once_to_the_state_that_was_read() {
    let fixture = Fixture::new().await;
    let read = fixture.read().await;
    let change = makes(&read, FAR - 5);
    let wake_up = Some(WakeUp { bucket: 0, broker: "=jobs".to_owned(), due_ms: FAR - 5 });
    assert_eq!(fixture.change(change.clone()).await, Changed::Done { taken: None, wake_up });
    assert_eq!(fixture.change(change.clone()).await, Changed::Stale);
    assert!(fixture.has_job(&change.make[0].id).await);
    let now = fixture.read().await;
    assert_eq!(Some(now.schedule.progress), change.progress);
    assert_eq!((now.schedule.timing, now.digest), (read.schedule.timing, read.digest));
}

#[tokio::test]
async fn another_job_with_the_id_of_an_occurrence_stays() {
    let fixture = Fixture::new().await;
    let read = fixture.read().await;
    let taken = id_at(&fixture.id, 5);
    // In a queue that the call does not know.
    fixture.schedule_job(&taken, "other").await;
    assert_eq!(fixture.change(makes(&read, 5)).await, Changed::Exists(taken.clone()));
    assert_eq!(fixture.read().await.state, read.state, "nothing changed");
    assert_eq!(
        fixture.store.reader.find(&taken).await.unwrap().unwrap().job().queue(),
        Some("other")
    );
}

#[tokio::test]
async fn an_occurrence_that_is_alive_holds_the_next_one_back() {
    let fixture = Fixture::new().await;
    fixture.change(makes(&fixture.read().await, FAR)).await;
    let first = id_at(&fixture.id, FAR);
    let read = fixture.read().await;
    let next = || Change { unless_alive: Some(first.clone()), ..makes(&read, FAR + 1) };
    assert_eq!(fixture.change(next()).await, Changed::Alive);
    let cancel = crate::request::Act::new(Action::Cancel, first.clone());
    fixture.store.jobs.act(&cancel, &[]).await.unwrap();
    assert!(matches!(fixture.change(next()).await, Changed::Done { .. }));
    // One that an interrupted call left in no place is not alive.
    let (lost, read) = (id_at(&fixture.id, FAR + 1), fixture.read().await);
    let next = || Change { unless_alive: Some(lost.clone()), ..makes(&read, FAR + 2) };
    assert_eq!(fixture.change(next()).await, Changed::Alive);
    let namespace = &fixture.store.schedules.namespace;
    let mut leave = redis::cmd("ZREM");
    leave.arg(namespace.keys.due(0, "=jobs")).arg(lost.as_str());
    assert_eq!(namespace.link.command("a test", &leave).await.unwrap(), Value::Int(1));
    assert!(matches!(fixture.change(next()).await, Changed::Done { .. }));
}

#[tokio::test]
async fn a_fire_never_takes_the_id_of_an_earlier_one() {
    let fixture = Fixture::new().await;
    let at_ms = FAR + 123;
    let fire = async |number: u8| {
        let plan = plan::act(Action::Fire, &fixture.read().await, at_ms, &[]);
        assert_eq!(plan.due_ms, Some(at_ms));
        let namespace = &fixture.store.schedules.namespace;
        let mut call = namespace.script_call(Name::ChangeSchedule, 0, &["=jobs".to_owned()]);
        call.arg("").arg("1");
        let origin = Origin { fingerprint: [number; 8], maybe_redelivered: true, is_message: true };
        plan.arguments(&mut call, &fixture.id, &origin, None);
        namespace.durable_call(call).await
    };
    fire(1).await.unwrap();
    // An occurrence of an earlier time is the newest, and the clock went back.
    let read = fixture.read().await;
    let mut progress = read.schedule.progress.clone();
    (progress.last_ms, progress.revision) = (Some(FAR), progress.revision + 1);
    let moved = fixture.change(read.moved(Some(progress))).await;
    assert!(matches!(moved, Changed::Done { .. }), "{moved:?}");
    assert!(fire(2).await.unwrap_err().is_occurrence_taken());
    // The same request is no other fire.
    fire(1).await.unwrap();
    assert_eq!(fixture.read().await.schedule.progress.occurrence, 1);
}

#[tokio::test]
async fn only_an_occurrence_of_the_schedule_is_taken_out() {
    let removal = |read: &Read, ms: i64| {
        let generation = generation_at(read.schedule.progress.generation, ms);
        let take = Some((id_at(&read.schedule.id, ms), generation));
        Change { progress: None, make: Vec::new(), take, ..makes(read, ms) }
    };
    let left = |taken| Changed::Done { taken: Some(taken), wake_up: None };
    // None was made.
    let fixture = Fixture::new().await;
    let removed = fixture.change(removal(&fixture.read().await, FAR)).await;
    assert_eq!(removed, left(Taken::Left));
    let read = fixture.store.schedules.read(0, std::slice::from_ref(&fixture.id)).await.unwrap();
    assert!(read[0].is_none());
    // One that waits.
    let fixture = Fixture::new().await;
    fixture.change(makes(&fixture.read().await, FAR)).await;
    let removed = fixture.change(removal(&fixture.read().await, FAR)).await;
    assert_eq!(removed, left(Taken::Cancelled));
    let id = id_at(&fixture.id, FAR);
    assert!(!fixture.has_job(&id).await);
    // A job of others.
    let fixture = Fixture::new().await;
    fixture.schedule_job(&id, "other").await;
    let removed = fixture.change(removal(&fixture.read().await, FAR)).await;
    assert_eq!(removed, left(Taken::Left));
    assert!(fixture.has_job(&id).await);
}

#[tokio::test]
async fn each_change_of_a_call_has_its_own_answer() {
    let fixture = Fixture::new().await;
    let mut other = new("b", "@every 1h");
    other.is_paused = true;
    other.origin = Origin::of_call();
    fixture.store.jobs.apply(&[RequestRef::NewSchedule(&other)], &[]).await;
    let ids = [fixture.id.clone(), other.id, "c".parse().unwrap()];
    let read = fixture.store.schedules.read(0, &ids).await.unwrap();
    let [Some(first), Some(second), None] = &read[..] else { panic!("{read:?}") };
    let stale = Change { expected: None, ..makes(first, 1) };
    let many: Vec<Occurrence> =
        (0..100).map(|n| occurrence(&second.schedule, FAR + n, 1, None)).collect();
    let big = Change { make: many, ..makes(second, FAR) };
    let changed = fixture.store.schedules.change(0, &[stale, big]).await.unwrap();
    assert_eq!(changed[0], Changed::Stale);
    assert!(
        matches!(&changed[1], Changed::Done { wake_up: Some(first), .. } if first.due_ms == FAR)
    );
    let counts = fixture.store.reader.queue_counts(&["jobs".to_owned()]).await.unwrap();
    assert_eq!(counts[0].scheduled, 100);
}

#[test]
fn a_call_is_bounded_by_occurrences_and_by_bytes() {
    let of = |sizes: &[usize]| {
        let make = sizes.iter().map(|size| Occurrence {
            id: JobId::new("a@0000000000001").unwrap(),
            nominal_ms: 1,
            due_ms: 1,
            number: 1,
            set: "main".to_owned(),
            record: vec![0; *size],
        });
        Change {
            id: JobId::new("a").unwrap(),
            expected: None,
            record: None,
            progress: None,
            make: make.collect(),
            unless_alive: None,
            take: None,
        }
    };
    assert_eq!(members_of_call(&[of(&[1; 100]), of(&[1; 28]), of(&[])]), 2);
    assert_eq!(members_of_call(&[of(&[2 * CALL_BYTES]), of(&[])]), 1);
    assert_eq!(members_of_call(&[of(&[CALL_BYTES]), of(&[]), of(&[1])]), 2);
}
