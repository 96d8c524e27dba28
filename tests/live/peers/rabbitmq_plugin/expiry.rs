//! Requests with a time to live.

use dwell_connectors::Value;

use super::fixture::{Fixture, bodies, delayed, with};
use crate::routes::environment::{program, text};

/// `expiration` counts from the delivery, however long the request waits to be read; and a queue of
/// its own keeps it.
pub(super) async fn the_time_to_live_begins_after_the_delay(fixture: &mut Fixture) {
    fixture.dwell.stop().await.unwrap();
    let message =
        with(delayed(Value::I32(700)), |properties| properties.expiration = Some("300".to_owned()));
    fixture.send("order", "", [message.with_header("tag", "kept")]).await;
    fixture.until_one_is_ready("delay.order.expired").await;
    let reader = fixture.reader("q.order").await;
    fixture.restart_dwell().await;
    let [seen] = reader.take(1).await.try_into().unwrap();
    assert_eq!((&seen.body[..], text(&seen, "tag").as_deref()), (&b"700"[..], Some("kept")));
    assert_eq!(seen.properties.as_ref().unwrap().expiration.as_deref(), Some("300"));
    assert!(seen.headers.iter().all(|header| !header.name.starts_with("x-")), "{:?}", seen.headers);
}

/// A message that was stored, given back and then expired bears no mark of its first delivery:
/// Dwell sees the same message once more.
pub(super) async fn a_copy_that_expired_is_known(fixture: &mut Fixture) {
    let request = with(delayed(Value::I32(1)).with_header("delay-id", "copy"), |properties| {
        (properties.message_id, properties.expiration) =
            (Some("copy".to_owned()), Some("2000".to_owned()));
    });
    let reader = fixture.reader("q.order").await;
    fixture.send("order", "", [request.clone()]).await;
    assert_eq!(bodies(&reader.take(1).await), ["1"]);
    fixture.dwell.stop().await.unwrap();
    fixture.send("order", "", [request]).await;
    fixture.until_one_is_ready("delay.order.expired").await;
    fixture.send("order", "", [delayed(Value::I32(50))]).await;
    fixture.restart_dwell().await;
    assert_eq!(bodies(&fixture.read("q.order", 1).await), ["50"]);
}

/// Not there: 69, as a topic that is missing. With `declare` it is made.
pub(super) async fn an_expired_queue_that_is_missing_is_told(fixture: &Fixture) {
    let file = fixture.dwell.dir().join("expired.toml");
    let of_hidden = "[ingest.hidden]\nbroker = \"main\"\n";
    for (more, command, code, said) in [
        (
            "expired_queue = \"gone\"\n",
            "check",
            69,
            "there is no queue `gone`, which `expired_queue` names",
        ),
        (
            "expired_queue = \"gone\"\n",
            "run",
            69,
            "there is no queue `gone`, which `expired_queue` names",
        ),
        (
            "expired_queue = \"gone\"\ndeclare = true\n",
            "check",
            0,
            "`delay.hidden` or `gone` would be created (declare)",
        ),
        ("expired_queue = \"delay.audit\"\n", "check", 78, "ingest.audit reads `delay.audit` too"),
    ] {
        std::fs::write(&file, fixture.settings.replace(of_hidden, &format!("{of_hidden}{more}")))
            .unwrap();
        let mut dwell = tokio::process::Command::new(program());
        dwell
            .args([
                command,
                "--set",
                "probes.listen=127.0.0.1:0",
                "--set",
                "http.listen=127.0.0.1:0",
                "-o",
                "json",
                "-c",
            ])
            .arg(&file);
        let wait: &[&str] = if command == "run" { &["--wait", "0s"] } else { &[] };
        let output = dwell.args(wait).kill_on_drop(true).output().await.unwrap();
        let all = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(code), "{command} {more}: {all}");
        assert!(all.contains(said), "{command} {more}: {all}");
    }
}
