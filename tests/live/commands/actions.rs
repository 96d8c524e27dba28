//! `dwell cancel|reschedule|fire|finish|fail|requeue`: every verdict, its line and
//! its exit code, without a sidecar.

use dwell::job::{Action, Verdict};
use serde_json::Value;
use tempfile::TempDir;

use super::fixture::{Said, run_with};
use crate::store::actions::{ACTIONS, PLACES, bring, expected};
use crate::store::fixture::{FAR, Fixture, action, request};

/// A settings file for the Redis of this fixture. Its broker is never asked.
fn config(folder: &TempDir, fixture: &Fixture) -> String {
    let path = folder.path().join("dwell.toml");
    let redis = format!(
        "[redis]\nurls = [\"{}\"]\nnamespace = \"{}\"\n",
        fixture.settings.urls[0], fixture.settings.namespace
    );
    std::fs::write(&path, format!("{redis}[brokers.main]\ntype = \"nats\"\nurl = \"nats://127.0.0.1:1\"\nallow = [\"orders.>\"]\n"))
        .unwrap();
    path.to_str().unwrap().to_owned()
}

fn act(config: &str, what: &str, id: &str, more: &[&str]) -> Said {
    let when: &[&str] = if what == "reschedule" { &["--for", "1h"] } else { &[] };
    run_with(&[&["-c", config, what, id][..], when, more].concat(), b"")
}

/// 0 where HTTP answers 2xx, else 2.
fn exit_code(verdict: Verdict) -> i32 {
    match verdict {
        Verdict::Cancelled | Verdict::CancelledAfterAttempt => 0,
        Verdict::Rescheduled
        | Verdict::Firing
        | Verdict::Finished
        | Verdict::Failed
        | Verdict::Requeued => 0,
        _ => 2,
    }
}

#[tokio::test]
async fn every_verdict_is_one_line_and_an_exit_code() {
    let (fixture, folder) = (Fixture::new().await, TempDir::new().unwrap());
    let config = config(&folder, &fixture);
    let (mut message, mut seen) = (0, std::collections::BTreeSet::new());
    for place in PLACES {
        for what in ACTIONS {
            message += 100;
            let name = format!("{place}-{}", what.as_str());
            bring(&fixture, place, &name, message).await;
            let (verdict, after) = expected(place, what);
            let said = act(&config, what.as_str(), &name, &["-o", "json"]);
            let object = said.object();
            assert_eq!(said.code, exit_code(verdict), "{} of {place}: {said:?}", what.as_str());
            let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["action", "due_ms", "id", "verdict"]);
            assert_eq!(
                (&object["id"], &object["action"]),
                (&Value::from(name.as_str()), &Value::from(what.as_str()))
            );
            assert_eq!(object["verdict"], verdict.as_str(), "{} of {place}", what.as_str());
            assert_eq!(fixture.place(&name).await, after, "{} of {place}", what.as_str());
            seen.insert(verdict.as_str());
            // Out of the way of the next claim.
            fixture.act(&action(Action::Cancel, &name, message + 61)).await;
        }
    }
    let all = [
        "cancelled",
        "cancelled_after_attempt",
        "dead",
        "failed",
        "finished",
        "fired",
        "firing",
        "in_flight",
        "not_found",
        "requeued",
    ];
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [&all[..], &["rescheduled", "waiting"]].concat()
    );
}

#[tokio::test]
async fn a_person_reads_what_the_verdict_means() {
    let (fixture, folder) = (Fixture::new().await, TempDir::new().unwrap());
    let config = config(&folder, &fixture);
    fixture.put(request("x", 1, FAR)).await;
    let said = act(&config, "requeue", "x", &[]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (2, "x: waiting, due 2096-10-02 07:06:40+00:00: nothing changed: the job is not dead\n")
    );
    let said = act(&config, "reschedule", "x", &["--for", "1h"]);
    assert_eq!((said.code, said.out.as_str()), (64, ""), "--for stands twice");
    let until = [
        "-c",
        &config,
        "reschedule",
        "x",
        "--until",
        "2090-01-01T00:00:00Z",
        "--set",
        "limits.max_delay=36500d",
    ];
    let said = run_with(&until, b"");
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "x: rescheduled, due 2090-01-01 00:00:00+00:00: the job has its new due time\n")
    );
    let said = act(&config, "cancel", "x", &[]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "x: cancelled: the job was never published, and will not be\n")
    );
    let said = act(&config, "cancel", "x", &[]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (
            2,
            "x: not_found: there is no such job; this does not prove that it was never published\n"
        )
    );
}

#[tokio::test]
async fn what_cannot_be_asked_for_exits_before_anything_changes() {
    let (fixture, folder) = (Fixture::new().await, TempDir::new().unwrap());
    let config = config(&folder, &fixture);
    fixture.put(request("x", 1, FAR)).await;
    let before = fixture.dump().await;
    for (arguments, says) in [
        (&["reschedule", "x"][..], "--for"),
        (
            &["reschedule", "x", "--for", "400d"],
            "delay_too_long: a delay of 400d exceeds limits.max_delay, 366d",
        ),
        (&["reschedule", "x", "--until", "2999-01-01T00:00:00Z"], "delay_too_long"),
        (&["reschedule", "x", "--until", "2026-01-01T00:00:00"], "offset"),
        (
            &["reschedule", "x", "--for", "1h", "--until", "2026-01-01T00:00:00Z"],
            "cannot be used with",
        ),
        (&["cancel"], "<ID>"),
        (&["cancel", ""], "id"),
        (&["cancel", "x", "y"], "unexpected argument"),
    ] {
        let said = run_with(&[&["-c", &config], arguments].concat(), b"");
        assert_eq!((said.code, said.out.as_str()), (64, ""), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(says), "{arguments:?}: {}", said.err);
    }
    assert_eq!(fixture.dump().await, before);
    let said =
        run_with(&["-c", &config, "cancel", "x", "--set", "redis.urls=redis://127.0.0.1:1"], b"");
    assert_eq!((said.code, said.out.as_str()), (69, ""), "{}", said.err);
    let said = run_with(&["-c", &config, "cancel", "x", "--set", "redis.namespace=other"], b"");
    assert_eq!((said.code, said.out.as_str()), (78, ""), "{}", said.err);
    assert!(said.err.contains("there is no namespace at `other:meta`"), "{}", said.err);
}

#[tokio::test]
async fn an_action_on_a_job_of_a_later_version_says_so_and_exits_with_1() {
    let (fixture, folder) = (Fixture::new().await, TempDir::new().unwrap());
    let config = config(&folder, &fixture);
    fixture.put(request("later", 1, FAR)).await;
    fixture.redis(&["HSET", &fixture.key("jobs"), "later", "\x02 of a later version"]).await;
    for what in ACTIONS {
        let said = act(&config, what.as_str(), "later", &[]);
        assert!(
            said.code == 1
                && said.err.contains("unreadable_job")
                && said.err.contains("dwell fsck"),
            "{said:?}"
        );
    }
}
