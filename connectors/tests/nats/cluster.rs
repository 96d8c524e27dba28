//! Three servers: elections, and a lost majority. A stream without a leader looks like a missing
//! stream, and must not count as one.

use std::collections::HashMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Config;
use bytes::Bytes;
use dwell_connectors::{BrokerConfig, ErrorKind, Outcome, SourceOptions};

use crate::server::NatsServer;
use crate::{TIMEOUT, at, numbered, options};

/// Three servers with a stream `S` of three replicas on the subject `a`.
async fn cluster() -> Vec<NatsServer> {
    let listeners: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> =
        listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    drop(listeners);
    let routes: Vec<String> =
        ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
    let routes = routes.join(", ");
    let each = ports.iter().enumerate().map(|(number, port)| {
        NatsServer::start(&format!("server_name: n{number}\ncluster {{ name: c, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}\n"))
    });
    let servers: Vec<NatsServer> = each.collect();
    let js = crate::context(&servers[0]).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    let wanted = Config {
        name: "S".into(),
        subjects: vec!["a".into()],
        num_replicas: 3,
        ..Config::default()
    };
    while let Err(error) = js.create_stream(wanted.clone()).await {
        assert!(Instant::now() < deadline, "the cluster does not come up: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    servers
}

fn broker(servers: &[NatsServer]) -> BrokerConfig {
    at(servers.iter().map(NatsServer::url).collect::<Vec<_>>().join(","))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_is_not_a_missing_stream() {
    let servers = cluster().await;
    let broker = broker(&servers);
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(5)).await.unwrap();
    let client = async_nats::connect(servers[1].url()).await.unwrap();
    let total = 6000;
    let publishing = tokio::spawn(async move {
        for (number, publication) in numbered("a", total).into_iter().enumerate() {
            if number % 1500 == 500 {
                client.request("$JS.API.STREAM.LEADER.STEPDOWN.S", Bytes::new()).await.unwrap();
            }
            sink.publish(vec![publication]).await;
            // Spread over several elections.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sink
    });
    let mut all = HashMap::new();
    while all.len() < total as usize {
        let batch = tokio::time::timeout(TIMEOUT, outcomes.recv())
            .await
            .unwrap_or_else(|_| panic!("{} of {total} came", all.len()))
            .unwrap();
        for (token, outcome) in batch {
            assert!(
                !matches!(outcome, Outcome::Unroutable(_) | Outcome::Invalid(_)),
                "{outcome:?}"
            );
            assert!(all.insert(token, outcome).is_none());
        }
    }
    drop(publishing.await.unwrap());
    let confirmed = all.values().filter(|outcome| **outcome == Outcome::Confirmed).count();
    assert!(confirmed > 500, "{confirmed} were confirmed");
    let mut stream = crate::context(&servers[0]).await.get_stream("S").await.unwrap();
    assert!(stream.info().await.unwrap().state.messages >= confirmed as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_opens_again_reads_on_through_elections() {
    let servers = cluster().await;
    // An ack may be lost in an election; then the message comes again.
    let BrokerConfig::Nats(config) = broker(&servers) else { panic!("another broker") };
    let broker = BrokerConfig::Nats(dwell_connectors::nats::Config {
        ack_wait: Some(Duration::from_secs(2)),
        ..config
    });
    crate::publish(&broker, numbered("a", 600)).await;
    let client = async_nats::connect(servers[1].url()).await.unwrap();
    let mut seen = std::collections::HashSet::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut source, mut elections) = (None, 0);
    while seen.len() < 600 {
        assert!(Instant::now() < deadline, "{} of 600 came", seen.len());
        let open = match source.take() {
            Some(open) => open,
            None => match broker.source(SourceOptions { max_batch: 20, ..options("a") }).await {
                Ok(open) => open,
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");
                    continue;
                }
            },
        };
        match tokio::time::timeout(TIMEOUT, open.recv()).await {
            Ok(Ok(batch)) => {
                seen.extend(batch.messages.iter().map(|message| message.body.clone()));
                if open.ack(batch.id).await.is_ok() {
                    source = Some(open);
                }
            }
            Ok(Err(error)) => assert_eq!(error.kind, ErrorKind::Disconnected, "{error}"),
            Err(_) => panic!("{} of 600 came, and no error", seen.len()),
        }
        if seen.len() > (elections + 1) * 150 {
            elections += 1;
            let what = if elections % 2 == 0 {
                "STREAM.LEADER.STEPDOWN.S"
            } else {
                "CONSUMER.LEADER.STEPDOWN.S.readers"
            };
            client.request(format!("$JS.API.{what}"), Bytes::new()).await.unwrap();
        }
    }
    assert!(elections >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_majority_refuses_until_it_is_back() {
    let servers = cluster().await;
    let broker = broker(&servers);
    drop(broker.source(options("a")).await.unwrap());
    let (sink, mut outcomes) = broker.sink(Duration::from_secs(8)).await.unwrap();
    servers[1].kill();
    servers[2].kill();
    sink.publish(numbered("a", 3)).await;
    for outcome in crate::collect(&mut outcomes, 3).await {
        assert!(matches!(outcome, Outcome::Refused(_) | Outcome::Unknown(_)), "{outcome:?}");
    }
    // A server that led everything still acts as leader for ten seconds without its followers
    // (`lostQuorumInterval`).
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        match broker.source(options("a")).await {
            Ok(open) => drop(open),
            Err(error) => break error,
        }
        assert!(Instant::now() < deadline, "a source opens without a majority");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(error.kind, ErrorKind::Disconnected, "{error}");

    servers[1].run();
    servers[2].run();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        sink.publish(numbered("a", 1)).await;
        match &crate::collect(&mut outcomes, 1).await[0] {
            Outcome::Confirmed => break,
            Outcome::Refused(_) | Outcome::Unknown(_) => {
                assert!(Instant::now() < deadline, "the majority is back, the stream is not")
            }
            other => panic!("{other:?}"),
        }
    }
}
