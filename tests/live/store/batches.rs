//! A batch of schedules and actions: one pass, in order, with an answer for each.

use dwell::job::{Action, Verdict};
use dwell::request::Request;
use dwell::store::error::Class;
use dwell::store::jobs::batch::RequestRef;
use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::fixture::{FAR, Fixture, MAIN, PAST, RETRY, action, open, request, target_on};

fn put(name: &str, message: u64) -> Request {
    Request::NewJob(Box::new(request(name, message, FAR)))
}

fn word(what: Action, name: &str, message: u64) -> Request {
    Request::Act(action(what, name, message))
}

async fn apply(fixture: &Fixture, requests: &[Request]) -> Vec<Result<Verdict, Class>> {
    let asked: Vec<RequestRef<'_>> = requests.iter().map(RequestRef::from).collect();
    let applied = fixture.store.jobs.apply(&asked, RETRY).await;
    applied
        .answers
        .into_iter()
        .map(|answer| answer.map(|answer| answer.verdict).map_err(|error| error.class))
        .collect()
}

#[tokio::test]
async fn requests_for_one_id_are_applied_in_their_order_and_again_change_nothing() {
    let fixture = Fixture::with(4, &[MAIN]).await;
    let mut batch = Vec::new();
    for n in 0..200 {
        let (name, message) = (format!("job-{n}"), n * 10);
        batch.extend([
            word(Action::Cancel, &name, message),
            put(&name, message + 1),
            word(Action::Fire, &name, message + 2),
        ]);
        batch.extend([word(Action::Cancel, &name, message + 3), put(&name, message + 4)]);
    }
    let wanted =
        [Verdict::NotFound, Verdict::Added, Verdict::Firing, Verdict::Cancelled, Verdict::Added]
            .map(Ok)
            .repeat(200);
    assert_eq!(apply(&fixture, &batch).await, wanted);
    let once = fixture.dump().await;
    assert_eq!(apply(&fixture, &batch).await, wanted);
    assert_eq!(fixture.dump().await, once);
    assert_eq!(fixture.store.reader.counts(&[]).await.unwrap().scheduled.iter().sum::<u64>(), 200);
}

#[tokio::test]
async fn what_fails_by_itself_fails_nothing_else() {
    let fixture = Fixture::new().await;
    fixture.put(request("newer", 1, FAR)).await;
    fixture.put(request("whole", 2, FAR)).await;
    fixture
        .redis(&["HSET", &fixture.key("jobs"), "newer", &format!("\u{9}{}", "x".repeat(60))])
        .await;
    let batch = [
        word(Action::Cancel, "whole", 3),
        word(Action::Cancel, "newer", 4),
        word(Action::Fail, "newer", 5),
        put("other", 6),
        word(Action::Fire, "other", 7),
        put("newer", 8),
    ];
    let unreadable = Err(Class::Script);
    let wanted = [
        Ok(Verdict::Cancelled),
        unreadable,
        unreadable,
        Ok(Verdict::Added),
        Ok(Verdict::Firing),
        unreadable,
    ];
    assert_eq!(apply(&fixture, &batch).await, wanted);
}

#[tokio::test]
async fn what_a_full_redis_refuses_holds_back_what_stands_behind_it_and_nothing_else() {
    let options = RedisOptions {
        maxmemory: Some("100mb".to_owned()),
        maxmemory_policy: Some("noeviction".to_owned()),
        ..RedisOptions::default()
    };
    let server = RedisServer::start(options).await.unwrap();
    let fixture = Fixture::on(&server.url(), 1, &[MAIN]).await;
    fixture.put(request("old", 1, FAR)).await;
    fixture.redis(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    // Nothing is known to this server yet.
    fixture.redis(&["SCRIPT", "FLUSH"]).await;
    let batch = [word(Action::Cancel, "old", 2), put("new", 3), word(Action::Cancel, "new", 4)];
    let refused = Err(Class::Oom);
    assert_eq!(apply(&fixture, &batch).await, [Ok(Verdict::Cancelled), refused, refused]);
    fixture.redis(&["CONFIG", "SET", "maxmemory", "100mb"]).await;
    assert_eq!(apply(&fixture, &batch[1..]).await, [Ok(Verdict::Added), Ok(Verdict::Cancelled)]);
}

#[tokio::test]
async fn a_fail_is_judged_by_what_stands_when_its_turn_comes() {
    let fixture = Fixture::new().await;
    for (message, name) in [(1, "once"), (2, "twice"), (3, "finished"), (4, "replaced")] {
        fixture.put(request(name, message, PAST)).await;
    }
    for lease in fixture.claim().await.jobs {
        assert!(fixture.hold(&lease, 1_000_000).await);
    }
    let fail = |name, message| word(Action::Fail, name, message);
    let batch = [
        fail("once", 10),
        fail("twice", 11),
        fail("twice", 12),
        word(Action::Finish, "finished", 13),
        fail("finished", 14),
    ];
    let wanted =
        [Verdict::Failed, Verdict::Failed, Verdict::Waiting, Verdict::Finished, Verdict::Fired]
            .map(Ok);
    assert_eq!(apply(&fixture, &batch).await, wanted);
    assert_eq!(
        apply(&fixture, &[put("replaced", 15), fail("replaced", 16)]).await,
        [Verdict::Replaced, Verdict::NotFound].map(Ok)
    );
    let found = fixture.store.reader.find(&super::fixture::id("twice")).await.unwrap().unwrap();
    assert_eq!(found.state_record.unwrap().step, 1);
}

#[tokio::test]
async fn a_broker_of_another_instance_is_learned_on_the_way() {
    let fixture = Fixture::new().await;
    let other = open(&fixture.settings, &[MAIN, "other"]).await;
    let mut elsewhere = request("elsewhere", 1, FAR);
    elsewhere.job.target = target_on("other");
    other.jobs.schedule(&[elsewhere]).await.unwrap();
    let batch = [
        put("here", 2),
        word(Action::Cancel, "elsewhere", 3),
        word(Action::Cancel, "here", 4),
        put("elsewhere", 5),
    ];
    let wanted = [Verdict::Added, Verdict::Cancelled, Verdict::Cancelled, Verdict::Added].map(Ok);
    assert_eq!(apply(&fixture, &batch).await, wanted);
}

#[tokio::test]
async fn a_fail_of_a_held_job_whose_record_was_damaged_is_not_asked_for_again() {
    let fixture = Fixture::new().await;
    fixture.put(request("held", 1, PAST)).await;
    fixture.put(request("whole", 2, FAR)).await;
    let lease = fixture.claim_one().await;
    assert!(fixture.hold(&lease, 1_000_000).await);
    // Its metadata begins behind the name of its broker.
    let redis::Value::BulkString(record) =
        fixture.redis(&["HGET", &fixture.key("jobs"), "held"]).await
    else {
        panic!()
    };
    let cut = &record[..31 + MAIN.len() + 4];
    let () = redis::cmd("HSET")
        .arg(fixture.key("jobs"))
        .arg("held")
        .arg(cut)
        .query_async(&mut fixture.raw.clone())
        .await
        .unwrap();
    let batch = [
        word(Action::Fail, "held", 3),
        word(Action::Cancel, "whole", 4),
        word(Action::Finish, "held", 5),
    ];
    assert_eq!(
        apply(&fixture, &batch).await,
        [Err(Class::Script), Ok(Verdict::Cancelled), Ok(Verdict::Finished)]
    );
}
