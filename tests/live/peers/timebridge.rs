//! martavoi/kafka-timebridge: its acceptor, and the duties of its backends.

use bytes::Bytes;
use dwell_connectors::Message;
use dwell_testkit::servers::BrokerKind;

use super::fixture::{Fixture, now_ms, rfc3339};
use crate::routes::environment::{Reading, request, text};
use crate::support::wait_until;

async fn bodied(reading: &Reading, body: &str) -> Message {
    wait_until(&format!("the message {body}"), async || {
        reading
            .now()
            .into_iter()
            .find(|(_, message)| message.body == body)
            .map(|(_, message)| message)
    })
    .await
}

/// `ValidHeaders`, `OnlyTimebridgeHeaders`, `FutureMessages`, `DateTimeHandling`: key, value and
/// other headers arrive at the time, and the two headers do not.
pub(super) async fn valid_headers(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.bridge").await;
    let due = now_ms() + 1_500;
    let mut messages = Vec::new();
    for (body, more) in
        [("tb-more", &[("Custom-Header", "custom-value"), ("another", "")][..]), ("tb-only", &[])]
    {
        let when = rfc3339(due, 0);
        let headers =
            [&[("X-Timebridge-When", when.as_str()), ("X-Timebridge-Where", "out.bridge")], more]
                .concat();
        messages
            .push(Message { key: Some(Bytes::from_static(b"k\xff")), ..request(body, &headers) });
    }
    fixture.send("delay.in", messages).await;
    for (body, more) in [("tb-more", 2), ("tb-only", 0)] {
        let message = bodied(&target, body).await;
        assert_eq!(message.key, Some(Bytes::from_static(b"k\xff")));
        assert_eq!(
            message.headers.iter().filter(|header| !header.name.starts_with("delayed-")).count(),
            more,
            "{message:?}"
        );
        assert_eq!(text(&message, "delayed-due"), Some(due.to_string()));
    }
    assert_eq!(
        text(&bodied(&target, "tb-more").await, "Custom-Header").as_deref(),
        Some("custom-value")
    );
    assert!(target.now().iter().all(|(at_us, _)| at_us / 1_000 >= due), "early");
}

/// `UTC_Time`, `PlusThreeTimezone`, `MinusFiveTimezone`, `remains_PastTime`, `DateTimeHandling`:
/// one moment at three offsets; the past is now; nanoseconds are never early.
pub(super) async fn times(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.bridge-times").await;
    let past = now_ms() - 60_000;
    let messages = [0, 3, -5].map(|hours| {
        let when = rfc3339(past, hours);
        request(
            &format!("tb-offset{hours}"),
            &[("X-Timebridge-When", &when), ("X-Timebridge-Where", "out.bridge-times")],
        )
    });
    let nanoseconds = [
        ("X-Timebridge-When", "2024-01-01T12:00:00.123456789Z"),
        ("X-Timebridge-Where", "out.bridge-times"),
    ];
    fixture
        .send("delay.in", messages.into_iter().chain([request("tb-nanoseconds", &nanoseconds)]))
        .await;
    assert_eq!(
        text(&bodied(&target, "tb-nanoseconds").await, "delayed-due").as_deref(),
        Some("1704110400124")
    );
    for hours in [0, 3, -5] {
        let message = bodied(&target, &format!("tb-offset{hours}")).await;
        assert_eq!(text(&message, "delayed-due"), Some(past.to_string()), "{hours}");
    }
}

/// `MissingWhenHeader`, `MissingWhereHeader`, `InvalidWhenFormat`, `EmptyWhenValue`,
/// `EmptyWhereValue`: to the error topic, as they came.
pub(super) async fn bad_headers(fixture: &Fixture) {
    let when = rfc3339(now_ms(), 0);
    let cases: [&[(&str, &str)]; 5] = [
        &[("X-Timebridge-Where", "out.bridge")],
        &[("X-Timebridge-When", &when)],
        &[("X-Timebridge-When", "invalid-date"), ("X-Timebridge-Where", "out.bridge")],
        &[("X-Timebridge-When", ""), ("X-Timebridge-Where", "out.bridge")],
        &[("X-Timebridge-When", &when), ("X-Timebridge-Where", "")],
    ];
    fixture.send("delay.in", cases.map(|headers| request("tb-bad", headers))).await;
    let codes = ["missing_delay", "missing_target", "bad_delay", "bad_delay", "missing_target"];
    assert_eq!(fixture.rejected("tb-bad", 5).await, codes);
}

/// `WriteWithoutKey`, `WriteEmptyMessage`.
pub(super) async fn without_key_and_empty(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.bridge-empty").await;
    let when = rfc3339(now_ms(), 0);
    let make = |body: &str| {
        request(body, &[("X-Timebridge-When", &when), ("X-Timebridge-Where", "out.bridge-empty")])
    };
    let empty = Message { key: Some(Bytes::from("empty")), ..make("") };
    let none = Message { key: Some(Bytes::from("none")), has_body: false, ..make("") };
    fixture.send("delay.in", [make("tb-no-key"), empty, none]).await;
    let seen = target.until(3).await;
    let mut came: Vec<_> = seen
        .iter()
        .map(|(_, message)| (message.key.clone(), message.has_body, message.body.len()))
        .collect();
    came.sort();
    assert_eq!(
        came,
        [
            (None, true, 9),
            (Some(Bytes::from("empty")), true, 0),
            (Some(Bytes::from("none")), false, 0)
        ]
    );
}
