//! Two instances with different settings on one Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;

use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::*;
use crate::apply::CallBatcher;
use crate::config::{Overrides, Redis, load_from};
use crate::consumers::Consumers;
use crate::job::Action;
use crate::request::Act;
use crate::schedule::StoredSchedule;
use crate::store::Unobserved;
use crate::telemetry::{Events, Metrics};
use crate::wake_ups::WakeUps;

/// The settings of one queue, and these schedules.
fn settings(redis: &RedisServer, schedules: &[(&str, &str, &str)]) -> Settings {
    let set = [("redis.urls", redis.url()), ("queues.q.ttr", "30s".to_owned())];
    let mut set: Vec<(String, String)> =
        set.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    for (name, key, value) in schedules {
        set.push((format!("schedules.\"{name}\".{key}"), (*value).to_owned()));
    }
    load_from(None, &[], &Overrides { set }).unwrap()
}

/// A schedule of every hour, as settings.
fn hourly<'a>(names: &[&'a str]) -> Vec<(&'a str, &'static str, &'static str)> {
    names.iter().flat_map(|name| [(*name, "schedule", "@hourly"), (*name, "queue", "q")]).collect()
}

/// What puts requests into the store, as an instance has it.
async fn apply(redis: &RedisServer) -> Apply {
    let settings = Redis::new(redis.url());
    let open = Store::open(&settings, &[], Arc::new(Unobserved));
    let store = Arc::new(open.await.unwrap());
    let events = Events::new(Metrics::new(["main"], ["in"]));
    let consumers =
        Consumers::new(store.clone(), Default::default(), Arc::new(()), CancellationToken::new());
    let fleet = watch::channel(Fleet::alone("me ")).1;
    Apply {
        wake_ups: WakeUps::new(store.clone(), HashMap::new(), consumers, fleet),
        store,
        events,
        traces: Default::default(),
        retry_ms: Vec::new(),
        batcher: CallBatcher::new(1),
        reads: Default::default(),
    }
}

async fn found(apply: &Apply, name: &str) -> Option<StoredSchedule> {
    apply.store.schedules.find(&JobId::new(name).unwrap()).await.unwrap()
}

/// Goes round until the schedule is gone; each other round finds it.
async fn until_ended(agent: &mut DeclaredSchedules, apply: &Apply, name: &str) {
    let ended = async {
        while found(apply, name).await.is_some() {
            agent.round().await.unwrap();
        }
    };
    clock::timeout(Duration::from_secs(30), ended).await.expect("it is ended");
}

#[tokio::test]
async fn a_restart_changes_nothing() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let (apply, settings) =
        (apply(&redis).await, settings(&redis, &hourly(&["a", "reports of ü"])));
    DeclaredSchedules::new(&apply, &settings, true).round().await.unwrap();
    let before = [found(&apply, "a").await.unwrap(), found(&apply, "reports of ü").await.unwrap()];
    assert!(before.iter().all(|schedule| schedule.from_settings), "{before:?}");
    let paused = apply.store.schedules.pause(&before[0].id, Some("why"), None).await.unwrap();
    DeclaredSchedules::new(&apply, &settings, true).round().await.unwrap();
    let after = [found(&apply, "a").await, found(&apply, "reports of ü").await];
    assert_eq!(after, [paused, Some(before[1].clone())], "a paused one stays paused");
}

#[tokio::test]
async fn what_no_settings_have_any_more_is_ended_and_nothing_else() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let apply = apply(&redis).await;
    let ttl = Duration::from_secs(2);
    let of = |names: &[&str]| DeclaredSchedules {
        ttl,
        ..DeclaredSchedules::new(&apply, &settings(&redis, &hourly(names)), true)
    };
    of(&["left", "taken", "both"]).round().await.unwrap();
    // Another door changes one of them, and has one of its own.
    let rules = RequestRules::direct(&settings(&redis, &[]));
    let set = hourly(&["taken", "own"]);
    let others = settings(&redis, &set).schedules;
    for (name, schedule) in &others {
        let changed = Schedule { body: Some("x".to_owned()), ..schedule.clone() };
        let mut new = declared_schedule(name, &changed, &rules, apply.store.now_ms()).unwrap();
        new.from_settings = false;
        apply.one(Request::NewSchedule(Box::new(new))).await.unwrap();
    }

    let (mut one, mut other) = (of(&["both"]), of(&["here"]));
    one.round().await.unwrap();
    other.round().await.unwrap();
    assert!(found(&apply, "left").await.is_some(), "the first round of an instance ends nothing");
    // Both live: each names what it has.
    tokio::join!(until_ended(&mut one, &apply, "left"), until_ended(&mut other, &apply, "left"));
    for name in ["taken", "both", "own", "here"] {
        assert!(found(&apply, name).await.is_some(), "{name}");
    }
    assert!(!found(&apply, "taken").await.unwrap().from_settings);
    // The one that had `both` is gone.
    until_ended(&mut other, &apply, "both").await;
    assert!(found(&apply, "here").await.is_some());
}

#[tokio::test]
async fn a_start_puts_back_what_was_cancelled_and_waits_for_a_job_of_its_id() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let (apply, settings) = (apply(&redis).await, settings(&redis, &hourly(&["a"])));
    let id = JobId::new("a").unwrap();
    let mut agent = DeclaredSchedules::new(&apply, &settings, true);
    agent.round().await.unwrap();
    let cancel = || Request::Act(Act::new(Action::Cancel, id.clone()));
    assert_eq!(apply.one(cancel()).await.unwrap().verdict, Verdict::Cancelled);
    agent.round().await.unwrap();
    assert_eq!(found(&apply, "a").await, None, "people end it while the instance runs");

    let job = crate::job::Job::for_queue("q", "x");
    let new_job = crate::request::NewJob::new(job, crate::job::Due::In(3_600_000)).id(id.clone());
    apply.store.jobs.schedule(&[new_job]).await.unwrap();
    let mut agent = DeclaredSchedules::new(&apply, &settings, true);
    agent.round().await.unwrap();
    assert_eq!(found(&apply, "a").await, None, "a job has the id");
    assert_eq!(apply.one(cancel()).await.unwrap().verdict, Verdict::Cancelled);
    agent.round().await.unwrap();
    assert!(found(&apply, "a").await.is_some(), "the id is free");
}

#[tokio::test]
async fn what_another_instance_ends_while_it_is_named_is_stored_again() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let (apply, settings) = (apply(&redis).await, settings(&redis, &hourly(&["a", "b"])));
    let mut agent = DeclaredSchedules::new(&apply, &settings, true);
    agent.round().await.unwrap();
    // The other instance had found `a` forgotten before this round named it.
    let id = JobId::new("a").unwrap();
    apply.one(Request::Act(Act::new(Action::Cancel, id.clone()))).await.unwrap();
    assert_eq!(found(&apply, "a").await, None);
    apply.store.drop_schedule(&id).await.unwrap();
    agent.round().await.unwrap();
    assert!(found(&apply, "a").await.is_some());
}

#[tokio::test]
async fn a_schedule_whose_end_has_passed_is_not_stored_and_is_no_mistake() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let apply = apply(&redis).await;
    let mut set = hourly(&["over", "a"]);
    set.push(("over", "end", "2026-01-01T00:00:00Z"));
    DeclaredSchedules::new(&apply, &settings(&redis, &set), true).round().await.unwrap();
    assert_eq!(found(&apply, "over").await, None);
    assert!(found(&apply, "a").await.is_some());
}

#[tokio::test]
async fn an_instance_that_delivers_nothing_stores_none_and_keeps_its_own_alive() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let apply = apply(&redis).await;
    let ttl = Duration::from_secs(2);
    let of = |names: &[&str], delivers: bool| DeclaredSchedules {
        ttl,
        ..DeclaredSchedules::new(&apply, &settings(&redis, &hourly(names)), delivers)
    };
    of(&["kept", "left"], true).round().await.unwrap();
    let (mut ingests, mut delivers) = (of(&["kept", "never"], false), of(&[], true));
    ingests.round().await.unwrap();
    tokio::join!(
        until_ended(&mut ingests, &apply, "left"),
        until_ended(&mut delivers, &apply, "left")
    );
    assert!(found(&apply, "kept").await.is_some(), "the settings of a living instance have it");
    assert_eq!(found(&apply, "never").await, None);
}

#[tokio::test]
async fn an_instance_that_was_away_puts_back_what_was_ended_and_leaves_what_others_changed() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let apply = apply(&redis).await;
    // Its own clock does not tell that it was away.
    let mut away = DeclaredSchedules {
        ttl: Duration::from_secs(3600),
        ..DeclaredSchedules::new(&apply, &settings(&redis, &hourly(&["ended", "changed"])), true)
    };
    away.round().await.unwrap();
    away.round().await.unwrap();
    let mut set = hourly(&["changed"]);
    set.push(("changed", "body", "new"));
    let mut newer = DeclaredSchedules {
        ttl: Duration::from_secs(2),
        ..DeclaredSchedules::new(&apply, &settings(&redis, &set), true)
    };
    until_ended(&mut newer, &apply, "ended").await;
    away.round().await.unwrap();
    assert!(found(&apply, "ended").await.is_some(), "a living instance has it");
    let changed = found(&apply, "changed").await.unwrap();
    assert_eq!(&changed.job.body[..], b"new", "what others stored meanwhile stays");
}

#[tokio::test]
async fn only_what_was_named_once_is_forgotten_and_what_was_dropped_is_new() {
    let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
    let apply = apply(&redis).await;
    let (store, ids) = (&apply.store, ["a", "b"].map(|id| JobId::new(id).unwrap()));
    let is_forgotten =
        async |id: &JobId, ttl: Duration| store.is_forgotten_schedule(id, ttl).await.unwrap();
    assert_eq!(store.declare_schedules(&ids).await.unwrap(), 2);
    assert_eq!(store.declare_schedules(&ids).await.unwrap(), 0);
    assert!(!is_forgotten(&ids[0], Duration::from_secs(3600)).await);
    let passed = async {
        while !is_forgotten(&ids[0], Duration::ZERO).await {
            tokio::task::yield_now().await;
        }
    };
    clock::timeout(Duration::from_secs(30), passed).await.expect("a ms passes");
    store.drop_schedule(&ids[0]).await.unwrap();
    assert!(!is_forgotten(&ids[0], Duration::ZERO).await, "nobody is known to have had it");
    assert_eq!(store.declare_schedules(&ids).await.unwrap(), 1);
}
