//! Clients of each broker's own ecosystem, other than the libraries of Dwell: tests/clients.

use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_testkit::servers::BrokerKind;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::environment::Environment;
use crate::support::python_libraries;

/// Runs a client, gives it lines, and returns the lines that it prints.
pub(super) async fn client(kind: BrokerKind, args: &[&str], lines: &[Value]) -> Vec<Value> {
    let program =
        format!("{}/tests/clients/{}_client.py", env!("CARGO_MANIFEST_DIR"), kind.as_str());
    let mut child = Command::new("python3")
        .arg(&program)
        .args(args)
        .env("PYTHONPATH", python_libraries())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for line in lines {
        stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", output.status);
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A value among pairs.
fn header<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    line["headers"].as_array()?.iter().find(|pair| pair[0] == name).map(|pair| &pair[1])
}

pub(super) async fn other_libraries_speak_to_it(env: &Environment) {
    join_all(BrokerKind::ALL.map(|kind| async move {
        let target = format!("out.client-{}", kind.as_str());
        env.declare(kind, &target).await;
        let address = env.address(kind);
        let bodies: Vec<String> = (0..20).map(|number| STANDARD.encode([0, 255, number])).collect();
        let requests: Vec<Value> = bodies
            .iter()
            .map(|body| {
                // As producers of RabbitMQ's plugin do it, with a number; text elsewhere.
                let delay = if kind == BrokerKind::Amqp { json!(["x-delay", 700]) } else { json!(["delay-for", "700ms"]) };
                let headers = json!([delay, ["delay-target", target], ["tag", "of a client"]]);
                json!({"to": "delay.in", "headers": headers, "body_base64": body, "key_base64": STANDARD.encode("key")})
            })
            .collect();
        client(kind, &["send", &address], &requests).await;
        let seen = client(kind, &["read", &address, &target, "20", "30"], &[]).await;
        let mut came: Vec<&str> = seen.iter().map(|line| line["body_base64"].as_str().unwrap()).collect();
        came.sort_unstable();
        let mut sent: Vec<&str> = bodies.iter().map(String::as_str).collect();
        sent.sort_unstable();
        assert_eq!(came, sent, "{}", kind.as_str());
        for line in &seen {
            assert_eq!(header(line, "tag"), Some(&json!("of a client")), "{line}");
            let attempt = if kind == BrokerKind::Amqp { json!(1) } else { json!("1") };
            assert_eq!(header(line, "delayed-attempt"), Some(&attempt), "{line}");
            assert!(header(line, "delayed-id").is_some() && header(line, "x-delay").is_none(), "{line}");
            if kind == BrokerKind::Kafka {
                assert_eq!(line["key_base64"], STANDARD.encode("key"), "{line}");
            }
        }
    }))
    .await;
}
