//! Requests of a caller that has only some queues: the script itself leaves the jobs of others
//! alone.

use dwell::config::Token;
use dwell::job::{Action, Job, Verdict};
use dwell::request::{Act, NewJob, OwnQueues};
use dwell::store::error::Class;
use dwell::store::jobs::acknowledge::{Acknowledgement, LeaseAction, LeaseVerdict};
use dwell::store::jobs::pop::{PopLimits, Popped};

use super::fixture::{FAR, Fixture, PAST, RETRY, id, request};

const ACTIONS: [Action; 6] = [
    Action::Cancel,
    Action::Reschedule,
    Action::Fire,
    Action::Finish,
    Action::Fail,
    Action::Requeue,
];

fn job(name: &str, queue: &str) -> NewJob {
    NewJob::new(
        Job { retry: Some(Vec::new()), ttr_ms: 600_000, ..Job::for_queue(queue, "body") },
        PAST,
    )
    .id(id(name))
}

fn of(queues: &[&str]) -> Option<OwnQueues> {
    Some(OwnQueues::new(queues.iter().copied()))
}

async fn take(fixture: &Fixture, queue: &str) -> Popped {
    let limits =
        PopLimits { ttr_ms: None, max_ttr_ms: 600_000, most: 1, most_bytes: 1 << 20, room: None };
    fixture.store.jobs.pop(rand::random(), 0, queue, limits).await.unwrap().jobs.remove(0)
}

async fn say(fixture: &Fixture, job: Popped, action: LeaseAction) -> LeaseVerdict {
    let acknowledgements = [Acknowledgement { id: job.id, lease: job.lease, action }];
    fixture.store.jobs.acknowledge(&acknowledgements).await.remove(0).unwrap().verdict
}

/// A job of others in each place: `ready`, `held`, `dead`, and `broker`.
async fn others(fixture: &Fixture) -> [&'static str; 4] {
    fixture.put(job("dead", "bills")).await;
    let dies = take(fixture, "bills").await;
    assert_eq!(
        say(fixture, dies, LeaseAction::Fail { wait_ms: None, error: String::new() }).await,
        LeaseVerdict::Dead
    );
    fixture.put(job("held", "bills")).await;
    take(fixture, "bills").await;
    fixture.put(job("ready", "bills")).await;
    fixture.put(request("broker", 1, FAR)).await;
    ["ready", "held", "dead", "broker"]
}

#[tokio::test]
async fn a_job_of_others_is_neither_replaced_nor_acted_on() {
    let fixture = Fixture::new().await;
    let names = others(&fixture).await;
    // A refused job may have made its queue known.
    let dump = async || {
        let mut dump = fixture.dump().await;
        dump.retain(|key, _| !key.ends_with(":meta"));
        dump
    };
    let before = dump().await;
    for name in names {
        for conflict in [
            dwell::job::Conflict::Replace,
            dwell::job::Conflict::Keep,
            dwell::job::Conflict::Reject,
        ] {
            let new = NewJob {
                own_queues: of(&["orders.*", "bill"]),
                ..job(name, "orders.eu").on_conflict(conflict)
            };
            let refused = fixture.store.jobs.schedule(&[new]).await.unwrap_err();
            assert_eq!(
                (refused.class, refused.is_refusal()),
                (Class::Taken, true),
                "{name} {conflict:?}: {refused}"
            );
        }
        for action in ACTIONS {
            let act = Act { own_queues: of(&["orders.*", "bill"]), ..Act::new(action, id(name)) };
            assert_eq!(
                fixture.store.jobs.act(&act, RETRY).await.unwrap().verdict,
                Verdict::NotFound,
                "{name} {action:?}"
            );
        }
    }
    assert_eq!(dump().await, before);
    let cancel = Act { own_queues: of(&["b*s"]), ..Act::new(Action::Cancel, id("ready")) };
    assert_eq!(fixture.act(&cancel).await, Verdict::Cancelled);
    assert_eq!(
        fixture.put(NewJob { own_queues: of(&["*"]), ..job("held", "orders.eu") }).await,
        Verdict::Replaced
    );
}

#[tokio::test]
async fn what_was_finished_is_known_to_its_owner_alone() {
    let fixture = Fixture::new().await;
    for (name, by_lease) in [("a", true), ("b", false)] {
        fixture.put(job(name, "bills")).await;
        let held = take(&fixture, "bills").await;
        if by_lease {
            assert_eq!(say(&fixture, held, LeaseAction::Finish).await, LeaseVerdict::Finished);
        } else {
            assert_eq!(fixture.act(&Act::new(Action::Finish, id(name))).await, Verdict::Finished);
        }
        for (own_queues, verdict) in [
            (None, Verdict::Fired),
            (of(&["orders", "bills"]), Verdict::Fired),
            (of(&["orders.*"]), Verdict::NotFound),
        ] {
            let again = Act { own_queues, ..Act::new(Action::Finish, id(name)) };
            assert_eq!(fixture.act(&again).await, verdict, "{again:?}");
        }
        // The id is free for anybody.
        assert_eq!(
            fixture.put(NewJob { own_queues: of(&["orders"]), ..job(name, "orders") }).await,
            Verdict::Added
        );
    }
    fixture.put(request("c", 1, PAST)).await;
    assert!(fixture.complete(&fixture.claim_one().await).await);
    let again = Act { own_queues: of(&["*"]), ..Act::new(Action::Finish, id("c")) };
    assert_eq!(fixture.act(&again).await, Verdict::NotFound, "a job of a broker");
}

#[tokio::test]
async fn the_scripts_read_the_patterns_of_a_token_as_the_settings_do() {
    let fixture = Fixture::new().await;
    let names = ["a", "ab", "aba", "a.b", "b-a", "abab", "a_b.a", "bb", "A"];
    let patterns = [
        "*", "a", "a*", "*a", "*a*", "a*b", "a*a", "a*b*a", "*ab*ab*", "a.*", "*.b", "**", "a**b",
        "ab*ab", "b-*", "a_b.a", "aba*aba", "",
    ];
    for name in names {
        fixture.put(job(name, name)).await;
        for pattern in patterns {
            let token = Token {
                token: None,
                token_file: None,
                may: Vec::new(),
                queues: vec![pattern.to_owned()],
            };
            let finish = Act { own_queues: of(&[pattern]), ..Act::new(Action::Fire, id(name)) };
            let is_own = fixture.act(&finish).await != Verdict::NotFound;
            assert_eq!(is_own, token.has_queue(name), "{pattern} and {name}");
        }
    }
}
