//! `due_header`: requests of a framework that writes the due time into a header of its own.

use dwell_connectors::Message;
use dwell_testkit::servers::BrokerKind;

use super::fixture::{Fixture, now_ms, rfc3339};
use crate::routes::environment::request;

/// As RFC 3339 and as epoch ms, and a text that is no time.
pub(super) async fn times(fixture: &Fixture) {
    let target = fixture.read(BrokerKind::Kafka, "out.eta").await;
    let due = now_ms() / 1000 * 1000 + 3_000;
    for (id, eta) in [("eta-text", rfc3339(due, 2)), ("eta-ms", due.to_string())] {
        fixture
            .send(
                "delay.in",
                [request(id, &[("eta", &eta), ("delay-id", id), ("delay-target", "out.eta")])],
            )
            .await;
    }
    for id in ["eta-text", "eta-ms"] {
        let job = target.job(id).await;
        assert_eq!(job.body, id);
        let at = target.first_ms(id).unwrap();
        assert!(at >= due, "{id} came at {at}, {} ms early", due - at);
        // A consumer may read the header as well. A message that comes back from the target does
        // not wait for the header's time again.
        let back = Message {
            body: job.body.clone(),
            has_body: true,
            headers: job.headers.clone(),
            ..Message::default()
        };
        fixture.send("delay.in", [back]).await;
        assert_eq!(fixture.rejected(id, 1).await, ["loop"]);
    }
    fixture
        .send(
            "delay.in",
            [request("eta-none", &[("eta", "tomorrow"), ("delay-target", "out.eta")])],
        )
        .await;
    assert_eq!(fixture.rejected("eta-none", 1).await, ["bad_delay"]);
}
