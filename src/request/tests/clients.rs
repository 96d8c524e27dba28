//! The vectors of the files in `clients/`: the parser reads the headers that they build as they mean
//! them.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::*;
use crate::delayed_headers as delayed;
use crate::job::{Action, Due, Expire, Job, Verdict};
use crate::view::ActionResult;

const VECTORS: &str = include_str!("../../../clients/vectors/requests.json");

fn vectors(kind: &str) -> Vec<Json> {
    let mut all: Json = serde_json::from_str(VECTORS).expect("JSON");
    assert_eq!(all["now_ms"], NOW);
    match all[kind].take() {
        Json::Array(vectors) if !vectors.is_empty() => vectors,
        other => panic!("{kind}: no vectors: {other}"),
    }
}

/// The message of a vector, without a time of its own: its delay counts from receipt.
fn asked(vector: &Json) -> Message {
    let headers: Vec<(&str, &str)> = vector["headers"]
        .as_object()
        .expect("headers")
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().expect("text")))
        .collect();
    Message { timestamp_ms: None, ..bare(&headers) }
}

/// What the parser made of a request, in the words of the vectors.
fn read(request: &Request) -> Json {
    let (own, job) = match request {
        Request::NewJob(new) => {
            let (at_ms, in_ms) = due_of(new.due);
            let id = (!new.generated).then(|| new.id.as_str());
            let own = json!({"request": "job", "id": id, "at_ms": at_ms, "in_ms": in_ms,
                "on_conflict": new.conflict, "reply_to": shown(new.reply_to.as_ref())});
            (own, of_job(&new.job))
        }
        Request::NewSchedule(new) => {
            let timing = &new.timing;
            let spread_ms = (timing.spread_ms > 0).then_some(timing.spread_ms);
            let zone = timing.zone.as_ref().map(dwell_schedule::Zone::name);
            let own = json!({"request": "schedule", "id": new.id.as_str(), "schedule": timing.text,
                "time_zone": zone, "start_ms": timing.start_ms, "end_ms": timing.end_ms,
                "count": timing.count, "catch_up": timing.catch_up.name(),
                "overlap": timing.overlap.as_str(), "spread_ms": spread_ms,
                "on_conflict": new.conflict, "reply_to": shown(new.reply_to.as_ref())});
            (own, of_job(&new.job))
        }
        Request::Act(act) => {
            let (at_ms, in_ms) = act.due.map_or((None, None), due_of);
            let own = json!({"request": act.action.as_str(), "id": act.id.as_str(), "at_ms": at_ms,
                "in_ms": in_ms, "seen_due": act.seen_due, "seen_attempt": act.seen_attempt,
                "reply_to": shown(act.reply_to.as_ref())});
            (own, Json::Null)
        }
    };
    let fields = [&own, &job].into_iter().filter_map(|part| part.as_object()).flatten();
    let present = fields.filter(|(_, value)| !value.is_null());
    Json::Object(present.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn of_job(job: &Job) -> Json {
    let to = job.destination();
    let exchange = to.map(|to| to.exchange.as_str()).filter(|exchange| !exchange.is_empty());
    let (after_ms, at_ms) = match job.expire {
        None => (None, None),
        Some(Expire::After(ms)) => (Some(ms), None),
        Some(Expire::At(ms)) => (None, Some(ms)),
    };
    json!({"broker": job.broker(), "exchange": exchange,
        "target": to.map(|to| to.address.as_str()), "queue": job.queue(), "ttr_ms": job.ttr_ms,
        "confirm": job.confirm, "retry_ms": job.retry, "late": job.late,
        "max_late_ms": job.max_late_ms, "expire_after_ms": after_ms, "expire_at_ms": at_ms})
}

/// As a time (epoch ms), or as a delay (ms).
fn due_of(due: Due) -> (Option<i64>, Option<u64>) {
    match due {
        Due::At(at_ms) => (Some(at_ms), None),
        Due::In(in_ms) => (None, Some(in_ms)),
        Due::Earlier { at_ms, in_ms } => (Some(at_ms), Some(in_ms)),
    }
}

fn shown(to: Option<&Destination>) -> Option<String> {
    to.map(ToString::to_string)
}

#[test]
fn headers_of_the_clients_are_read_as_they_mean_them() {
    let rules = rules(Kind::Nats);
    for vector in vectors("requests") {
        let name = &vector["name"];
        let request = parse(&asked(&vector), &rules, NOW);
        let request = request.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(read(&request), vector["read"], "{name}");
    }
}

#[test]
fn what_the_clients_refuse_would_be_rejected() {
    let rules = rules(Kind::Nats);
    for vector in vectors("refused") {
        let code = refused(&asked(&vector), &rules);
        assert_eq!(code.as_str(), vector["code"], "{}", vector["name"]);
    }
}

#[test]
fn the_clients_read_every_header_that_dwell_sets() {
    let set = [
        delayed::ID,
        delayed::ATTEMPT,
        delayed::DUE,
        delayed::ROUND,
        delayed::SCHEDULE,
        delayed::OCCURRENCE,
        delayed::NEXT,
        delayed::DEAD_REASON,
        delayed::LAST_ERROR,
        delayed::ERROR,
        delayed::ERROR_DETAIL,
    ];
    let vectors = vectors("deliveries");
    let read: BTreeSet<String> = vectors
        .iter()
        .filter_map(|vector| vector["headers"].as_object())
        .flat_map(|headers| headers.keys().map(|name| name.to_ascii_lowercase()))
        .collect();
    for name in set {
        assert!(read.contains(name), "no vector has {name}");
    }
}

#[test]
fn verdicts_have_the_form_that_the_clients_read() {
    let given = [
        ("order-17", Verdict::Cancelled, Some(1_767_225_600_000)),
        ("order-18", Verdict::NotFound, None),
    ];
    let vectors = vectors("verdicts");
    assert_eq!(vectors.len(), given.len());
    for (vector, (id, verdict, due_ms)) in vectors.iter().zip(given) {
        let result = ActionResult { id: id.to_owned(), action: Action::Cancel, verdict, due_ms };
        let body = serde_json::to_string(&result).expect("JSON");
        assert_eq!(body, vector["body"]);
    }
}
