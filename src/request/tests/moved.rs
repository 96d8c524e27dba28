//! Jobs that move to another broker.

use super::*;
use crate::job::{Job, Target};

fn moving(broker: &str) -> Moving {
    Moving {
        rules: rules(Kind::Direct),
        broker: broker.to_owned(),
        own: vec![Destination::new("own")],
    }
}

/// The same job for this destination.
fn sent_to(to: Destination, job: &Job) -> Job {
    let broker = job.broker().expect("a job of a broker").to_owned();
    Job { target: Target::Broker { broker, to }, ..job.clone() }
}

/// The job of a request on the ingest of this kind.
fn job(message: &Message, kind: Kind) -> Job {
    scheduled(message, &rules(kind)).job
}

#[test]
fn a_job_is_judged_as_a_request_for_that_broker() {
    let of_nats = job(&message(&[("delay-for", "1m"), ("trace", "t")]), Kind::Nats);
    let same = moving("nats").job(of_nats.clone()).unwrap();
    assert_eq!(same, of_nats, "the same broker under another name takes all as it is");
    assert_eq!(moving("memory").job(of_nats.clone()).unwrap().broker(), Some("memory"));
    // Kafka's `allow` has `orders` alone.
    assert_eq!(moving("kafka").job(of_nats.clone()).unwrap_err().code, Code::TargetNotAllowed);
    let own = Destination::new("own");
    assert_eq!(
        moving("kafka").job(sent_to(own.clone(), &of_nats)).unwrap().destination(),
        Some(&own),
        "the target of an ingest needs no entry"
    );
    let read = sent_to(Destination::new("delay.in"), &of_nats);
    assert_eq!(moving("nats").job(read).unwrap_err().code, Code::Loop);
    let wild = sent_to(Destination::new("orders.*"), &of_nats);
    assert_eq!(moving("nats").job(wild).unwrap_err().code, Code::TargetNotAllowed);
    assert_eq!(moving("gone").job(of_nats).unwrap_err().code, Code::UnknownBroker);
}

#[test]
fn what_the_other_broker_has_no_place_for_becomes_headers_or_is_refused() {
    let mut keyed = bare(&[("delay-for", "1m"), ("delay-target", "orders"), ("trace", "t")]);
    keyed.key = Some("k".into());
    let of_kafka = sent_to(Destination::new("orders.close"), &job(&keyed, Kind::Kafka));
    assert_eq!(of_kafka.key.as_deref(), Some(&b"k"[..]));
    let moved = moving("nats").job(of_kafka.clone()).unwrap();
    assert_eq!(
        (moved.key, moved.headers.text("kafka-key"), moved.headers.text("trace")),
        (None, Some("k"), Some("t"))
    );
    assert_eq!(moved.body, of_kafka.body);

    let shop = Destination { exchange: "shop".to_owned(), address: "orders.close".to_owned() };
    let of_shop = sent_to(shop, &of_kafka);
    assert_eq!(
        moving("nats").job(of_shop.clone()).unwrap_err().code,
        Code::TargetNotAllowed,
        "it has no exchanges"
    );
    let mut acts = of_kafka;
    acts.headers.push("Nats-Rollup", Value::Text("all".to_owned()));
    assert_eq!(moving("nats").job(acts).unwrap_err().code, Code::BadHeader, "it would act");
}

#[test]
fn what_dwell_stored_with_an_occurrence_moves_along() {
    let mut occurrence = job(&message(&[("delay-for", "1m"), ("trace", "t")]), Kind::Nats);
    occurrence.headers.push("delayed-schedule", "report".into());
    occurrence.headers.push("delayed-occurrence", Value::I64(3));
    occurrence.headers.push("delayed-id", "a framework's copy".into());
    occurrence.headers.push("Nats-TTL", "5m".into());
    let names =
        |job: &Job| job.headers.iter().map(|header| header.name.clone()).collect::<Vec<_>>();
    let moved = moving("memory").job(occurrence.clone()).unwrap();
    assert_eq!(names(&moved), ["trace", "delayed-schedule", "delayed-occurrence"]);
    assert_eq!(moved.headers.get("delayed-occurrence"), Some(&Value::I64(3)));
    let same = moving("nats").job(occurrence).unwrap();
    assert_eq!(names(&same), ["trace", "delayed-schedule", "delayed-occurrence", "Nats-TTL"]);

    // Kafka has no such header: this one is the producer's.
    let keyed = bare(&[("delay-for", "1m"), ("delay-target", "orders"), ("Nats-TTL", "5m")]);
    let of_kafka = job(&keyed, Kind::Kafka);
    assert_eq!(moving("kafka").job(of_kafka.clone()).unwrap().headers, of_kafka.headers);
    let to_nats = sent_to(Destination::new("orders.close"), &of_kafka);
    assert_eq!(moving("nats").job(to_nats).unwrap_err().code, Code::BadHeader, "it would act");
}
