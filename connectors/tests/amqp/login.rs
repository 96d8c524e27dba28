//! Credentials, vhosts, permissions and TLS.

use std::path::PathBuf;
use std::time::Duration;

use dwell_connectors::amqp::{Config, Secret};
use dwell_connectors::{BrokerConfig, Destination, ErrorKind, Message, Outcome, Role};
use lapin::ExchangeKind;

use crate::server::{RabbitServer, shared};
use crate::{
    at, client, declared, fresh, make_exchange, make_queue, numbered, options, publication,
    publish, read, refused, to,
};

/// Reading and publishing work.
async fn works(config: Config) {
    let broker = BrokerConfig::Amqp(config);
    assert_eq!(broker.problems(), Vec::<String>::new());
    let queue = declared(&broker).await;
    assert_eq!(publish(&broker, numbered(&to("", &queue), 1)).await, [Outcome::Confirmed]);
    let source = broker.source(options(&queue)).await.unwrap();
    read(&*source, 1).await;
    source.close().await.unwrap();
}

async fn fails(config: Config, kind: ErrorKind) -> String {
    let broker = BrokerConfig::Amqp(config);
    let Err(error) = broker.sink(Duration::from_secs(1)).await else { panic!("it opened") };
    assert_eq!(error.kind, kind, "{error}");
    assert!(!error.hint.is_empty());
    format!("{error} {error:?}")
}

fn with_login(server: &RabbitServer, login: &str) -> String {
    server.url().replace("//", &format!("//{login}@"))
}

#[tokio::test]
async fn a_user_logs_in_with_a_password() {
    let server = shared().await;
    works(Config::at(server.url())).await;
    works(Config::at(with_login(server, "guest:guest"))).await;
    works(Config {
        user: Some("guest".into()),
        password: Some(Secret::new("guest")),
        ..Config::at(with_login(server, "other:x"))
    })
    .await;
    let file = server.folder().join("password");
    std::fs::write(&file, "guest\n").unwrap();
    works(Config {
        user: Some("guest".into()),
        password_file: Some(file),
        ..Config::at(server.url())
    })
    .await;
    let url_file = server.folder().join("url");
    std::fs::write(&url_file, with_login(server, "guest:guest")).unwrap();
    works(Config { url_file: Some(url_file), ..Config::default() }).await;

    let shown = fails(Config::at(with_login(server, "guest:hunter2")), ErrorKind::Denied).await;
    assert!(!shown.contains("hunter2"), "{shown}");
    let nowhere = Config {
        user: Some("guest".into()),
        password_file: Some("/nowhere/password".into()),
        ..Config::at(server.url())
    };
    let Err(error) = BrokerConfig::Amqp(nowhere).sink(Duration::from_secs(1)).await else {
        panic!("it opened")
    };
    // Somebody may be writing it. The settings with which Dwell starts are refused.
    assert!(
        error.kind == ErrorKind::Disconnected
            && error.message.contains("`password_file`: cannot read /nowhere/password"),
        "{error}"
    );
}

#[tokio::test]
async fn a_vhost_is_named_by_the_url() {
    let server = shared().await;
    works(Config::at(format!("{}/a%2fb", server.url()))).await;
    works(Config::at(format!("{}/%2f?heartbeat=2", server.url()))).await;
    let shown = fails(Config::at(format!("{}/missing", server.url())), ErrorKind::Missing).await;
    assert!(shown.contains("missing"), "{shown}");
    fails(Config::at(with_login(server, "outside:p")), ErrorKind::Denied).await;
}

#[tokio::test]
async fn a_limit_of_connections_is_no_missing_right() {
    let server = shared().await;
    for config in
        [Config::at(format!("{}/full", server.url())), Config::at(with_login(server, "crowd:p"))]
    {
        let shown = fails(config, ErrorKind::Disconnected).await;
        assert!(
            shown.contains("limit (0) is reached") && shown.contains("raise the limit"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_limit_of_channels_is_told_when_the_connection_opens() {
    let server = shared().await;
    let config = Config::at(with_login(server, "mute:p"));
    let shown = fails(config, ErrorKind::Disconnected).await;
    assert!(
        shown.contains("number of channels opened")
            && shown.contains("raise the limit of channels"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_second_server_is_tried() {
    let server = shared().await;
    works(Config::at(format!("amqp://127.0.0.1:1, {}", server.url()))).await;
    let shown = fails(Config::at("amqp://127.0.0.1:1"), ErrorKind::Disconnected).await;
    assert!(shown.contains("127.0.0.1:1") && shown.contains("refused"), "{shown}");
}

#[tokio::test]
async fn a_missing_permission_is_told_and_hits_nobody_else() {
    let server = shared().await;
    let (_connection, channel) = client(server).await;
    let unique = fresh();
    let (queue, allowed, denied) =
        (format!("some-q-{unique}"), format!("some-x-{unique}"), format!("x-{unique}"));
    make_queue(&channel, &queue, &[]).await;
    for exchange in [&allowed, &denied] {
        make_exchange(&channel, exchange, ExchangeKind::Fanout, &[(&queue, "")]).await;
    }
    let some = at(with_login(server, "some:pa%3Ass%40w%25rd"));
    // Permissions know the default exchange as `amq.default`, and this user has none on it.
    let places = [to(&allowed, ""), to(&denied, ""), to("", &queue)];
    let window = (0..90)
        .map(|token| publication(token, places[token as usize % 3].clone(), Message::new("x")))
        .collect();
    for (token, outcome) in (0..).zip(publish(&some, window).await) {
        match outcome {
            Outcome::Confirmed => assert_eq!(token % 3, 0),
            Outcome::Unroutable(why) => {
                assert!(token % 3 != 0 && why.contains("refused for user"), "{token}: {why}")
            }
            other => panic!("token {token}: {other:?}"),
        }
    }
    let source = some.source(options(&queue)).await.unwrap();
    assert_eq!(read(&*source, 30).await.len(), 30);

    let other = fresh();
    make_queue(&channel, &other, &[]).await;
    let error = refused(&some, &other, ErrorKind::Denied).await;
    assert!(error.message.contains(&other) && !error.hint.is_empty(), "{error}");
    let error = some.declare(&Destination::new(fresh()), Role::Ingest).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn an_exchange_is_not_made() {
    let error =
        at(shared().await.url()).declare(&to(&fresh(), "key"), Role::Letters).await.unwrap_err();
    assert!(error.kind == ErrorKind::Missing && !error.hint.is_empty(), "{error}");
}

#[tokio::test]
async fn tls_with_a_ca_and_a_client_certificate() {
    let server = shared().await;
    let path = |name: &str| -> Option<PathBuf> { Some(server.folder().join(name)) };
    let trusting = || Config { tls_ca_file: path("ca.pem"), ..Config::at(server.tls_url()) };
    works(Config {
        tls_cert_file: path("client.pem"),
        tls_key_file: path("client.key"),
        ..trusting()
    })
    .await;
    // The server requires a client certificate.
    let broker = BrokerConfig::Amqp(trusting());
    assert!(broker.sink(Duration::from_secs(1)).await.is_err());
    // The system does not trust the server's CA.
    let shown = fails(Config::at(server.tls_url()), ErrorKind::Disconnected).await;
    assert!(shown.contains("certificate") && shown.contains("tls_ca_file"), "{shown}");
    let no_pem = Config { tls_ca_file: path("rabbitmq.conf"), ..Config::at(server.tls_url()) };
    assert!(fails(no_pem, ErrorKind::Config).await.contains("`tls_ca_file`"));
    // A server without TLS.
    fails(Config::at(server.url().replace("amqp:", "amqps:")), ErrorKind::Disconnected).await;
}
