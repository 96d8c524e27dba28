//! Streams that lose what was confirmed to its producer.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PriorityPolicy, pull};
use async_nats::jetstream::stream::{
    Config, ConsumerLimits, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType,
};
use dwell_connectors::{Caution, CautionKind, ErrorKind};

use crate::server::NatsServer;
use crate::{at, context, options};

#[tokio::test]
async fn a_stream_that_loses_requests_by_its_settings_is_told() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    let context = context(&server).await;
    let least = || Config { name: "S".into(), subjects: vec!["s.a".into()], ..Config::default() };
    let new = DiscardPolicy::New;
    let limits =
        ConsumerLimits { inactive_threshold: Duration::from_secs(3600), max_ack_pending: 0 };
    let cases: [(Config, &[&str]); 13] = [
        (Config { max_messages_per_subject: 1, ..least() }, &["keeps 1 messages a subject"]),
        (Config { max_messages: 10, ..least() }, &["beyond max_msgs 10"]),
        (Config { max_bytes: 1 << 20, ..least() }, &["beyond max_bytes 1048576"]),
        (Config { max_messages: 10, max_bytes: 1 << 20, discard: new, ..least() }, &[]),
        (Config { max_age: Duration::from_secs(3600), ..least() }, &["max_age, 1h"]),
        (Config { retention: RetentionPolicy::Interest, ..least() }, &["interest retention"]),
        (Config { storage: StorageType::Memory, ..least() }, &["is in memory"]),
        (Config { consumer_limits: Some(limits), ..least() }, &["inactive_threshold"]),
        (Config { no_ack: true, ..least() }, &["no_ack"]),
        (Config { persist_mode: Some(PersistenceMode::Async), ..least() }, &["persist_mode async"]),
        (Config { allow_message_ttl: true, ..least() }, &["allow_msg_ttl"]),
        (Config { allow_rollup: true, ..least() }, &["allow_rollup_hdrs"]),
        (Config { retention: RetentionPolicy::WorkQueue, ..least() }, &[]),
    ];
    for (at, (mut config, expected)) in cases.into_iter().enumerate() {
        // No stream is deleted: the server removes the folder of the last one later, also from
        // below a new stream.
        (config.name, config.subjects) = (format!("S{at}"), vec![format!("s.{at}")]);
        let shown = format!("{config:?}");
        context.create_stream(config).await.unwrap();
        let cautions = broker.cautions(&options(&format!("s.{at}"))).await.unwrap();
        let losses: Vec<&Caution> =
            cautions.iter().filter(|caution| caution.kind == CautionKind::Loses).collect();
        assert_eq!(losses.len(), expected.len(), "{shown}: {losses:?}");
        for (loss, expected) in losses.iter().zip(expected) {
            assert!(loss.message.contains(expected) && !loss.hint.is_empty(), "{loss:?}");
        }
    }
    // Once the reader exists, interest keeps the messages that it has not read.
    context
        .create_stream(Config { retention: RetentionPolicy::Interest, ..least() })
        .await
        .unwrap();
    broker.source(options("s.a")).await.unwrap().close().await.unwrap();
    assert_eq!(broker.cautions(&options("s.a")).await.unwrap(), []);
}

#[tokio::test]
async fn a_consumer_that_loses_its_place_is_put_right_or_told() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    let stream = Config { name: "S".into(), subjects: vec!["s.a".into()], ..Config::default() };
    let stream = context(&server).await.create_stream(stream).await.unwrap();
    let durable = || pull::Config {
        durable_name: Some("readers".into()),
        ack_policy: AckPolicy::Explicit,
        filter_subject: "s.a".into(),
        ..pull::Config::default()
    };
    let hour = Duration::from_secs(3600);
    stream.create_consumer(pull::Config { inactive_threshold: hour, ..durable() }).await.unwrap();
    // The start mends it: there is nothing to tell.
    assert_eq!(broker.cautions(&options("s.a")).await.unwrap(), []);
    broker.source(options("s.a")).await.unwrap().close().await.unwrap();
    let config = stream.consumer_info("readers").await.unwrap().config;
    assert_eq!(config.inactive_threshold, Duration::ZERO);

    stream.delete_consumer("readers").await.unwrap();
    stream.create_consumer(pull::Config { memory_storage: true, ..durable() }).await.unwrap();
    let cautions = broker.cautions(&options("s.a")).await.unwrap();
    assert!(
        matches!(&cautions[..], [Caution { kind: CautionKind::Loses, message, hint }]
            if message.contains("`readers` of `S` is in memory") && !hint.is_empty()),
        "{cautions:?}"
    );
}

#[tokio::test]
async fn a_consumer_that_delivers_nothing_is_refused_or_told() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    let stream = Config { name: "S".into(), subjects: vec!["s.a".into()], ..Config::default() };
    let stream = context(&server).await.create_stream(stream).await.unwrap();
    let durable = || pull::Config {
        durable_name: Some("readers".into()),
        ack_policy: AckPolicy::Explicit,
        filter_subject: "s.a".into(),
        ..pull::Config::default()
    };
    for priority_policy in
        [PriorityPolicy::Overflow, PriorityPolicy::PinnedClient, PriorityPolicy::Prioritized]
    {
        let priority_groups = vec!["first".to_owned()];
        stream
            .create_consumer(pull::Config { priority_policy, priority_groups, ..durable() })
            .await
            .unwrap();
        for error in [
            broker.inspect(&options("s.a")).await.err().unwrap(),
            broker.source(options("s.a")).await.err().unwrap(),
        ] {
            assert_eq!(error.kind, ErrorKind::Config, "{error}");
            assert!(error.message.contains("priority_groups (first)"), "{error}");
            assert!(!error.hint.is_empty(), "{error}");
        }
        stream.delete_consumer("readers").await.unwrap();
    }

    let until = async_nats::datetime::from_nanos(4_102_444_800_000_000_000).unwrap();
    stream.create_consumer(pull::Config { pause_until: Some(until), ..durable() }).await.unwrap();
    let cautions = broker.cautions(&options("s.a")).await.unwrap();
    assert!(
        matches!(&cautions[..], [Caution { kind: CautionKind::Paused, message, hint }]
            if message.contains("`readers` of `S` is paused until 2100-01-01T00:00:00Z")
                && hint == "nats consumer resume S readers"),
        "{cautions:?}"
    );
    stream.resume_consumer("readers").await.unwrap();
    assert_eq!(broker.cautions(&options("s.a")).await.unwrap(), []);
}
