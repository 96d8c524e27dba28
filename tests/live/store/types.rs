//! A key with a wrong type: calls fail while it exists, and change nothing.

use dwell::job::{Job, Verdict};
use dwell::request::NewJob;
use dwell::store::error::StoreError;
use dwell::store::jobs::acknowledge::{Acknowledgement, LeaseAction, LeaseVerdict};
use dwell::store::jobs::pop::{PopAnswer, PopLimits};
use dwell::store::jobs::settle::Completion;

use super::fixture::{FAR, Fixture, LEASE, MAIN, PAST, held, id, request};

/// Every key that may be missing in a bucket with jobs: a key that exists is of its own type.
const MISSING: [&str; 11] = [
    "claim_deadlines",
    "claims",
    "settled",
    "held",
    "state",
    "completed",
    "completed_old",
    "applied",
    "applied_old",
    "dead",
    "queues",
];

#[tokio::test]
async fn a_claim_takes_nothing_while_a_key_is_of_another_type() {
    for name in MISSING {
        let fixture = Fixture::new().await;
        fixture.put(request("job", 1, PAST)).await;
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(fixture.store.jobs.claim(0, MAIN, LEASE, 128, 1 << 20).await.is_err(), "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "due:main", "{name}");
        let lease = fixture.claim_one().await;
        assert_eq!((lease.id, lease.state.attempt), (id("job"), 1), "{name}");
    }
}

#[tokio::test]
async fn a_request_is_stored_whole_or_not_at_all_while_a_key_is_of_another_type() {
    for name in ["due:main", "completed", "completed_old", "applied", "applied_old", "schedules"] {
        let fixture = Fixture::new().await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(fixture.store.jobs.schedule(&[request("job", 1, FAR)]).await.is_err(), "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        // The broker delivers it again.
        fixture.put(request("job", 1, FAR)).await;
        assert_eq!(fixture.place("job").await, "due:main", "{name}");
    }
}

#[tokio::test]
async fn a_request_for_a_queue_is_stored_whole_or_not_at_all_while_a_key_is_of_another_type() {
    for name in ["due:=q", "queues"] {
        let fixture = Fixture::new().await;
        // The first job of a bucket writes more than the next ones.
        fixture.put(request("other", 1, FAR)).await;
        let request = || NewJob::new(Job::for_queue("q", ""), FAR).id(id("job"));
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(fixture.store.jobs.schedule(&[request()]).await.is_err(), "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "none", "{name}");
        fixture.put(request()).await;
        assert_eq!(fixture.place("job").await, "due:=q", "{name}");
    }
}

#[tokio::test]
async fn a_job_is_replaced_whole_or_not_at_all_while_a_key_is_of_another_type() {
    for name in MISSING {
        let fixture = Fixture::new().await;
        fixture.put(request("job", 1, FAR)).await;
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(fixture.store.jobs.schedule(&[request("job", 2, FAR)]).await.is_err(), "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "due:main", "{name}");
        assert_eq!(fixture.put(request("job", 2, FAR)).await, Verdict::Replaced, "{name}");
    }
}

#[tokio::test]
async fn a_new_job_needs_only_the_keys_that_its_call_writes_or_asks() {
    for name in ["claim_deadlines", "claims", "settled", "held", "dead", "queues"] {
        let fixture = Fixture::new().await;
        fixture.put(request("other", 1, FAR)).await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert_eq!(fixture.put(request("job", 2, FAR)).await, Verdict::Added, "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "due:main", "{name}");
    }
}

#[tokio::test]
async fn a_settle_ends_a_job_whole_or_not_at_all_while_a_key_is_of_another_type() {
    for name in ["held", "completed", "completed_old", "applied", "applied_old", "dead"] {
        let fixture = Fixture::new().await;
        fixture.put(request("job", 1, PAST)).await;
        let lease = fixture.claim_one().await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(
            fixture.store.jobs.complete(0, &[held(&lease)], Completion::Fired).await.is_err(),
            "{name}"
        );
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "lease", "{name}");
        assert!(fixture.complete(&lease).await, "{name}");
        assert_eq!(fixture.place("job").await, "none", "{name}");
    }
}

/// A job of the queue `q`, due.
async fn put_into_queue(fixture: &Fixture, name: &str) {
    let job = Job { ttr_ms: 600_000, ..Job::for_queue("q", "") };
    fixture.put(NewJob::new(job, PAST).id(id(name))).await;
}

async fn pop(fixture: &Fixture) -> Result<PopAnswer, StoreError> {
    let limits =
        PopLimits { ttr_ms: None, max_ttr_ms: 600_000, most: 1, most_bytes: 1 << 20, room: None };
    fixture.store.jobs.pop(rand::random(), 0, "q", limits).await
}

#[tokio::test]
async fn a_pop_takes_nothing_while_a_key_that_it_or_a_finish_writes_is_of_another_type() {
    for name in ["held", "state", "completed", "applied", "queues", "pops", "pops_old"] {
        let fixture = Fixture::new().await;
        put_into_queue(&fixture, "job").await;
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(pop(&fixture).await.is_err(), "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "due:=q", "{name}");
        let job = pop(&fixture).await.unwrap().jobs.remove(0);
        assert_eq!((job.id, job.state.attempt), (id("job"), 1), "{name}");
    }
}

#[tokio::test]
async fn an_acknowledgement_changes_nothing_while_a_key_that_it_writes_is_of_another_type() {
    let fail = |wait_ms| LeaseAction::Fail { wait_ms, error: String::new() };
    for (name, action, verdict) in [
        ("completed", LeaseAction::Finish, LeaseVerdict::Finished),
        ("queues", LeaseAction::Finish, LeaseVerdict::Finished),
        ("applied", fail(Some(1000)), LeaseVerdict::Failed),
        ("queues", fail(Some(1000)), LeaseVerdict::Failed),
        ("due:=q", fail(Some(1000)), LeaseVerdict::Failed),
        ("dead:=q", fail(None), LeaseVerdict::Dead),
    ] {
        let fixture = Fixture::new().await;
        put_into_queue(&fixture, "job").await;
        let job = pop(&fixture).await.unwrap().jobs.remove(0);
        let acknowledgements = [Acknowledgement { id: job.id, lease: job.lease, action }];
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        let refused = fixture.store.jobs.acknowledge(&acknowledgements).await.remove(0);
        assert!(refused.is_err(), "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "held", "{name}");
        let answer = fixture.store.jobs.acknowledge(&acknowledgements).await.remove(0);
        assert_eq!(answer.unwrap().verdict, verdict, "{name}");
    }
}

#[tokio::test]
async fn each_of_a_mixed_call_needs_only_the_keys_that_it_writes() {
    let fail = LeaseAction::Fail { wait_ms: Some(1000), error: String::new() };
    for (name, is_refused) in
        [("completed", [true, false]), ("due:=q", [false, true]), ("queues", [true, true])]
    {
        let fixture = Fixture::new().await;
        let mut acknowledgements = Vec::new();
        for (name, action) in [("a", LeaseAction::Finish), ("b", fail.clone())] {
            put_into_queue(&fixture, name).await;
            let job = pop(&fixture).await.unwrap().jobs.remove(0);
            acknowledgements.push(Acknowledgement { id: job.id, lease: job.lease, action });
        }
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        let answers = fixture.store.jobs.acknowledge(&acknowledgements).await;
        let refused: Vec<bool> = answers.iter().map(Result::is_err).collect();
        assert_eq!(refused, is_refused, "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        for (acknowledgement, is_refused) in acknowledgements.into_iter().zip(is_refused) {
            if is_refused {
                assert_eq!(fixture.place(acknowledgement.id.as_str()).await, "held", "{name}");
                let answer = fixture.store.jobs.acknowledge(&[acknowledgement]).await.remove(0);
                let verdict = answer.unwrap().verdict;
                assert!(matches!(verdict, LeaseVerdict::Finished | LeaseVerdict::Failed), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_pop_removes_nothing_while_the_key_of_its_first_write_is_of_another_type() {
    let fixture = Fixture::new().await;
    put_into_queue(&fixture, "job").await;
    let job = pop(&fixture).await.unwrap().jobs.remove(0);
    let action = LeaseAction::Release { wait_ms: 0 };
    let release = Acknowledgement { id: job.id, lease: job.lease, action };
    fixture.store.jobs.acknowledge(&[release]).await.remove(0).unwrap();
    fixture.redis(&["DEL", &fixture.key("jobs")]).await;
    fixture.redis(&["DEL", &fixture.key("applied")]).await;
    fixture.redis(&["SET", &fixture.key("applied"), "foreign"]).await;
    assert!(pop(&fixture).await.is_err());
    let has_state = async || fixture.redis(&["HEXISTS", &fixture.key("state"), "job"]).await;
    assert_eq!(has_state().await, redis::Value::Int(1));
    fixture.redis(&["DEL", &fixture.key("applied")]).await;
    assert!(pop(&fixture).await.unwrap().jobs.is_empty());
    assert_eq!(has_state().await, redis::Value::Int(0));
}
