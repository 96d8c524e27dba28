//! A missing exchange, and a restart of RabbitMQ.

use dwell_connectors::Value;

use super::fixture::{Fixture, bodies, delayed};
use crate::routes::environment::program;

/// Not there: 69, as any destination that is missing. Not in `allow`: 78. Before a request is
/// taken.
pub(super) async fn an_exchange_that_takes_no_messages_is_told(fixture: &Fixture) {
    let file = fixture.dwell.dir().join("other.toml");
    for (exchange, code, said) in [
        ("order.due", 0, "\"ok\":true"),
        (
            "missing.due",
            69,
            "there is no exchange `missing.due`, which ingest.order.exchange names",
        ),
        ("other.due", 78, "no pattern of brokers.main.allow matches the exchange `other.due`"),
    ] {
        let settings = fixture
            .settings
            .replace("exchange = \"order.due\"", &format!("exchange = \"{exchange}\""));
        std::fs::write(
            &file,
            settings.replace("\"order.due/**\"", "\"order.due/**\", \"missing.due/**\""),
        )
        .unwrap();
        let commands: &[&[&str]] =
            if code == 0 { &[&["check"]] } else { &[&["check"], &["run", "--wait", "0s"]] };
        for command in commands {
            let mut dwell = tokio::process::Command::new(program());
            dwell.args(*command).args([
                "--set",
                "probes.listen=127.0.0.1:0",
                "--set",
                "http.listen=127.0.0.1:0",
                "-o",
                "json",
                "-c",
            ]);
            let output = dwell.arg(&file).kill_on_drop(true).output().await.unwrap();
            let all = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert_eq!(output.status.code(), Some(code), "{command:?}: {all}");
            assert!(all.contains(said), "{command:?}: {all}");
        }
    }
}

/// `node_restart_before_delay_expires`, `node_restart_after_delay_expires`.
pub(super) async fn a_restart_of_the_broker_loses_nothing(fixture: &mut Fixture) {
    fixture.send("order", "", [1000, 25_000].map(|ms| delayed(Value::I32(ms)))).await;
    fixture.until_one_is_ready("q.order").await;
    fixture.rabbit.stop().await.unwrap();
    fixture.rabbit.restart().await.unwrap();
    assert_eq!(bodies(&fixture.read("q.order", 2).await), ["1000", "25000"]);
}
