//! The queues that get a delayed message, the order, and the copies.

use dwell_connectors::Value;

use super::fixture::{Fixture, bodies, delayed, with};
use crate::routes::environment::text;
use crate::support::wait_until;

/// `routing_topic`, `routing_direct`, `routing_fanout`.
pub(super) async fn routes_as_the_type_says(fixture: &Fixture) {
    let cases: [(&str, &[&str], usize); 3] = [
        ("topic", &["a.b.c", "a.z.c", "a.j.k", "b.b.c"], 3),
        ("direct", &["mykey", "noroute", "mykey"], 2),
        ("fanout", &["mykey", "noroute", "mykey"], 3),
    ];
    for (exchange, keys, _) in cases {
        for key in keys {
            fixture.send(exchange, key, [delayed(Value::I32(0))]).await;
        }
    }
    for (exchange, _, count) in cases {
        assert_eq!(bodies(&fixture.read(&format!("q.{exchange}"), count).await), vec!["0"; count]);
    }
}

/// `e2e_nodelay`, `e2e_delay`: a message from one delayed exchange passes through another at once.
pub(super) async fn one_exchange_leads_to_another(fixture: &Fixture) {
    fixture.send("first", "", [0].map(|ms| delayed(Value::I32(ms)))).await;
    assert_eq!(bodies(&fixture.read("q.second", 1).await), ["0"]);
    fixture.send("first", "", [1500, 300, 900, 600].map(|ms| delayed(Value::I32(ms)))).await;
    let seen = fixture.read("q.second", 4).await;
    assert_eq!(bodies(&seen), ["300", "600", "900", "1500"]);
    assert!(
        seen.iter().all(|message| text(message, "delayed-round").as_deref() == Some("1")),
        "{seen:?}"
    );
}

/// `delay_order`, `string_delay_header`, `delayed_messages_count`, and a float as JavaScript sends
/// it.
pub(super) async fn the_order_is_that_of_the_delays(fixture: &Fixture) {
    // At once: each delay begins where its message is taken.
    let [first, second, third] = [6500, 5300, 6100].map(|ms| delayed(Value::I32(ms)));
    fixture
        .send(
            "order",
            "",
            [first, second, third, delayed(Value::from("5700")), delayed(Value::F64(4900.7))],
        )
        .await;
    wait_until("5 that wait", async || (fixture.scheduled().await == 5).then_some(())).await;
    assert_eq!(
        bodies(&fixture.read("q.order", 5).await),
        ["4900.7", "5300", "5700", "6100", "6500"]
    );
    assert_eq!(fixture.scheduled().await, 0);
}

pub(super) async fn any_routing_key_is_taken_as_it_is(fixture: &Fixture) {
    let keys = ["orders/eu/close", "a.*.b", "#", "x.#", "tab\there", "/", "**", ""];
    for key in keys {
        fixture.send("keys", key, [delayed(Value::I32(1))]).await;
    }
    let mut seen: Vec<String> = fixture
        .read("q.keys", keys.len())
        .await
        .into_iter()
        .map(|message| message.destination.address)
        .collect();
    let mut sent = keys.map(str::to_owned);
    seen.sort();
    sent.sort();
    assert_eq!(seen, sent);
}

/// Three with the same `message_id`, body and delay: one by one, so that each meets the one before,
/// alive or over; and at once.
pub(super) async fn equal_messages_are_each_delivered(fixture: &Fixture) {
    let equal = |ms| {
        with(delayed(Value::I32(ms)), |properties| properties.message_id = Some("same".to_owned()))
    };
    for _ in 0..2 {
        fixture.send("order", "", [equal(1)]).await;
        assert_eq!(bodies(&fixture.read("q.order", 1).await), ["1"]);
    }
    fixture.send("order", "", [equal(800), equal(800), equal(800)]).await;
    let seen = fixture.read("q.order", 3).await;
    let ids: std::collections::BTreeSet<_> =
        seen.iter().map(|message| text(message, "delayed-id")).collect();
    assert_eq!(ids.len(), 3);
    assert!(
        seen.iter()
            .all(|message| message.properties.as_ref().unwrap().message_id.as_deref()
                == Some("same")),
        "{seen:?}"
    );
}

/// RabbitMQ takes `BCC` off before anybody reads it, so its keys are bound where it is seen: at the
/// exchange that is published to.
pub(super) async fn hidden_copies_stay_hidden(fixture: &Fixture) {
    let mut message = delayed(Value::I32(300));
    message.headers.push("BCC", Value::List(vec!["audit".into()]));
    fixture.send("hidden", "k", [message, delayed(Value::I32(600))]).await;
    assert_eq!(bodies(&fixture.read("q.hidden", 2).await), ["300", "600"]);
    let [copy] = fixture.read("q.audit", 1).await.try_into().unwrap();
    assert_eq!((&copy.body[..], copy.headers.get("BCC")), (&b"300"[..], None));
}
