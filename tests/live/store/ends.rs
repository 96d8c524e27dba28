//! Jobs of queues with an end of their own, and the index of the ends.

use dwell::job::{Due, Job};
use dwell::policy::late::LateRules;
use dwell::request::NewJob;
use dwell::store::jobs::acknowledge::{Acknowledgement, LeaseAction, LeaseVerdict};
use dwell::store::jobs::ends::{EndsSnapshot, Over};
use dwell::store::jobs::pop::{PopLimits, Popped};
use dwell::store::reader::list::Query;
use dwell::store::reader::lookup::JobState;

use super::fixture::{FAR, Fixture, PAST, id};

/// A job of the queue `q` that ends then, epoch ms.
async fn put(fixture: &Fixture, name: &str, due: Due, remove_at_ms: Option<i64>) {
    if let Some(remove_at_ms) = remove_at_ms {
        fixture.store.jobs.note_end(&id(name), remove_at_ms).await.unwrap();
    }
    let job = Job { remove_at_ms, ..Job::for_queue("q", "body") };
    fixture.store.jobs.schedule(&[NewJob::new(job, due).id(id(name))]).await.unwrap();
}

async fn look(fixture: &Fixture) -> EndsSnapshot {
    fixture.store.jobs.look_at_ends(&[0]).await.unwrap()[0]
}

async fn entries(fixture: &Fixture) -> Vec<String> {
    let entries = fixture.redis(&["ZRANGE", &fixture.key("ends"), "0", "-1"]).await;
    redis::from_redis_value(entries).unwrap()
}

#[tokio::test]
async fn a_job_ends_by_its_record_whatever_the_index_says() {
    let fixture = Fixture::with(1, &["main"]).await;
    let now_ms = fixture.store.read_clock().await.unwrap() / 1000;
    put(&fixture, "scheduled", FAR, Some(now_ms)).await;
    put(&fixture, "ready", PAST, Some(now_ms)).await;
    // The index says that these are over too.
    put(&fixture, "later", PAST, Some(now_ms + 600_000)).await;
    put(&fixture, "never", PAST, None).await;
    for name in ["later", "never", "unknown"] {
        fixture.store.jobs.note_end(&id(name), now_ms).await.unwrap();
    }
    // A later note postpones nothing.
    fixture.store.jobs.note_end(&id("ready"), now_ms + 600_000).await.unwrap();
    assert!(look(&fixture).await.has_ended);
    fixture.store.jobs.end_jobs(0, LateRules::default(), &()).await.unwrap();
    for (name, stays) in [("scheduled", false), ("ready", false), ("later", true), ("never", true)]
    {
        assert_eq!(fixture.store.reader.find(&id(name)).await.unwrap().is_some(), stays, "{name}");
    }
    assert_eq!(entries(&fixture).await, ["later"]);
    assert!(!look(&fixture).await.has_ended);
}

#[tokio::test]
async fn what_left_before_its_end_is_forgotten_once_there_is_much_of_it() {
    let fixture = Fixture::with(1, &["main"]).await;
    let remove_at_ms = fixture.store.read_clock().await.unwrap() / 1000 + 600_000;
    put(&fixture, "alive", FAR, Some(remove_at_ms)).await;
    let add = async |range: std::ops::Range<u32>| {
        for at in range {
            fixture.store.jobs.note_end(&id(&format!("gone-{at}")), remove_at_ms).await.unwrap();
        }
    };
    add(0..1000).await;
    assert!(!look(&fixture).await.is_crowded, "few entries are no reason to scan");
    add(1000..1100).await;
    assert!(look(&fixture).await.is_crowded);
    fixture.store.jobs.forget_ends(0).await.unwrap();
    assert_eq!(entries(&fixture).await, ["alive"]);
}

/// The next job of an id is not ended for the one before.
#[tokio::test]
async fn only_the_record_that_was_read_ends() {
    let fixture = Fixture::with(1, &["main"]).await;
    let now_ms = fixture.store.read_clock().await.unwrap() / 1000;
    put(&fixture, "a", PAST, Some(now_ms)).await;
    let before = fixture.store.reader.find(&id("a")).await.unwrap().unwrap();
    put(&fixture, "a", FAR, Some(now_ms + 600_000)).await;
    let over = Over {
        id: id("a"),
        queue: "q".to_owned(),
        generation: before.record.generation,
        size: before.size,
    };
    fixture.store.jobs.end_these([over]).await.unwrap();
    fixture.store.jobs.end_jobs(0, LateRules::default(), &()).await.unwrap();
    assert!(fixture.store.reader.find(&id("a")).await.unwrap().is_some());
    assert_eq!(entries(&fixture).await, ["a"], "its own end leads to it");
}

/// A job that dies after the dead were read stays.
#[tokio::test]
async fn only_the_dead_that_were_read_end() {
    let fixture = Fixture::with(1, &["main"]).await;
    let dies = async |name: &str| {
        put(&fixture, name, PAST, None).await;
        let job = take(&fixture, 1, 600_000).await.remove(0);
        let died = fixture.store.jobs.acknowledge(&[fails(&job)]).await.remove(0);
        assert_eq!((job.id, died.unwrap().verdict), (id(name), LeaseVerdict::Dead));
    };
    for name in ["first", "second"] {
        dies(name).await;
    }
    let query = Query { queue: Some("q".to_owned()), ..Query::new(JobState::Dead) };
    let read = fixture.store.reader.list(&query).await.unwrap().jobs;
    assert_eq!(read.len(), 2);
    dies("third").await;
    let over = read.into_iter().map(|found| Over {
        id: found.id,
        queue: "q".to_owned(),
        generation: found.record.generation,
        size: found.size,
    });
    fixture.store.jobs.end_these(over).await.unwrap();
    let left = fixture.store.reader.list(&query).await.unwrap().jobs;
    assert_eq!(left.into_iter().map(|found| found.id).collect::<Vec<_>>(), [id("third")]);
}

async fn take(fixture: &Fixture, most: usize, ttr_ms: u64) -> Vec<Popped> {
    let limits = PopLimits {
        ttr_ms: Some(ttr_ms),
        max_ttr_ms: 600_000,
        most,
        most_bytes: 1 << 20,
        room: None,
    };
    fixture.store.jobs.pop(rand::random(), 0, "q", limits).await.unwrap().jobs
}

/// The acknowledgement after which this job is dead.
fn fails(job: &Popped) -> Acknowledgement {
    Acknowledgement {
        id: job.id.clone(),
        lease: job.lease.clone(),
        action: LeaseAction::Fail { wait_ms: None, error: String::new() },
    }
}

async fn count(fixture: &Fixture, command: &str, name: &str) -> i64 {
    redis::from_redis_value(fixture.redis(&[command, &fixture.key(name)]).await).unwrap()
}

#[tokio::test]
async fn a_thousand_ends_in_any_state_leave_one_entry_each() {
    let fixture = Fixture::with(1, &["main"]).await;
    let now_ms = fixture.store.read_clock().await.unwrap() / 1000;
    let jobs: Vec<NewJob> = (0..1100)
        .map(|n| {
            let due = if n % 2 == 0 { PAST } else { FAR };
            NewJob::new(Job { remove_at_ms: Some(now_ms), ..Job::for_queue("q", "body") }, due)
                .id(id(&format!("job-{n}")))
        })
        .collect();
    for job in &jobs {
        fixture.store.jobs.note_end(&job.id, now_ms).await.unwrap();
    }
    fixture.store.jobs.schedule(&jobs).await.unwrap();
    // Some are dead, some in the lease of a rescue, some held.
    let acknowledgements: Vec<Acknowledgement> =
        take(&fixture, 100, 600_000).await.iter().map(fails).collect();
    let died = fixture.store.jobs.acknowledge(&acknowledgements).await;
    assert!(died.iter().all(|answer| answer.as_ref().unwrap().verdict == LeaseVerdict::Dead));
    assert_eq!(take(&fixture, 100, 0).await.len(), 100);
    let rescued =
        fixture.store.jobs.rescue(0, super::fixture::LEASE, 128, 1 << 20).await.unwrap().jobs;
    assert_eq!((rescued.len(), take(&fixture, 100, 600_000).await.len()), (100, 100));

    fixture.store.jobs.end_jobs(0, LateRules::default(), &()).await.unwrap();
    for (command, name) in [
        ("HLEN", "jobs"),
        ("ZCARD", "due:=q"),
        ("ZCARD", "dead:=q"),
        ("ZCARD", "held"),
        ("ZCARD", "claim_deadlines"),
        ("HLEN", "claims"),
        ("HLEN", "settled"),
        ("ZCARD", "ends"),
    ] {
        assert_eq!(count(&fixture, command, name).await, 0, "{name}");
    }
    let held = fixture.redis(&["HGET", &fixture.key("queues"), "=q"]).await;
    let held: Option<String> = redis::from_redis_value(held).unwrap();
    assert!(held.as_deref().is_none_or(|held| held == "0"), "{held:?} are held");
    assert_eq!(count(&fixture, "HLEN", "applied").await, 1100 + 1, "one each, and the time");
    // A repeat of the call that scheduled a job does not bring it back.
    fixture.store.jobs.schedule(&jobs[..2]).await.unwrap();
    assert_eq!(count(&fixture, "HLEN", "jobs").await, 0);
}
