//! sky-uk/kafka-message-scheduler: the promises of its schedules, asked for by `delay-*` headers.
//! Its own form, Avro or JSON with Base64 in it, is not read.

use bytes::Bytes;
use dwell_connectors::Message;
use dwell_testkit::servers::BrokerKind;

use super::fixture::{Fixture, now_ms};
use crate::routes::environment::request;

fn schedule(id: &str, body: &str, at_ms: i64) -> Message {
    let until = at_ms.to_string();
    let message = request(body, &[("delay-until", &until), ("delay-target", "out.sky")]);
    Message { key: Some(Bytes::copy_from_slice(id.as_bytes())), ..message }
}

/// "schedule an event for the specified time", "… immediately if it has schedule time in the past",
/// "cancel a schedule on a delete message", "cancel a schedule if it is updated".
pub(super) async fn schedules_by_key(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.sky").await;
    let due = now_ms() + 5_000;
    let hour = now_ms() + 3_600_000;
    let delete = Message { key: Some(Bytes::from("sky-deleted")), ..Message::default() };
    let messages = [
        schedule("sky-future", "value", due),
        schedule("sky-past", "value", due - 600_000),
        schedule("sky-deleted", "value", due),
        delete,
        schedule("sky-updated", "old", hour),
        schedule("sky-updated", "new", due),
    ];
    fixture.send("schedules", messages).await;
    target.job("sky-past").await;
    target.job("sky-future").await;
    assert_eq!(target.job("sky-updated").await.body, "new");
    assert!(
        target.first_ms("sky-past").unwrap() < target.first_ms("sky-future").unwrap()
            && target.first_ms("sky-future").unwrap() >= due
    );
    fixture.until_due("sky-deleted", None).await;
    assert_eq!((target.count("sky-deleted"), target.count("sky-updated")), (0, 1));
}

/// "schedule for the maximum finite duration if the scheduled time is too large": refused, so that
/// nothing is early.
pub(super) async fn a_time_far_away(fixture: &Fixture) {
    fixture.send("schedules", [schedule("sky-far", "sky-far", i64::MAX)]).await;
    assert_eq!(fixture.rejected("sky-far", 1).await, ["delay_too_long"]);
}
