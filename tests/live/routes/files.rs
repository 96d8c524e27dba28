//! The example files of config/: each runs unchanged but for the addresses.

use std::path::Path;

use dwell_connectors::Message;
use dwell_testkit::servers::BrokerKind;

use super::environment::{Environment, request};

/// A file, the brokers where requests go in and jobs come out, and the headers with which a request
/// says so.
type File = (&'static str, BrokerKind, BrokerKind, &'static [(&'static str, &'static str)]);

const FILES: [File; 4] = [
    ("nats", BrokerKind::Nats, BrokerKind::Nats, &[]),
    ("kafka", BrokerKind::Kafka, BrokerKind::Kafka, &[]),
    ("rabbitmq", BrokerKind::Amqp, BrokerKind::Amqp, &[]),
    ("kafka-to-rabbitmq", BrokerKind::Kafka, BrokerKind::Amqp, &[("delay-broker", "rabbitmq")]),
];
const TARGET: &str = "orders.close";

/// The text of config/NAME.toml, with the addresses of these servers.
pub(super) fn settings(name: &str, redis: &str, address: impl Fn(BrokerKind) -> String) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("config/{name}.toml"));
    let mut text = std::fs::read_to_string(&file).unwrap();
    let addresses = [
        ("nats://127.0.0.1:4222", BrokerKind::Nats),
        ("127.0.0.1:9092", BrokerKind::Kafka),
        ("amqp://guest:guest@127.0.0.1:5672", BrokerKind::Amqp),
    ];
    for (standard, kind) in
        addresses.into_iter().filter(|(standard, _)| text.contains(standard)).collect::<Vec<_>>()
    {
        text = text.replace(standard, &address(kind));
    }
    assert!(text.contains("redis://127.0.0.1:6379"), "{}", file.display());
    text.replace("redis://127.0.0.1:6379", redis)
}

pub(super) async fn each_file_runs_as_it_stands(env: &mut Environment) {
    for kind in BrokerKind::ALL {
        env.declare(kind, TARGET).await;
    }
    for (name, from, to, more) in FILES {
        run(env, name).await;
        let headers =
            [&[("delay-for", "200ms"), ("delay-target", TARGET), ("delay-id", name)], more]
                .concat();
        env.send(from, [request(name, &headers)]).await;
        assert_eq!(env.read(to, TARGET).await.job(name).await.body, name);
        // A message that was rejected before was acknowledged: another reader of the group does not
        // reject it again.
        env.send(from, [request(name, &[("delay-for", "no time")])]).await;
        let rejected = env.read(from, "delay.rejected").await.until(1).await;
        assert!(rejected.iter().all(|(_, message)| message.body == name), "{rejected:?}");
    }
    run(env, "envelope").await;
    let body = r#"{"command":"add","topic":"orders.close","id":"enveloped","delay":1,"TTR":60,"body":{"order":17}}"#;
    env.send(BrokerKind::Nats, [Message::new(body)]).await;
    assert_eq!(
        env.read(BrokerKind::Nats, TARGET).await.job("enveloped").await.body,
        r#"{"order":17}"#
    );
}

async fn run(env: &mut Environment, name: &str) {
    let settings = settings(name, &env.redis(), |kind| env.address(kind));
    env.run_instead(&settings).await;
}
