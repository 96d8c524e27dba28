//! etf1/kafka-message-scheduler: runner/kafka, scheduler, store/kafka and clientlib.

use bytes::Bytes;
use dwell::job::JobId;
use dwell_connectors::{Message, Value};
use dwell_testkit::servers::BrokerKind;

use super::fixture::{Fixture, now_ms};
use crate::routes::environment::{request, text, texts};
use crate::support::wait_until;

/// A schedule as `FullMessage` of the suite makes it: its id is the message's key.
fn schedule(id: &str, body: &str, epoch_s: i64, topic: &str) -> Message {
    let epoch = epoch_s.to_string();
    let message = request(
        body,
        &[
            ("scheduler-epoch", &epoch),
            ("scheduler-target-topic", topic),
            ("customer-header", "dummy"),
        ],
    );
    keyed(message, id)
}

fn keyed(message: Message, key: &str) -> Message {
    Message { key: Some(Bytes::copy_from_slice(key.as_bytes())), ..message }
}

fn target_key(mut message: Message, key: Value) -> Message {
    message.headers.push("scheduler-target-key", key);
    message
}

fn deleted(message: Message) -> Message {
    Message { body: Bytes::new(), has_body: false, ..message }
}

/// A whole second, later than a busy machine needs to take a few requests.
fn soon() -> i64 {
    now_ms() / 1_000 + 10
}

const HOUR: i64 = 3_600;

/// `TestDefaultKafkaRunner`: the target's key, also where it is nil or no text; and the headers of
/// the scheduler on a delivered message.
pub(super) async fn default_kafka_runner(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.etf1").await;
    let (epoch, before) = (soon(), now_ms() / 1_000);
    let make = |id: &str| schedule(id, "some value", epoch, "out.etf1");
    let binary = Bytes::from_static(b"\xff\0\xfe");
    let messages = [
        target_key(make("schedule-key"), Value::Text("target-key".to_owned())),
        target_key(make("schedule-key2"), Value::Null),
        make("schedule-key3"),
        target_key(make("schedule-key4"), Value::Bytes(binary.clone())),
    ];
    fixture.send("schedules", messages).await;
    for (id, key) in [
        ("schedule-key", Some(Bytes::from("target-key"))),
        ("schedule-key2", None),
        ("schedule-key3", None),
        ("schedule-key4", Some(binary)),
    ] {
        let message = target.job(id).await;
        assert_eq!((message.key.clone(), message.body.as_ref()), (key, &b"some value"[..]), "{id}");
        let mut headers = texts(&message);
        headers.retain(|name, _| !name.starts_with("delayed-"));
        let stamp: i64 = headers.remove("scheduler-timestamp").unwrap().parse().unwrap();
        assert!((before..=epoch).contains(&stamp), "{id}: {stamp}");
        let expected =
            [("customer-header", "dummy"), ("scheduler-key", id), ("scheduler-topic", "schedules")];
        assert_eq!(
            headers,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            "{id}"
        );
        assert!(target.first_ms(id).unwrap() >= epoch * 1_000, "{id} came early");
    }
}

/// `TestDefaultKafkaRunner_issue30`, `_issue31`, `TestScheduler_outdated_schedule`: without grace
/// the scheduler drops what is overdue. Dwell delivers it, unless it is told to drop what is later
/// than a grace.
pub(super) async fn outdated_schedules(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.etf1-late").await;
    let second_ago = |id: &str| schedule(id, "some value", now_ms() / 1_000 - 1, "out.etf1-late");
    let dropped = second_ago("outdated")
        .with_header("delay-late", "drop")
        .with_header("delay-max-late", "500ms");
    fixture.send("schedules", [dropped, second_ago("within-grace")]).await;
    target.job("within-grace").await;
    fixture.until_due("outdated", None).await;
    assert_eq!(target.count("outdated"), 0);
}

/// `TestScheduler_update_epoch`, `TestScheduler_live_schedules_not_today`: another message of the
/// key is the schedule from then on.
pub(super) async fn update_epoch(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.etf1-update").await;
    let (epoch, later) = (soon(), now_ms() / 1_000 + HOUR);
    let make = |id: &str, body: &str, at: i64| schedule(id, body, at, "out.etf1-update");
    let messages = [
        make("earlier", "old", later),
        make("later", "old", epoch),
        make("earlier", "new", epoch),
        make("later", "new", later),
        make("update-mark", "", epoch + 1),
    ];
    fixture.send("schedules", messages).await;
    assert_eq!(target.job("earlier").await.body, "new");
    target.job("update-mark").await;
    assert_eq!((target.count("earlier"), target.count("later")), (1, 0));
    fixture.until_due("later", Some(later * 1_000)).await;
}

/// `TestScheduler_deleted_schedule`, `TestStore_delete`: a message without a body deletes, whatever
/// its epoch, or without any header.
pub(super) async fn deleted_schedules(fixture: &Fixture) {
    let epoch = now_ms() / 1_000 + HOUR;
    let ids = ["delete-1", "delete-2", "delete-3", "delete-4"];
    fixture.send("schedules", ids.map(|id| schedule(id, "value", epoch, "out.etf1"))).await;
    for id in ids {
        fixture.until_due(id, Some(epoch * 1_000)).await;
    }
    let at = |id: &str, epoch_s: i64| deleted(schedule(id, "", epoch_s, "out.etf1"));
    let deletes = [
        at("delete-1", epoch - 48 * HOUR),
        at("delete-2", epoch + 48 * HOUR),
        at("delete-3", 0),
        deleted(keyed(Message::default(), "delete-4")),
        at("never-there", epoch),
    ];
    fixture.send("schedules", deletes).await;
    for id in ids {
        fixture.until_due(id, None).await;
    }
}

/// `TestStore_invalid`, `TestScheduler_ignore_invalid_schedules`: a blank id, an epoch below zero.
pub(super) async fn invalid_schedules(fixture: &Fixture) {
    let make = |id: &str, epoch_s: i64| schedule(id, "etf1-invalid", epoch_s, "out.etf1");
    let (past, future) = (now_ms() / 1_000 - 10, now_ms() / 1_000 + 10);
    fixture
        .send("schedules", [make("", past), make(" ", future), make("  ", 0), make("1", -1)])
        .await;
    assert_eq!(
        fixture.rejected("etf1-invalid", 4).await,
        ["bad_id", "bad_id", "bad_id", "bad_delay"]
    );
    assert!(fixture.store.reader.find(&JobId::new("1").unwrap()).await.unwrap().is_none());
}

/// `TestScheduleMessage_reschedule_check_headers`, `TestIsSchedulerMessage`, `TestScheduleRetry`: a
/// delivered message is scheduled again, by the client library, which leaves out headers that begin
/// with `scheduler-`, or with all its headers.
pub(super) async fn scheduled_again_with_what_was_delivered(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.etf1-again").await;
    fixture
        .send("schedules", [schedule("first", "value", now_ms() / 1_000, "out.etf1-again")])
        .await;
    let came = target.job("first").await;
    assert!(text(&came, "scheduler-key").is_some(), "IsSchedulerMessage");
    let again = |id: &str, keeps: fn(&str) -> bool| {
        let epoch = (now_ms() / 1_000).to_string();
        let kept = came.headers.iter().filter(|header| keeps(&header.name));
        let mut message = keyed(
            request(
                "value",
                &[("scheduler-epoch", &epoch), ("scheduler-target-topic", "out.etf1-again")],
            ),
            id,
        );
        for header in kept {
            message.headers.push(header.name.clone(), header.value.clone());
        }
        message.with_header("retry-attempt", "1")
    };
    fixture
        .send(
            "schedules",
            [
                again("by-library", |name| !name.starts_with("scheduler-")),
                again("with-all", |_| true),
            ],
        )
        .await;
    for id in ["by-library", "with-all"] {
        let message = target.job(id).await;
        let keys: Vec<_> = message
            .headers
            .iter()
            .filter(|header| header.name == "scheduler-key")
            .map(|header| header.value.as_text())
            .collect();
        assert_eq!(keys, [Some(id)]);
        assert_eq!(
            (text(&message, "retry-attempt"), text(&message, "delayed-attempt")),
            (Some("1".to_owned()), Some("1".to_owned()))
        );
    }
}

/// `TestScheduler_issue8`: many schedules of one id, due now.
pub(super) async fn many_schedules_of_one_id(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.etf1-many").await;
    let epoch = now_ms() / 1_000;
    let many = (0..1_000).map(|_| schedule("many", "value", epoch, "out.etf1-many"));
    fixture
        .send("schedules", many.chain([schedule("many-mark", "value", epoch, "out.etf1-many")]))
        .await;
    target.job("many").await;
    wait_until("what is behind them is delivered", async || {
        (target.count("many-mark") > 0).then_some(())
    })
    .await;
}
