//! The client on a private Redis: the examples, every verdict, and calls that are repeated.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "../examples/look_and_fire.rs"]
mod look_and_fire;
#[path = "../examples/schedule_and_cancel.rs"]
mod schedule_and_cancel;

use std::time::{Duration, SystemTime};

use dwell_engine::{
    Act, Action, Client, Conflict, Destination, Due, ErrorKind, Job, JobId, JobState, NewJob,
    Query, Redis, Verdict,
};
use dwell_testkit::servers::{RedisOptions, RedisServer};

/// A due time outside the life of a test.
const FAR: Due = Due::At(4_000_000_000_000);

struct Fixture {
    _server: RedisServer,
    config: Redis,
    client: Client,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let config = Redis::new(server.url());
        let client = Client::connect(&config, &["main"]).await.unwrap();
        Fixture { _server: server, config, client }
    }
}

fn job(body: &'static str) -> Job {
    Job::new("main", Destination::new("orders.close"), body)
}

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

#[tokio::test]
async fn the_examples_run() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    assert_eq!(schedule_and_cancel::run(&server.url()).await.unwrap(), Verdict::Cancelled);
    let page = look_and_fire::run(&server.url()).await.unwrap();
    let ids: Vec<&str> = page.jobs.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(ids, ["order-17", "order-18"], "what was fired is due first");
}

#[tokio::test]
async fn a_job_is_stored_as_it_was_given_and_answers_each_action() {
    let fixture = Fixture::new().await;
    let client = &fixture.client;
    let new_job = NewJob::new(job("17"), FAR).id(id("order"));
    let answer = client.schedule(&new_job).await.unwrap();
    assert_eq!((answer.verdict, answer.due_ms), (Verdict::Added, Some(4_000_000_000_000)));
    let found = client.get(&id("order")).await.unwrap().unwrap();
    assert_eq!(
        (found.job(), found.state, found.attempts(), found.last_error()),
        (&new_job.job, JobState::Scheduled, 0, "")
    );
    assert_eq!(
        client.reschedule(&id("order"), Due::At(4_000_000_000_001)).await.unwrap(),
        Verdict::Rescheduled
    );
    let due = client.get(&id("order")).await.unwrap().unwrap().due();
    assert_eq!(due, SystemTime::UNIX_EPOCH + Duration::from_millis(4_000_000_000_001));
    assert_eq!(client.requeue(&id("order")).await.unwrap(), Verdict::Waiting);
    assert_eq!(
        client.finish(&id("order"), None).await.unwrap(),
        Verdict::NotFound,
        "it was never attempted"
    );
    assert_eq!(client.fail(&id("order"), None).await.unwrap(), Verdict::NotFound);
    assert_eq!(client.stats().await.unwrap().brokers, [("main".to_owned(), 1)]);
    assert_eq!(client.cancel(&id("order")).await.unwrap(), Verdict::Cancelled);
    assert!(client.get(&id("order")).await.unwrap().is_none());
    for verdict in [
        client.cancel(&id("nobody")).await,
        client.fire(&id("nobody")).await,
        client.requeue(&id("nobody")).await,
    ] {
        assert_eq!(verdict.unwrap(), Verdict::NotFound);
    }
}

#[tokio::test]
async fn times_and_spans_of_any_size_are_stored() {
    let fixture = Fixture::new().await;
    let client = &fixture.client;
    let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    let new_job = NewJob::new(job("old"), before_1970);
    let answer = client.schedule(&new_job).await.unwrap();
    assert_eq!(answer.due(), Some(SystemTime::UNIX_EPOCH), "due now");
    let longest = client.schedule(&NewJob::new(job("never"), Duration::MAX)).await.unwrap();
    let latest = SystemTime::UNIX_EPOCH + Duration::from_millis(4_000_000_000_000_000);
    assert!(longest.due().is_some_and(|due| due > latest), "{longest:?}");
    let later = SystemTime::UNIX_EPOCH + Duration::from_millis(4_000_000_000_000);
    assert_eq!(client.reschedule(&new_job.id, later).await.unwrap(), Verdict::Rescheduled);
    assert_eq!(client.get(&new_job.id).await.unwrap().unwrap().due(), later);
    let page = client.list(&Query::new(JobState::Scheduled).with_to(latest)).await.unwrap();
    assert_eq!(page.jobs.len(), 1);
}

#[tokio::test]
async fn a_repeated_call_changes_nothing_and_another_follows_the_rule_for_conflicts() {
    let fixture = Fixture::new().await;
    let client = &fixture.client;
    let first = NewJob::new(job("first"), FAR).id(id("order"));
    for _ in 0..2 {
        assert_eq!(
            client.schedule(&first).await.unwrap().verdict,
            Verdict::Added,
            "the answer of the first call"
        );
    }
    let kept = NewJob::new(job("second"), FAR).id(id("order")).on_conflict(Conflict::Keep);
    assert_eq!(client.schedule(&kept).await.unwrap().verdict, Verdict::Kept);
    let refused = NewJob::new(job("second"), FAR).id(id("order")).on_conflict(Conflict::Reject);
    assert_eq!(client.schedule(&refused).await.unwrap().verdict, Verdict::Conflict);
    let replaced = NewJob::new(job("second"), FAR).id(id("order"));
    assert_eq!(client.schedule(&replaced).await.unwrap().verdict, Verdict::Replaced);
    let cancel = Act::new(Action::Cancel, id("order"));
    for _ in 0..2 {
        assert_eq!(client.act(&cancel).await.unwrap(), Verdict::Cancelled);
    }
    assert_eq!(client.cancel(&id("order")).await.unwrap(), Verdict::NotFound, "another call");
}

#[tokio::test]
async fn pages_lead_from_one_to_the_next() {
    let fixture = Fixture::new().await;
    let client = &fixture.client;
    for number in 0..5 {
        client
            .schedule(&NewJob::new(job("x"), FAR).id(id(&format!("order-{number}"))))
            .await
            .unwrap();
    }
    let mut query = Query { limit: 2, ..Query::new(JobState::Scheduled) };
    let mut found = Vec::new();
    loop {
        let page = client.list(&query).await.unwrap();
        found.extend(page.jobs.into_iter().map(|job| job.id.to_string()));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(found, ["order-0", "order-1", "order-2", "order-3", "order-4"]);
}

#[tokio::test]
async fn what_no_instance_could_serve_is_refused_before_redis_is_asked() {
    let nowhere = Redis::new("redis://127.0.0.1:1");
    let cases = [
        (nowhere.clone(), "Main", "broker `Main`: this name cannot be used"),
        (
            Redis { namespace: "a{b}".to_owned(), ..nowhere.clone() },
            "main",
            "namespace: the namespace holds a brace",
        ),
        (Redis { buckets: 0, ..nowhere.clone() }, "main", "buckets: 0: not a number of buckets"),
        (Redis { urls: Vec::new(), ..nowhere.clone() }, "main", "urls: there is no URL"),
    ];
    for (config, broker, said) in cases {
        let error = Client::connect(&config, &[broker]).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.message.starts_with(said) && !error.hint.is_empty(), "{error}");
    }
    let fixture = Fixture::new().await;
    let new_job = NewJob::new(job("17"), FAR).id(id("order"));
    fixture.client.schedule(&new_job).await.unwrap();
    for action in [Action::Reschedule, Action::Add] {
        let error = fixture.client.act(&Act::new(action, id("order"))).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Rejected && !error.hint.is_empty(), "{error}");
    }
    assert_eq!(
        fixture.client.get(&id("order")).await.unwrap().unwrap().due_ms(),
        4_000_000_000_000,
        "nothing changed"
    );
}

#[tokio::test]
async fn tls_needs_no_preparation_by_the_program() {
    // The server hangs up: the client must answer an error, and not panic.
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}", server.local_addr().unwrap());
    tokio::spawn(async move { while server.accept().await.is_ok() {} });
    let error = Client::connect(&Redis::new(url), &["main"]).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_job_that_nobody_would_deliver_is_refused_until_somebody_does() {
    let Fixture { client, config, _server } = Fixture::new().await;
    let new_job = NewJob::new(Job::new("other", Destination::new("x"), ""), FAR);
    let error = client.schedule(&new_job).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.message.contains("`other`; known: main") && !error.hint.is_empty(), "{error}");
    Client::connect(&config, &["other"]).await.unwrap();
    assert_eq!(client.schedule(&new_job).await.unwrap().verdict, Verdict::Added);
    let away =
        Client::connect(&Redis::new("redis://:secret@127.0.0.1:1"), &[]).await.err().unwrap();
    assert!(away.kind() == ErrorKind::Unavailable && !away.message.contains("secret"), "{away}");
}

#[tokio::test]
async fn a_rotated_password_is_read_again_from_its_file() {
    let mut server = RedisServer::start(RedisOptions {
        password: Some("first".to_owned()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, server.url()).unwrap();
    let config = Redis { urls_file: Some(file.path().to_owned()), ..Redis::new(server.url()) };
    let client = Client::connect(&config, &["main"]).await.unwrap();
    server.rotate("second").await.unwrap();
    // The cut of the old connections may be seen first.
    let refused = loop {
        match client.stats().await.unwrap_err() {
            error if error.kind() == ErrorKind::Unavailable => {}
            error => break error,
        }
    };
    assert_eq!(
        (refused.kind(), refused.hint.contains("redis.urls_file")),
        (ErrorKind::Permission, true),
        "{refused}: {}",
        refused.hint
    );
    std::fs::write(&file, server.url()).unwrap();
    assert_eq!(client.schedule(&NewJob::new(job("x"), FAR)).await.unwrap().verdict, Verdict::Added);
}
