//! Each verdict by each interface: a message with a reply, a command, HTTP. One
//! builder brings the job to its place for all three.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dwell::config::{self, Overrides};
use dwell::job::{Action, Due, Verdict};
use dwell_connectors::{Acks, Destination, Message};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::sidecar::{Answer, Sidecar};
use crate::commands::fixture::{Fixture as Servers, run_with};
use crate::store::actions::{ACTIONS, PLACES, bring, expected};
use crate::store::fixture::{FAR, Fixture, MAIN, action, request};
use crate::support::wait_until;

const INTERFACES: [&str; 3] = ["message", "command", "http"];

/// An instance that reads requests and delivers nothing, so that each job stays where it is
/// brought.
struct Interfaces {
    fixture: Fixture,
    sidecar: Sidecar,
    producer: tokio::sync::Mutex<Producer>,
    replies: Arc<Mutex<BTreeMap<String, Value>>>,
    _consumer: Consumer,
    _servers: Servers,
}

/// The HTTP status of a verdict.
fn status(verdict: &str, action: Action) -> u16 {
    match verdict {
        "added" | "replaced" => 201,
        "not_found" => 404,
        "failed"
        | "finished"
        | "requeued"
        | "rescheduled"
        | "firing"
        | "cancelled"
        | "cancelled_after_attempt" => 200,
        "duplicate" | "kept" => 200,
        "conflict" | "fired" | "dead" | "waiting" | "stale" => 409,
        "in_flight" if action != Action::Add => 409,
        other => panic!("{other}"),
    }
}

impl Interfaces {
    async fn open() -> Interfaces {
        let servers = Servers::new().await;
        let fixture = Fixture::on(&servers.redis.url(), 1, &[MAIN]).await;
        let redis =
            format!("[redis]\nnamespace = \"{}\"\nbuckets = 1\n", fixture.settings.namespace);
        let settings = servers.settings(true).replace("[redis]\n", &redis);
        let sidecar = Sidecar::run(&settings, "", &["--no-dispatch"]).await;
        let reads = async || {
            sidecar.get("/v1/stats").json()["ingests"]["main"]["reads"]
                .as_bool()
                .filter(|reads| *reads)
        };
        wait_until("it reads", reads).await;
        let broker = config::load_from(Some(&sidecar.config()), &[], &Overrides::default())
            .unwrap()
            .brokers["main"]
            .connector
            .clone();
        let replies = Arc::<Mutex<BTreeMap<String, Value>>>::default();
        let into = replies.clone();
        let consumer =
            Consumer::open(&broker, "orders.replies", Acks::Explicit, move |_, messages| {
                for message in messages {
                    let verdict: Value = serde_json::from_slice(&message.body).unwrap();
                    into.lock().insert(verdict["id"].as_str().unwrap().to_owned(), verdict);
                }
            });
        let producer = tokio::sync::Mutex::new(Producer::open(&broker).await.unwrap());
        Interfaces {
            fixture,
            sidecar,
            producer,
            replies,
            _consumer: consumer.await.unwrap(),
            _servers: servers,
        }
    }

    /// Sends a request with these headers, and waits for its verdict.
    async fn message(&self, id: &str, headers: &[(&str, String)]) -> Value {
        self.replies.lock().remove(id);
        let message = Message::new("body")
            .with_header("delay-id", id)
            .with_header("delay-reply-to", "orders.replies");
        let message = headers
            .iter()
            .fold(message, |message, (name, value)| message.with_header(*name, value));
        {
            let mut producer = self.producer.lock().await;
            producer.send(&Destination::new("delay.in"), [message]).await.unwrap();
            producer.flush().await.unwrap();
        }
        wait_until(&format!("the verdict on {id}"), async || self.replies.lock().remove(id)).await
    }

    fn command(&self, what: &str, id: &str, more: &[&str]) -> Value {
        let config = self.sidecar.config();
        let said = run_with(
            &[&["-c", config.to_str().unwrap(), "-o", "json", what, id][..], more].concat(),
            b"",
        );
        let verdict = said.object();
        let ok = status(verdict["verdict"].as_str().unwrap(), Action::Cancel) < 300;
        assert_eq!(said.code, if ok { 0 } else { 2 }, "{what} {id}: {said:?}");
        verdict
    }

    fn http(&self, what: Action, id: &str, body: Option<Value>) -> Value {
        let answer: Answer = match what {
            Action::Cancel => self.sidecar.call(&format!("DELETE /v1/jobs/{id}"), None),
            Action::Reschedule => {
                self.sidecar.call(&format!("PATCH /v1/jobs/{id}"), Some(&json!({"for": "1h"})))
            }
            other => {
                self.sidecar.call(&format!("POST /v1/jobs/{id}/{}", other.as_str()), body.as_ref())
            }
        };
        let verdict = answer.json();
        assert!(answer.head.contains("content-type: application/json"), "{answer:?}");
        assert_eq!(
            answer.status,
            status(verdict["verdict"].as_str().unwrap(), what),
            "{} {id}: {verdict}",
            what.as_str()
        );
        verdict
    }

    async fn act(&self, interface: &str, what: Action, id: &str) -> Value {
        let later = what == Action::Reschedule;
        match interface {
            "message" => {
                let mut headers = vec![("delay-action", what.as_str().to_owned())];
                headers.extend(later.then(|| ("delay-for", "1h".to_owned())));
                self.message(id, &headers).await
            }
            "command" => {
                self.command(what.as_str(), id, if later { &["--for", "1h"] } else { &[] })
            }
            _ => self.http(what, id, None),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_action_answers_the_same_by_each_interface() {
    let interfaces = Interfaces::open().await;
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut message = 0;
    for place in PLACES {
        for what in ACTIONS {
            let (verdict, after) = expected(place, what);
            // To requeue is the word of a person, not of a message.
            for interface in INTERFACES
                .into_iter()
                .filter(|interface| *interface != "message" || what != Action::Requeue)
            {
                message += 100;
                let id = format!("{place}-{}-{interface}", what.as_str());
                bring(&interfaces.fixture, place, &id, message).await;
                let answer = interfaces.act(interface, what, &id).await;
                assert_eq!(
                    answer["verdict"],
                    verdict.as_str(),
                    "{} of {place} by {interface}",
                    what.as_str()
                );
                assert_eq!((&answer["id"], &answer["action"]), (&json!(id), &json!(what.as_str())));
                let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
                assert_eq!(keys, ["action", "due_ms", "id", "verdict"], "one shape by {interface}");
                assert_eq!(
                    interfaces.fixture.place(&id).await,
                    after,
                    "{} of {place} by {interface}",
                    what.as_str()
                );
                seen.entry(interface).or_default().insert(verdict.as_str().to_owned());
                // Out of the way of the next claim.
                interfaces.fixture.act(&action(Action::Cancel, &id, message + 61)).await;
            }
        }
    }
    let all = [
        Verdict::Cancelled,
        Verdict::CancelledAfterAttempt,
        Verdict::InFlight,
        Verdict::Rescheduled,
        Verdict::Firing,
    ];
    let all = [
        &all[..],
        &[
            Verdict::Finished,
            Verdict::Failed,
            Verdict::Fired,
            Verdict::Dead,
            Verdict::Waiting,
            Verdict::NotFound,
        ],
    ]
    .concat();
    let common = all.iter().map(|verdict| verdict.as_str().to_owned()).collect::<BTreeSet<_>>();
    let with_requeue = &common | &BTreeSet::from(["requeued".to_owned()]);
    assert_eq!(
        seen,
        BTreeMap::from([
            ("command", with_requeue.clone()),
            ("http", with_requeue),
            ("message", common)
        ])
    );
    let cancels =
        interfaces.sidecar.log_lines().iter().filter(|line| line["method"] == "DELETE").count();
    assert_eq!(cancels, PLACES.len(), "one line a request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_another_schedule_or_attempt_is_stale_by_each_interface() {
    let interfaces = Interfaces::open().await;
    for interface in INTERFACES {
        let id = format!("held-{interface}");
        bring(&interfaces.fixture, "held", &id, 1000 + interface.len() as u64).await;
        let word = async |what: Action, due: Option<i64>, attempt: Option<u32>| {
            let (due, attempt) =
                (due.map(|ms| ms.to_string()), attempt.map(|number| number.to_string()));
            let answer = match interface {
                "message" => {
                    let seen = [("delayed-due", due), ("delayed-attempt", attempt)];
                    let mut headers = vec![("delay-action", what.as_str().to_owned())];
                    headers
                        .extend(seen.into_iter().filter_map(|(name, value)| Some((name, value?))));
                    interfaces.message(&id, &headers).await
                }
                "command" => {
                    let mut flags = Vec::new();
                    due.iter().for_each(|due| flags.extend(["--due", due.as_str()]));
                    attempt
                        .iter()
                        .for_each(|attempt| flags.extend(["--attempt", attempt.as_str()]));
                    interfaces.command(what.as_str(), &id, &flags)
                }
                _ => {
                    let number =
                        |text: Option<String>| text.map(|text| text.parse::<i64>().unwrap());
                    interfaces.http(
                        what,
                        &id,
                        Some(json!({"due_ms": number(due), "attempt": number(attempt)})),
                    )
                }
            };
            answer["verdict"].as_str().unwrap().to_owned()
        };
        let due = 1_000_000_000_000;
        assert_eq!(word(Action::Finish, Some(due + 1), None).await, "stale", "{interface}");
        assert_eq!(word(Action::Fail, Some(due + 1), None).await, "stale", "{interface}");
        assert_eq!(word(Action::Fail, Some(due), Some(2)).await, "stale", "{interface}");
        assert_eq!(word(Action::Fail, Some(due), Some(1)).await, "failed", "{interface}");
        assert_eq!(
            word(Action::Finish, Some(due), Some(7)).await,
            "finished",
            "{interface}: of any attempt"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_has_its_verdict_by_message_and_by_http() {
    let interfaces = Interfaces::open().await;
    let far = dwell::clock::wall_ms() + 86_400_000;
    for interface in ["message", "http"] {
        let id = format!("s-{interface}");
        let ask = async |until: i64, policy: &str, id: &str| -> String {
            match interface {
                "message" => {
                    let headers = [
                        ("delay-until", until.to_string()),
                        ("delay-target", "orders.close".to_owned()),
                        ("delay-on-conflict", policy.to_owned()),
                    ];
                    interfaces.message(id, &headers).await["verdict"].as_str().unwrap().to_owned()
                }
                _ => {
                    let body = json!({"id": id, "until": until, "target": "orders.close", "on_conflict": policy, "body": "body"});
                    let answer = interfaces.sidecar.post("/v1/jobs", &body);
                    let job = if answer.status == 409 {
                        answer.problem(409)["job"].clone()
                    } else {
                        answer.json()
                    };
                    assert_eq!(
                        (&job["id"], &job["state"], &job["target"]),
                        (&json!(id), &json!("scheduled"), &json!("orders.close"))
                    );
                    let stands =
                        if policy == "replace" { until } else { job["due_ms"].as_i64().unwrap() };
                    assert_eq!(job["due_ms"], stands, "the job as it stands");
                    match answer.status {
                        201 => "added or replaced".to_owned(),
                        200 => "duplicate or kept".to_owned(),
                        409 => answer.problem(409)["code"].as_str().unwrap().to_owned(),
                        other => panic!("{other}: {answer:?}"),
                    }
                }
            }
        };
        let http = interface == "http";
        let is = |verdict: &str, said: &str| match verdict {
            "added" | "replaced" if http => said == "added or replaced",
            "duplicate" | "kept" if http => said == "duplicate or kept",
            _ => said == verdict,
        };
        for (until, policy, verdict) in [
            (far, "replace", "added"),
            (far, "replace", "duplicate"),
            (far + 1, "replace", "replaced"),
            (far + 2, "keep", "kept"),
            (far + 2, "reject", "conflict"),
        ] {
            let said = ask(until, policy, &id).await;
            assert!(is(verdict, &said), "{verdict} by {interface}: {said}");
        }
        // Of a job that is dead, or that was published, a request makes a new one.
        for place in ["dead", "fired"] {
            let id = format!("{place}-{interface}");
            bring(
                &interfaces.fixture,
                place,
                &id,
                (1000 * place.len() + 10 * interface.len()) as u64,
            )
            .await;
            let said = ask(far, "reject", &id).await;
            assert!(is("added", &said), "{place} by {interface}: {said}");
        }
    }
    // The due time of the standing job comes from the store.
    interfaces.fixture.put(request("mine", 1, FAR)).await;
    let Due::At(far_ms) = FAR else { unreachable!() };
    let kept = interfaces.sidecar.post(
        "/v1/jobs",
        &json!({"id": "mine", "for": "1h", "target": "orders.x", "on_conflict": "keep"}),
    );
    assert_eq!((kept.status, &kept.json()["due_ms"]), (200, &json!(far_ms)), "{kept:?}");
}
