//! Streams that lose what was confirmed to its producer.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use dwell_connectors::{Caution, CautionKind};

use crate::server::NatsServer;
use crate::{at, context, options};

#[tokio::test]
async fn a_stream_that_loses_requests_by_its_settings_is_told() {
    let server = NatsServer::start("");
    let broker = at(server.url());
    let context = context(&server).await;
    let least = || Config { name: "S".into(), subjects: vec!["s.a".into()], ..Config::default() };
    let new = DiscardPolicy::New;
    let cases: [(Config, &[&str]); 9] = [
        (Config { max_messages_per_subject: 1, ..least() }, &["keeps 1 messages a subject"]),
        (Config { max_messages: 10, ..least() }, &["beyond max_msgs 10"]),
        (Config { max_bytes: 1 << 20, ..least() }, &["beyond max_bytes 1048576"]),
        (Config { max_messages: 10, max_bytes: 1 << 20, discard: new, ..least() }, &[]),
        (Config { max_age: Duration::from_secs(3600), ..least() }, &["max_age, 1h"]),
        (Config { retention: RetentionPolicy::Interest, ..least() }, &["interest retention"]),
        (Config { storage: StorageType::Memory, ..least() }, &["is in memory"]),
        (Config { no_ack: true, ..least() }, &["no_ack"]),
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
