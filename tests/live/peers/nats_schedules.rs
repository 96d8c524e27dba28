//! nats-server: message schedules (ADR-51), with the server beside Dwell as the oracle. A server of
//! 2.12 or later keeps such messages for itself, so Dwell gets them by Kafka.

use dwell_testkit::servers::BrokerKind;
use serde_json::json;

use super::fixture::{Fixture, now_ms, rfc3339};
use crate::routes::environment::{request, texts};
use crate::support::{jetstream, wait_until};

type Headers<'a> = &'a [(&'a str, &'a str)];

/// Whether this server has schedules of its own.
async fn is_oracle(fixture: &Fixture) -> bool {
    let version = fixture.nats_version().await;
    let bare = version.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u32> = bare.split('.').map_while(|part| part.parse().ok()).collect();
    let has = numbers >= vec![2, 12];
    if !has {
        println!(
            "without the cases that compare with the server: NATS {version} has no schedules, 2.12 has"
        );
    }
    has
}

/// `TestJetStreamClusterScheduledDelayedMessage`, `TestJetStreamScheduledMessageNotTriggering`: the
/// message at its time, with its headers.
pub(super) async fn scheduled_delayed_message(fixture: &Fixture) {
    if !is_oracle(fixture).await {
        return;
    }
    let port = fixture.nats_port();
    let more = json!({ "allow_msg_schedules": true, "allow_msg_ttl": true });
    jetstream::make_stream(port, "NATIVE", &["native.>"], more).await;
    let by_server = crate::routes::environment::Reading::open(
        fixture.broker(BrokerKind::Nats),
        "native.publish",
    )
    .await;
    let by_dwell = fixture.read(BrokerKind::Nats, "out.nats").await;
    let due = now_ms() + 1_500;
    let when = format!("@at {}", rfc3339(due, 2));
    let headers = [("Nats-Schedule", when.as_str()), ("Header", "Value")];
    let target = |subject| [&headers[..], &[("Nats-Schedule-Target", subject)]].concat();
    let ack = jetstream::publish(port, "native.schedule", &target("native.publish"), "hello").await;
    assert_eq!(ack["stream"], "NATIVE", "{ack}");
    fixture
        .send(
            "delay.in",
            [request("hello", &target("out.nats")).with_header("delay-broker", "nats")],
        )
        .await;
    for (reading, own) in [(&by_server, "Nats-"), (&by_dwell, "delayed-")] {
        let (at_us, message) = reading.until(1).await.remove(0);
        assert!(at_us / 1_000 >= due, "{own}: early");
        let mut headers = texts(&message);
        headers.retain(|name, _| !name.starts_with(own) && name != "Nats-Msg-Id");
        assert_eq!(
            (message.body.as_ref(), headers),
            (&b"hello"[..], [("Header".to_owned(), "Value".to_owned())].into()),
            "{own}"
        );
    }
}

/// The refusals of `TestJetStreamClusterScheduledDelayedMessage`, and the features that Dwell
/// lacks: the server's codes, and ours.
pub(super) async fn refused_schedules(fixture: &Fixture) {
    if !is_oracle(fixture).await {
        return;
    }
    let port = fixture.nats_port();
    let more = json!({ "allow_msg_schedules": true, "allow_msg_ttl": true });
    jetstream::make_stream(port, "REFUSES", &["out.foo.*"], more).await;
    let at = ("Nats-Schedule", "@at 1970-01-01T00:00:00Z");
    let to = ("Nats-Schedule-Target", "out.foo.publish");
    let cases: [(Headers<'_>, bool, &str); 11] = [
        (&[("Nats-Schedule", "invalid"), to], true, "bad_schedule"),
        (&[("Nats-Schedule", "@at tomorrow"), to], true, "bad_delay"),
        (&[("Nats-Schedule", "@every 999ms"), to], true, "bad_schedule"),
        (&[at, ("Nats-Schedule-Target", "not.matching")], true, "target_not_allowed"),
        (&[at, ("Nats-Schedule-Target", "out.foo.*")], true, "target_not_allowed"),
        (&[at, to, ("Nats-Schedule-TTL", "invalid")], true, "bad_header"),
        (&[at, to, ("Nats-Schedule-Time-Zone", "UTC")], true, "bad_header"),
        (&[at, to, ("Nats-Schedule-Rollup", "all")], true, "bad_header"),
        // The server carries these out, and Dwell says that it does not.
        (&[at, to, ("Nats-Schedule-Rollup", "sub")], false, "bad_header"),
        (&[at, to, ("Nats-Schedule-Source", "out.foo.source")], false, "bad_header"),
        // A request by Kafka has no subject that could be the id.
        (&[("Nats-Schedule", "@every 1h"), to], false, "bad_id"),
    ];
    for (headers, refuses, _) in cases {
        let ack = jetstream::publish(port, "out.foo.invalid", headers, "").await;
        assert_eq!(!ack["error"].is_null(), refuses, "{headers:?}: {ack}");
    }
    let by_us = cases
        .map(|(headers, ..)| request("nats-refused", headers).with_header("delay-broker", "nats"));
    fixture.send("delay.in", by_us).await;
    assert_eq!(fixture.rejected("nats-refused", cases.len()).await, cases.map(|(_, _, code)| code));
}

/// `TestJetStreamScheduledMessageDeliveryPreservesTargetSchedule`,
/// `TestJetStreamClusterScheduledDelayedMessageReversedHeaderOrder`, the past of
/// `TestJetStreamScheduledMessageParse`: schedules of one target do not know of each other.
pub(super) async fn of_one_target(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.nats-many").await;
    let schedule = |body: &str, ms: i64| {
        let when = format!("@at {}", rfc3339(ms, 0));
        request(body, &[("Nats-Schedule", &when), ("Nats-Schedule-Target", "out.nats-many")])
    };
    let now = now_ms();
    let reversed = request(
        "past",
        &[("Nats-Schedule-Target", "out.nats-many"), ("Nats-Schedule", "@at 1970-01-01T00:00:00Z")],
    );
    fixture
        .send("delay.in", [schedule("late", now + 2_500), schedule("soon", now + 1_500), reversed])
        .await;
    wait_until("all three in their order", async || {
        let seen: Vec<_> = target.now().into_iter().map(|(_, message)| message.body).collect();
        (seen == ["past", "soon", "late"]).then_some(())
    })
    .await;
}
