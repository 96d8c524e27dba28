//! Cancels that race with the due time, where each inbound message is delivered twice.

use std::time::Duration;

use dwell::clock;
use dwell::readiness::Readiness;
use dwell_connectors::Message;
use dwell_connectors::memory::Fault;

use super::environment::{ALL, Environment, action, asking};
use crate::support::verdicts::Verdicts;

const JOBS: usize = 1500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_delivered_twice_has_one_verdict_and_it_is_true() {
    let mut env = Environment::idle(Default::default(), &[]).await;
    env.broker.lose_first_acks("delay.in");
    // Long enough on its way for a cancel to find it there.
    env.broker.fail("orders.a", Fault::Delay(Duration::from_millis(30)));
    env.run(ALL).await;
    let other = dwell::runtime::Runtime::start(
        &env.settings,
        ALL,
        &env.metrics,
        &Default::default(),
        &Readiness::new(["main"]),
    )
    .await
    .unwrap();

    let mut book = Verdicts::default();
    let first_ms = clock::wall_ms() + 1500;
    for number in 0..JOBS {
        let due_ms = first_ms + i64::try_from(number).unwrap();
        book.scheduled(format!("x-{number}"));
        let message = Message::new("x")
            .with_header("delay-id", format!("x-{number}"))
            .with_header("delay-target", "orders.a");
        env.send(
            message
                .with_header("delay-until", due_ms.to_string())
                .with_header("delay-retry", "none"),
        );
    }
    let mut asks: Vec<(i64, usize)> = (0..JOBS)
        .map(|number| {
            // Some long before, some long after: on a busy machine those between may all come too
            // late.
            let ahead_ms = match number % 10 {
                0 => 1000,
                1 => -200,
                2 => rand::random_range(0..1000),
                _ => rand::random_range(0..50),
            };
            (first_ms + i64::try_from(number).unwrap() - ahead_ms, number)
        })
        .collect();
    asks.sort_unstable();
    for (ask_ms, number) in asks {
        clock::sleep(Duration::from_millis((ask_ms - clock::wall_ms()).try_into().unwrap_or(0)))
            .await;
        env.send(asking(action("cancel", &format!("x-{number}"))));
    }
    env.taken().await;
    assert_eq!(env.until_empty().await, 0);
    assert!(env.stop(Duration::from_secs(10)).await);
    assert!(other.stop(Duration::from_secs(10)).await);

    let replies = env.broker.published("replies");
    assert!(replies.len() >= 2 * JOBS, "each cancel was answered twice: {}", replies.len());
    for reply in replies {
        let reply: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        book.told(reply["id"].as_str().unwrap(), reply["verdict"].as_str().unwrap());
    }
    for arrived in env.broker.published("orders.a") {
        book.arrived(arrived.headers.text("delayed-id").unwrap());
    }
    let tally = book.tally();
    println!("{tally:?}");
    assert_eq!(book.contradictions(), [""; 0]);
    assert_eq!(tally.copies, 0);
    for verdict in ["cancelled", "fired", "in_flight"] {
        assert!(tally.verdicts.contains_key(verdict), "no {verdict} in {tally:?}");
    }
}
