//! The answers of the ingest, and redeliveries of the broker, which change nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell::apply::{Apply, CallBatcher};
use dwell::fleet::Fleet;
use dwell::ingest::{Ingest, Parts};
use dwell::job::{Action, Due, Job, JobId, Verdict};
use dwell::publisher::Publisher;
use dwell::readiness::Readiness;
use dwell::request::{Act, NewJob, Request, RequestRules};
use dwell::store::error::Class;
use dwell::store::jobs::pop::PopLimits;
use dwell::store::reader::lookup::{JobState, StoredJob};
use dwell::store::scripts::Name;
use dwell::store::{CallObserver, Store};
use dwell::telemetry::Events;
use dwell::wake_ups::WakeUps;
use dwell_connectors::memory::Fault;
use dwell_connectors::{Destination, Message};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::environment::{Environment, action, asking, attempts, request, to, verdicts};
use crate::support::{metric, wait_until};

#[tokio::test]
async fn a_bad_request_is_rejected_as_it_came_with_its_code() {
    let env = Environment::start(&[]).await;
    env.send(request("x", "soon").with_header("shop", "7"));
    env.send(request("y", "0").with_header("delay-fro", "1s"));
    env.send(to("elsewhere", "z", "0"));
    env.send(Message::new("w").with_header("delay-for", "0"));
    let rejected = env.arrived("delay.rejected", 4).await;
    let codes: Vec<_> =
        rejected.iter().map(|message| message.headers.text("delayed-error").unwrap()).collect();
    assert_eq!(codes, ["bad_delay", "bad_header", "target_not_allowed", "missing_target"]);
    assert_eq!(rejected[0].body, "x");
    assert_eq!(
        (rejected[0].headers.text("shop"), rejected[0].headers.text("delay-for")),
        (Some("7"), Some("soon"))
    );
    assert!(!rejected[0].headers.text("delayed-error-detail").unwrap().is_empty());
    env.taken().await;
    assert_eq!(env.metric(r#"dwell_ingest_total{ingest="main",result="rejected"}"#), 4.0);
    assert_eq!(env.until_empty().await, 0);
}

#[tokio::test]
async fn what_declare_made_and_somebody_deleted_is_made_again() {
    let env = Environment::start(&[("ingest.main.declare", "true")]).await;
    env.send(request("x", "1h"));
    env.taken().await;
    env.broker.delete("delay.in");
    wait_until("it is there again", async || {
        format!("{:?}", env.broker).contains("delay.in").then_some(())
    })
    .await;
    env.send(request("y", "1h"));
    env.taken().await;
    env.until_state("y", JobState::Scheduled).await;
}

#[tokio::test]
async fn a_conflict_is_rejected_and_the_job_that_stood_stands() {
    let env = Environment::start(&[]).await;
    env.send(asking(request("x", "3s")));
    env.send(asking(to("orders.b", "x", "0").with_header("delay-on-conflict", "reject")));
    env.send(asking(to("orders.b", "x", "0").with_header("delay-on-conflict", "keep")));
    assert_eq!(verdicts(&env.arrived("replies", 3).await), ["added", "conflict", "kept"]);
    let rejected = env.arrived("delay.rejected", 1).await.remove(0);
    assert_eq!(
        (rejected.body.as_ref(), rejected.headers.text("delayed-error")),
        (&b"x"[..], Some("conflict"))
    );
    env.arrived("orders.a", 1).await;
    assert_eq!(env.until_empty().await, 0);
    assert!(env.broker.published("orders.b").is_empty());
}

#[tokio::test]
async fn verdicts_go_where_they_were_asked_for_and_one_that_cannot_does_not_stop_the_ingest() {
    let env = Environment::start(&[]).await;
    // Whenever it is tried.
    env.broker.fail_times("replies", 4, Fault::Refused);
    env.send(asking(request("unheard", "1h")));
    env.until_metric(r#"dwell_replies_total{ingest="main",outcome="refused"}"#, 1.0).await;
    // At first.
    env.broker.fail_times("replies", 3, Fault::Refused);
    env.send(asking(request("x", "1h")));
    env.arrived("replies", 1).await;
    env.send(asking(request("x", "2h")));
    env.send(asking(action("reschedule", "x").with_header("delay-for", "3h")));
    env.send(asking(action("fire", "x")));
    env.arrived("orders.a", 1).await;
    env.until_over("x").await;
    env.send(asking(action("cancel", "x")));
    env.send(asking(action("cancel", "unheard")));
    env.send(asking(action("cancel", "unheard")));
    let replies = env.arrived("replies", 7).await;
    assert_eq!(
        verdicts(&replies),
        ["added", "replaced", "rescheduled", "firing", "fired", "cancelled", "not_found"]
    );
    let first: serde_json::Value = serde_json::from_slice(&replies[0].body).unwrap();
    assert_eq!((first["id"].as_str(), first["action"].as_str()), (Some("x"), Some("schedule")));
    assert!(first["due_ms"].is_i64());
    env.taken().await;
    let replies = |outcome: &str| {
        env.metric(&format!(r#"dwell_replies_total{{ingest="main",outcome="{outcome}"}}"#))
    };
    assert_eq!((replies("refused"), replies("confirmed"), replies("unknown")), (1.0, 7.0, 0.0));
}

#[tokio::test]
async fn requests_for_one_id_are_applied_in_their_order_within_one_batch() {
    let mut env = Environment::idle(Default::default(), &[]).await;
    for n in 0..50 {
        let id = format!("job-{n}");
        env.send(asking(request(&id, "1h")));
        env.send(asking(action("cancel", &id)));
        env.send(asking(to("orders.b", &id, "200ms")));
    }
    env.run(super::environment::ALL).await;
    assert_eq!(
        verdicts(&env.arrived("replies", 150).await),
        ["added", "cancelled", "added"].repeat(50)
    );
    assert_eq!(attempts(&env.arrived("orders.b", 50).await), [1; 50]);
    assert_eq!(env.until_empty().await, 0);
    assert!(env.broker.published("orders.a").is_empty());
    assert_eq!(env.broker.published("orders.b").len(), 50);
}

#[tokio::test]
async fn the_redelivery_of_a_whole_batch_changes_nothing_and_answers_the_same() {
    let mut env =
        Environment::idle(Default::default(), &[("delivery.publish_timeout", "25s")]).await;
    env.send(asking(request("stays", "1s")));
    env.send(asking(request("again", "1h")));
    env.send(asking(action("cancel", "again")));
    env.send(asking(to("orders.b", "again", "1s")));
    env.send(asking(request("gone", "1h")));
    env.send(asking(action("cancel", "gone")));
    env.send(asking(
        Message::new("nameless")
            .with_header("delay-for", "1s")
            .with_header("delay-target", "orders.a"),
    ));
    env.send(asking(request("replaced", "1h")));
    env.send(asking(request("replaced", "1s")));
    env.send(request("bad", "soon"));
    // The last reply is not answered for: the batch is applied and cannot be acknowledged before
    // the link is cut.
    env.broker.fail_times("replies", 8, Fault::Delay(Duration::ZERO));
    env.broker.fail_times("replies", 1, Fault::Hold);
    env.run(super::environment::ALL).await;
    let first = verdicts(&env.arrived("replies", 9).await);
    env.broker.cut();
    let all = verdicts(&env.arrived("replies", 18).await);
    assert_eq!(all[..9], all[9..], "{first:?}");
    assert_eq!(
        first,
        [
            "added",
            "added",
            "cancelled",
            "added",
            "added",
            "cancelled",
            "added",
            "added",
            "replaced"
        ]
    );
    let mut came: Vec<_> =
        env.arrived("orders.a", 3).await.into_iter().map(|message| message.body).collect();
    came.sort_unstable();
    assert_eq!(came, ["nameless", "replaced", "stays"]);
    env.arrived("orders.b", 1).await;
    assert_eq!(env.until_empty().await, 0);
    assert_eq!(
        (env.broker.published("orders.a").len(), env.broker.published("orders.b").len()),
        (3, 1)
    );
}

#[tokio::test]
async fn verdicts_of_a_batch_are_published_together_and_all_confirmed_before_it_is_acknowledged() {
    let mut env =
        Environment::idle(Default::default(), &[("delivery.publish_timeout", "25s")]).await;
    for id in ["a", "b", "c", "d"] {
        env.send(asking(request(id, "1h")));
    }
    env.send(asking(action("cancel", "a")));
    env.broker.fail_times("replies", 5, Fault::Hold);
    env.run(super::environment::ALL).await;
    // One after the other, each would wait until the timeout of the one before.
    assert_eq!(
        verdicts(&env.arrived("replies", 5).await),
        ["added", "added", "added", "added", "cancelled"]
    );
    assert_eq!(env.broker.unacked("delay.in", "dwell"), 5);
    env.broker.release();
    env.taken().await;
}

#[tokio::test]
async fn a_destination_that_confirms_nothing_is_waited_for_once() {
    const UNKNOWN: &str = r#"dwell_replies_total{ingest="main",outcome="unknown"}"#;
    let env = Environment::start(&[("delivery.publish_timeout", "15s")]).await;
    env.broker.fail("replies", Fault::Hold);
    env.send(asking(request("a", "1h")));
    env.until_metric(UNKNOWN, 1.0).await;
    env.send(asking(request("b", "1h")));
    env.send(asking(request("c", "1h")));
    env.arrived("replies", 3).await;
    env.taken().await;
    assert_eq!(env.metric(UNKNOWN), 1.0, "it was acknowledged before its verdict had an outcome");
    // Once a word comes, verdicts are waited for again.
    env.broker.heal();
    env.broker.release();
    env.until_metric(r#"dwell_replies_total{ingest="main",outcome="confirmed"}"#, 2.0).await;
    env.broker.fail_times("replies", 1, Fault::Hold);
    env.send(asking(request("d", "1h")));
    env.arrived("replies", 4).await;
    assert_eq!(env.broker.unacked("delay.in", "dwell"), 1);
    env.broker.release();
    env.taken().await;
}

#[tokio::test]
async fn what_is_refused_behind_a_verdict_without_a_confirm_is_not_waited_for_either() {
    let mut env =
        Environment::idle(Default::default(), &[("delivery.publish_timeout", "15s")]).await;
    for id in ["a", "b", "c"] {
        env.send(asking(request(id, "1h")));
    }
    // As on RabbitMQ: one goes ahead, the others are refused while it has no confirm, and then one
    // of them goes ahead.
    env.broker.fail_times("replies", 1, Fault::Hold);
    env.broker.fail_times("replies", 2, Fault::Refused);
    env.broker.fail("replies", Fault::Hold);
    env.run(super::environment::ALL).await;
    env.taken().await;
    assert_eq!(
        env.metric(r#"dwell_replies_total{ingest="main",outcome="unknown"}"#),
        1.0,
        "acknowledged before the others had an outcome"
    );
    env.arrived("replies", 3).await;
}

#[tokio::test]
async fn a_verdict_that_may_not_have_been_taken_is_published_again() {
    let env = Environment::start(&[]).await;
    // As when the link breaks.
    env.broker.fail_times("replies", 1, Fault::Unknown { landed: false });
    env.send(asking(request("a", "1h")));
    env.taken().await;
    assert_eq!(verdicts(&env.broker.published("replies")), ["added"]);
    assert_eq!(env.metric(r#"dwell_replies_total{ingest="main",outcome="confirmed"}"#), 1.0);
    // Where one of two queues behind an exchange is full, every outcome is unknown: the other has
    // no more than one copy of each.
    env.broker.fail("replies", Fault::Unknown { landed: true });
    env.send(asking(request("b", "1h")));
    env.taken().await;
    assert_eq!(verdicts(&env.broker.published("replies")), ["added", "added", "added"]);
    assert_eq!(env.metric(r#"dwell_replies_total{ingest="main",outcome="unknown"}"#), 1.0);
}

#[tokio::test]
async fn a_verdict_waits_for_the_link_that_it_is_published_on() {
    let env = Environment::idle(Default::default(), &[("delivery.publish_timeout", "20s")]).await;
    let source = env.settings.brokers["main"].connector.clone();
    let (publisher, _reports) =
        Publisher::new("main", source.clone(), Duration::from_secs(20), None);
    let ingest = Ingest::new(Parts {
        rules: RequestRules::new(&env.settings, "main").unwrap(),
        source,
        rejected: Destination::new("delay.rejected"),
        publisher: publisher.clone(),
        apply: apply(&env).await,
        readiness: Readiness::new(["main"]),
    });
    let never = CancellationToken::new();
    let link = async {
        env.until_state("x", JobState::Scheduled).await;
        publisher.run(None, &Readiness::new([]), never.clone()).await;
    };
    tokio::select! {
        applied = ingest.apply_batch(vec![asking(request("x", "1h"))], &never) => assert!(applied),
        () = link => unreachable!("it runs until it is told to stop"),
    }
    assert_eq!(verdicts(&env.broker.published("replies")), ["added"]);
}

/// What applies requests, without an instance.
async fn apply(env: &Environment) -> Apply {
    apply_observed(env, Arc::new(env.metrics.clone())).await
}

/// As [`apply`], with an observer of the calls to Redis.
async fn apply_observed(env: &Environment, observer: Arc<dyn CallObserver>) -> Apply {
    let brokers = ["main".to_owned()];
    let store = Arc::new(Store::open(&env.settings.redis, &brokers, observer).await.unwrap());
    let (_, fleet) = watch::channel(Fleet::alone("test"));
    let consumers = crate::support::consumers(&store);
    Apply {
        wake_ups: WakeUps::new(store.clone(), Default::default(), consumers, fleet),
        store,
        retry_ms: Vec::new(),
        events: Events::new(env.metrics.clone()),
        traces: Default::default(),
        batcher: CallBatcher::new(1),
        reads: Default::default(),
    }
}

#[tokio::test]
async fn a_finish_whose_acknowledgement_got_no_answer_is_known() {
    let env = Environment::idle(Default::default(), &[]).await;
    let apply = apply(&env).await;
    let job = held(&apply, "held").await;
    env.redis.freeze().unwrap();
    // Redis carries the acknowledgement out once it goes on.
    let goes_on = async {
        env.until_metric(r#"dwell_redis_errors_total{class="timeout"}"#, 1.0).await;
        env.redis.thaw().unwrap();
    };
    let finish = Act::new(Action::Finish, job.id.clone());
    let (verdict, ()) = tokio::join!(apply.finish(&job, finish), goes_on);
    assert_eq!(verdict.unwrap(), Verdict::Finished);
}

#[tokio::test]
async fn a_finish_counts_once_whether_or_not_its_caller_went_away() {
    let env = Environment::idle(Default::default(), &[("queues.q.ttr", "10m")]).await;
    let metrics = env.metrics.clone().with_queues(env.settings.queues.clone());
    let apply = Apply { events: Events::new(metrics.clone()), ..apply(&env).await };
    let ends = || metric(&metrics.encode(), r#"dwell_lease_ends_total{queue="q",end="finished"}"#);
    let finish = |job: &StoredJob| Act::new(Action::Finish, job.id.clone());
    let gone = held(&apply, "gone").await;
    // The future is dropped before its acknowledgement is sent.
    assert!(apply.finish(&gone, finish(&gone)).now_or_never().is_none());
    wait_until("the end of its lease", async || (ends() == 1.0).then_some(())).await;
    let stays = held(&apply, "stays").await;
    assert_eq!(apply.finish(&stays, finish(&stays)).await.unwrap(), Verdict::Finished);
    assert_eq!(ends(), 2.0);
}

/// A job of the queue `q` that a consumer holds, as it is read then.
async fn held(apply: &Apply, id: &str) -> StoredJob {
    let Store { jobs, reader, .. } = &*apply.store;
    let id = JobId::new(id).unwrap();
    let new_job = NewJob::new(Job::for_queue("q", "x"), Due::In(0)).id(id.clone());
    jobs.schedule(&[new_job]).await.unwrap();
    let limits = PopLimits {
        ttr_ms: Some(600_000),
        max_ttr_ms: 600_000,
        most: 1,
        most_bytes: 1 << 20,
        room: None,
    };
    let bucket = apply.store.keys().bucket_of(id.as_str());
    assert_eq!(jobs.pop(rand::random(), bucket, "q", limits).await.unwrap().jobs.len(), 1);
    reader.find(&id).await.unwrap().unwrap()
}

/// Panics at the first answer to a `cancel`.
#[derive(Default)]
struct PanicsOnce(AtomicBool);

impl CallObserver for PanicsOnce {
    fn called(&self, script: Name, _: Duration) {
        let has_panicked = script != Name::Cancel || self.0.swap(true, Ordering::Relaxed);
        assert!(has_panicked, "the first batch panics");
    }

    fn failed(&self, _: Class) {}
}

#[tokio::test]
async fn a_batch_that_panics_says_so_and_the_next_one_is_carried_out() {
    let env = Environment::idle(Default::default(), &[]).await;
    let apply = apply_observed(&env, Arc::new(PanicsOnce::default())).await;
    let cancel = || apply.one(Request::Act(Act::new(Action::Cancel, JobId::new("none").unwrap())));
    let error = cancel().await.unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert_eq!(cancel().await.unwrap().verdict, Verdict::NotFound);
}

/// The callers that send at the same time, and the requests of each, one after the other.
const CALLERS: usize = 16;
const EACH: usize = 20;

/// Sends requests, each a call of its own, and returns the number of script calls that Redis
/// received for them.
async fn script_calls(
    env: &Environment,
    apply: &Apply,
    request: impl Fn(JobId) -> Request,
    verdict: Verdict,
) -> usize {
    let count = async || {
        let stats = env.redis.order(&["INFO", "commandstats"]).await.unwrap();
        let calls = stats.iter().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls
            .and_then(|calls| calls.split(',').next())
            .map_or(0_usize, |calls| calls.parse().unwrap())
    };
    let request = &request;
    let before: usize = count().await;
    let callers = (0..CALLERS).map(|caller| async move {
        for n in 0..EACH {
            let id = JobId::new(format!("job-{caller}-{n}")).unwrap();
            assert_eq!(apply.one(request(id)).await.unwrap().verdict, verdict);
        }
    });
    join_all(callers).await;
    count().await - before
}

#[tokio::test]
async fn calls_that_arrive_together_share_script_calls_over_all_buckets() {
    let env = Environment::idle(Default::default(), &[]).await;
    let apply = apply(&env).await;
    assert!(apply.store.keys().buckets() >= 16, "a call a bucket would be too few");
    let put = |id| {
        let job = Job::for_queue("q", "x");
        Request::NewJob(Box::new(NewJob::new(job, Due::In(3_600_000)).id(id)))
    };
    let cancel = |id| Request::Act(Act::new(Action::Cancel, id));
    let puts = script_calls(&env, &apply, put, Verdict::Added).await;
    assert!(puts * 10 <= CALLERS * EACH * 3, "{puts} calls for {} jobs", CALLERS * EACH);
    let cancels = script_calls(&env, &apply, cancel, Verdict::Cancelled).await;
    assert!(cancels * 10 <= CALLERS * EACH * 3, "{cancels} calls for {} cancels", CALLERS * EACH);
}
