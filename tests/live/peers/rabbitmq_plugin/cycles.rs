//! Messages that return to the exchange that delayed them.

use dwell_connectors::Value;

use super::fixture::{Fixture, delayed};
use crate::routes::environment::text;

/// A consumer publishes again what it received, as it was received, and once with a new delay.
pub(super) async fn a_message_may_come_back(fixture: &Fixture) {
    fixture.send("again", "k", [delayed(Value::I32(1))]).await;
    for round in 1..=3 {
        let [received] = fixture.read("q.again", 1).await.try_into().unwrap();
        let mut again = received;
        if round == 3 {
            again.headers.push("x-delay", Value::I32(200));
        }
        fixture.send("again", "k", [again]).await;
    }
    let [last] = fixture.read("q.again", 1).await.try_into().unwrap();
    assert_eq!(
        (text(&last, "delayed-round").as_deref(), text(&last, "delayed-attempt").as_deref()),
        (Some("3"), Some("1")),
        "{last:?}"
    );
}

/// A queue that dead-letters into the delayed exchange, with nobody who reads it: RabbitMQ does not
/// see this cycle.
pub(super) async fn what_goes_round_for_ever_is_found(fixture: &Fixture) {
    fixture.send("round", "k", [delayed(Value::I32(1))]).await;
    let message = fixture.a_rejected_loop("1").await;
    assert_eq!(text(&message, "delayed-round").as_deref(), Some("64"));
    let deaths = message.headers.get("x-death");
    assert!(matches!(deaths, Some(Value::List(deaths)) if deaths.len() == 1), "{deaths:?}");
}

/// Dwell publishes to the exchange that its queue is bound to, and a second queue reads along.
pub(super) async fn an_exchange_that_leads_back_at_once_is_found_at_once(fixture: &Fixture) {
    fixture.send("self", "k", [delayed(Value::I32(7))]).await;
    let message = fixture.a_rejected_loop("7").await;
    assert_eq!(text(&message, "delayed-round"), None);
    // The message that was sent, and the one that Dwell made of it.
    let seen = fixture.read("q.self", 2).await;
    assert_eq!(
        seen.iter().filter(|message| text(message, "delayed-attempt").is_some()).count(),
        1,
        "{seen:?}"
    );
}
