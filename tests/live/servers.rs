//! The private servers: they start, keep their data over a restart, and stop.

use std::time::Duration;

use std::io;
use std::path::Path;

#[cfg(feature = "kafka")]
use dwell_connectors::{BrokerConfig, Declared, Destination, Role, kafka};
use dwell_testkit::servers::{AppendFsync, NatsOptions, NatsServer, RedisOptions, RedisServer};
#[cfg(feature = "kafka")]
use dwell_testkit::servers::{KafkaOptions, KafkaServer};
#[cfg(feature = "amqp")]
use dwell_testkit::servers::{RabbitOptions, RabbitServer};
use redis::AsyncCommands;

use crate::support::{namespace, redis_link, wait_until};

#[tokio::test]
async fn redis_with_fsync_always_keeps_every_answered_write_over_a_kill() {
    let mut server = RedisServer::start(RedisOptions {
        appendonly: Some(AppendFsync::Always),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let key = namespace("kept");
    let (port, pid) = (server.port(), server.pid());
    redis_link(server.url()).await.set::<_, _, ()>(&key, "value").await.unwrap();

    server.kill().unwrap();
    assert_eq!(server.pid(), None);
    server.restart().await.unwrap();

    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(redis_link(server.url()).await.get::<_, String>(&key).await.unwrap(), "value");
}

#[tokio::test]
async fn redis_without_a_file_forgets_over_a_stop() {
    let mut server = RedisServer::start(RedisOptions::default()).await.unwrap();
    redis_link(server.url()).await.set::<_, _, ()>("key", "value").await.unwrap();
    server.stop().await.unwrap();
    server.restart().await.unwrap();
    assert_eq!(redis_link(server.url()).await.get::<_, Option<String>>("key").await.unwrap(), None);
}

#[tokio::test]
async fn redis_takes_its_limits_and_its_password() {
    let options = RedisOptions {
        maxmemory: Some("64mb".to_owned()),
        maxmemory_policy: Some("allkeys-lru".to_owned()),
        password: Some("open-sesame".to_owned()),
        more: vec![("databases".to_owned(), "2".to_owned())],
        ..RedisOptions::default()
    };
    let server = RedisServer::start(options).await.unwrap();
    let mut link = redis_link(server.url()).await;
    for (setting, value) in [
        ("maxmemory", "67108864"),
        ("maxmemory-policy", "allkeys-lru"),
        ("databases", "2"),
        ("appendonly", "no"),
    ] {
        let got: (String, String) =
            redis::cmd("CONFIG").arg("GET").arg(setting).query_async(&mut link).await.unwrap();
        assert_eq!(got.1, value, "{setting}");
    }
}

#[tokio::test]
async fn redis_replica_has_what_its_master_has() {
    let master = RedisServer::start(RedisOptions::default()).await.unwrap();
    redis_link(master.url()).await.set::<_, _, ()>("before", "1").await.unwrap();
    let replica = RedisServer::start(RedisOptions {
        replica_of: Some(master.port()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    assert_eq!(redis_link(replica.url()).await.get::<_, String>("before").await.unwrap(), "1");
    let mut link = redis_link(master.url()).await;
    link.set::<_, _, ()>("after", "2").await.unwrap();
    let replicas: i64 = redis::cmd("WAIT").arg(1).arg(5000).query_async(&mut link).await.unwrap();
    assert_eq!(replicas, 1);
}

#[tokio::test]
async fn frozen_redis_answers_nothing_until_it_thaws() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let mut link = redis_link(server.url()).await;
    server.freeze().unwrap();
    let answer = tokio::time::timeout(
        Duration::from_millis(500),
        redis::cmd("PING").query_async::<String>(&mut link),
    )
    .await;
    assert!(answer.is_err(), "{answer:?}");
    server.thaw().unwrap();
    let pong = wait_until("a frozen Redis answers after it thawed", async || {
        redis::cmd("PING").query_async::<String>(&mut link).await.ok()
    })
    .await;
    assert_eq!(pong, "PONG");
}

#[tokio::test]
async fn nats_comes_back_on_its_port_after_a_kill_and_after_a_stop() {
    let mut server = NatsServer::start(NatsOptions::default()).await.unwrap();
    let (url, folder) = (server.url(), server.dir().to_owned());
    server.kill().unwrap();
    server.restart().await.unwrap();
    server.stop().await.unwrap();
    assert_eq!(server.pid(), None);
    server.restart().await.unwrap();
    assert_eq!(server.url(), url);
    drop(server);
    assert!(!folder.exists());
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn kafka_keeps_its_topics_over_a_kill_and_a_stop() {
    let mut server = KafkaServer::start(KafkaOptions::default()).await.unwrap();
    let (bootstrap, folder) = (server.bootstrap(), server.dir().to_owned());
    let broker = BrokerConfig::Kafka(kafka::Config::at(bootstrap.clone()));
    let topic = Destination::new("kept");
    assert_eq!(broker.declare(&topic, Role::Ingest).await.unwrap(), Declared::Created);
    server.kill().unwrap();
    server.restart().await.unwrap();
    assert_eq!(broker.declare(&topic, Role::Ingest).await.unwrap(), Declared::Existed);
    server.stop().await.unwrap();
    assert_eq!(server.pid(), None);
    server.restart().await.unwrap();
    assert_eq!(broker.declare(&topic, Role::Ingest).await.unwrap(), Declared::Existed);
    assert_eq!(server.bootstrap(), bootstrap);
    drop(server);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_folder() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let (pid, port, folder) = (server.pid().unwrap(), server.port(), server.dir().to_owned());
    drop(server);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!folder.exists());
    let refused = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn servers_started_at_once_get_ports_of_their_own() {
    let starts = (0..8).map(|_| NatsServer::start(NatsOptions::default()));
    let servers = futures_util::future::try_join_all(starts).await.unwrap();
    let ports: std::collections::BTreeSet<u16> =
        servers.iter().map(|server| server.port()).collect();
    assert_eq!(ports.len(), servers.len());
}

#[tokio::test]
async fn a_server_that_refuses_its_settings_says_why() {
    let error = NatsServer::start(NatsOptions {
        config: "no_such_setting: {".to_owned(),
        ..NatsOptions::default()
    })
    .await
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("nats-server")
            && text.contains("ended before it was ready")
            && text.contains("Parse error"),
        "{text}"
    );
    let more = vec![("no-such-setting".to_owned(), "1".to_owned())];
    let text = RedisServer::start(RedisOptions { more, ..RedisOptions::default() })
        .await
        .unwrap_err()
        .to_string();
    assert!(text.contains("no-such-setting"), "{text}");
}

#[cfg(feature = "amqp")]
#[tokio::test]
async fn rabbitmq_keeps_its_queues_over_a_stop() {
    use dwell_connectors::{BrokerConfig, Declared, Destination, Role, amqp};

    let mut server =
        RabbitServer::start(RabbitOptions { config: "max_message_size = 100000".to_owned() })
            .await
            .unwrap();
    let (port, pid, broker) =
        (server.port(), server.pid(), BrokerConfig::Amqp(amqp::Config::at(server.url())));
    let queue = Destination::new("kept");
    assert_eq!(broker.declare(&queue, Role::Ingest).await.unwrap(), Declared::Created);

    server.stop().await.unwrap();
    assert_eq!(server.pid(), None);
    assert!(broker.declare(&queue, Role::Ingest).await.is_err());
    server.restart().await.unwrap();

    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(broker.declare(&queue, Role::Ingest).await.unwrap(), Declared::Existed);
}
