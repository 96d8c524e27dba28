//! Credentials and TLS.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use data_encoding::BASE64URL_NOPAD;
use dwell_connectors::nats::{Config, Secret, Urls};
use dwell_connectors::{BrokerConfig, Destination, ErrorKind, Message, Outcome, Role};
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa};

use crate::server::NatsServer;
use crate::{declare, options, publication, publish};

/// Reading and publishing work.
async fn works(config: Config) {
    let broker = BrokerConfig::Nats(config);
    assert_eq!(broker.problems(), Vec::<String>::new());
    declare(&broker, "a").await;
    assert_eq!(
        publish(&broker, vec![publication(1, "a", Message::new("x"))]).await,
        [Outcome::Confirmed]
    );
    let source = broker.source(options("a")).await.unwrap();
    let batch = source.recv().await.unwrap();
    assert_eq!(batch.messages.len(), 1);
    source.ack(batch.id).await.unwrap();
    source.close().await.unwrap();
}

async fn fails(config: Config, kind: ErrorKind) -> String {
    let broker = BrokerConfig::Nats(config);
    let Err(error) = broker.sink(std::time::Duration::from_secs(1)).await else {
        panic!("it opened")
    };
    assert_eq!(error.kind, kind, "{error}");
    assert!(!error.hint.is_empty());
    format!("{error} {:?}", error)
}

fn file(server: &NatsServer, name: &str, text: &str) -> Option<PathBuf> {
    let path = server.folder().join(name);
    std::fs::write(&path, text).unwrap();
    Some(path)
}

#[tokio::test]
async fn a_user_logs_in_with_a_password() {
    let server = NatsServer::start("authorization { user: bob, password: \"pa:ss@w%rd\" }");
    let bob = || Config { user: Some("bob".into()), ..Config::at(server.url()) };
    works(Config { password: Some(Secret::new("pa:ss@w%rd")), ..bob() }).await;
    works(Config { password_file: file(&server, "password", "pa:ss@w%rd\n"), ..bob() }).await;
    works(Config::at(server.url().replace("//", "//bob:pa%3Ass%40w%25rd@"))).await;
    let url = server.url().replace("//", "//bob:pa%3Ass%40w%25rd@");
    works(Config { url_file: file(&server, "url", &url), ..Config::default() }).await;

    let shown =
        fails(Config { password: Some(Secret::new("hunter2")), ..bob() }, ErrorKind::Denied).await;
    assert!(!shown.contains("hunter2"), "{shown}");
    fails(Config::at(server.url()), ErrorKind::Denied).await;
    let shown = fails(
        Config { password_file: Some("/nowhere/password".into()), ..bob() },
        ErrorKind::Disconnected,
    )
    .await;
    assert!(shown.contains("`password_file`: cannot read /nowhere/password"), "{shown}");
}

#[tokio::test]
async fn a_limit_of_connections_is_no_missing_right() {
    let server = NatsServer::start("max_connections: 1");
    let broker = BrokerConfig::Nats(Config::at(server.url()));
    let _first = broker.sink(std::time::Duration::from_secs(1)).await.unwrap();
    let shown = fails(Config::at(server.url()), ErrorKind::Disconnected).await;
    assert!(
        shown.contains("maximum connections exceeded") && shown.contains("raise `max_connections`"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_token_logs_in() {
    let server = NatsServer::start("authorization { token: s3cr3t }");
    works(Config { token: Some(Secret::new("s3cr3t")), ..Config::at(server.url()) }).await;
    works(Config { token_file: file(&server, "token", "s3cr3t\n"), ..Config::at(server.url()) })
        .await;
    works(Config::at(server.url().replace("//", "//s3cr3t@"))).await;
    fails(
        Config { token: Some(Secret::new("wrong")), ..Config::at(server.url()) },
        ErrorKind::Denied,
    )
    .await;
}

#[tokio::test]
async fn an_nkey_logs_in() {
    let key = KeyPair::new_user();
    let server = NatsServer::start(&format!(
        "authorization {{ users: [ {{ nkey: {} }} ] }}",
        key.public_key()
    ));
    works(Config {
        nkey_file: file(&server, "seed", &key.seed().unwrap()),
        ..Config::at(server.url())
    })
    .await;
    let other = KeyPair::new_user().seed().unwrap();
    fails(
        Config { nkey_file: file(&server, "other", &other), ..Config::at(server.url()) },
        ErrorKind::Denied,
    )
    .await;
    fails(
        Config { nkey_file: file(&server, "no", "no seed"), ..Config::at(server.url()) },
        ErrorKind::Config,
    )
    .await;
}

/// Waits until the leaf has found its hub: until then nobody answers in the domain.
async fn until_linked(config: &Config) {
    let (broker, deadline) =
        (BrokerConfig::Nats(config.clone()), Instant::now() + Duration::from_secs(20));
    while let Err(error) = broker.declare(&Destination::new("a"), Role::Ingest).await {
        assert!(error.kind == ErrorKind::Disconnected && Instant::now() < deadline, "{error}");
    }
}

/// As a user of the leaf that may subscribe to its own inboxes alone, on the streams of the hub.
#[tokio::test]
async fn the_streams_of_a_domain_behind_a_leaf_are_read_through_inboxes_of_ones_own() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let hub = format!(
        "server_name: hub\njetstream {{ domain: hub, store_dir: {:?} }}\nleafnodes {{ listen: \"127.0.0.1:{port}\" }}",
        folder.path()
    );
    let hub = NatsServer::start(&hub);
    let leaf = NatsServer::start(&format!(
        "server_name: leaf\nleafnodes {{ remotes: [ {{ url: \"nats://127.0.0.1:{port}\" }} ] }}\nauthorization {{ users: [ {{ user: me, password: x, \
         permissions: {{ publish: [ a, \"$JS.hub.API.>\", \"$JS.ACK.>\" ], subscribe: [ \"_DWELL.>\" ] }} }} ] }}"
    ));
    let me = Config {
        user: Some("me".into()),
        password: Some(Secret::new("x")),
        ..Config::at(leaf.url())
    };
    let config = Config {
        inbox_prefix: Some("_DWELL.in".into()),
        jetstream_domain: Some("hub".into()),
        ..me.clone()
    };
    until_linked(&config).await;
    works(config.clone()).await;
    for wrong in [
        Config { inbox_prefix: None, ..config.clone() },
        Config { jetstream_domain: None, ..config },
    ] {
        let Err(error) = BrokerConfig::Nats(wrong).source(options("a")).await else {
            panic!("it opened")
        };
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        assert!(
            error.hint.contains("inbox_prefix") && error.hint.contains("DOMAIN"),
            "{}",
            error.hint
        );
    }
    drop(hub);
}

#[tokio::test]
async fn a_domain_that_nobody_answers_in_is_named() {
    let server = NatsServer::start("");
    for (domain, is_named) in [(Some("nowhere".to_owned()), true), (None, false)] {
        let config = Config { jetstream_domain: domain, ..Config::at(server.url()) };
        let Err(error) = BrokerConfig::Nats(config).source(options("a")).await else {
            panic!("it opened")
        };
        let kind = if is_named { ErrorKind::Disconnected } else { ErrorKind::Missing };
        assert_eq!(error.kind, kind, "{error}");
        assert_eq!(error.hint.contains("`nowhere` its `jetstream_domain`"), is_named, "{error:?}");
    }
}

/// A JWT for the server's operator mode.
fn jwt(issuer: &KeyPair, subject: &KeyPair, nats: &str) -> String {
    let header = BASE64URL_NOPAD.encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let (issuer_key, subject_key) = (issuer.public_key(), subject.public_key());
    let claims = format!(
        r#"{{"jti":"x","iat":1700000000,"iss":"{issuer_key}","name":"n","sub":"{subject_key}","nats":{nats}}}"#
    );
    let body = format!("{header}.{}", BASE64URL_NOPAD.encode(claims.as_bytes()));
    let signature = BASE64URL_NOPAD.encode(&issuer.sign(body.as_bytes()).unwrap());
    format!("{body}.{signature}")
}

#[tokio::test]
async fn a_creds_file_logs_in() {
    let (operator, account, system, user) = (
        KeyPair::new_operator(),
        KeyPair::new_account(),
        KeyPair::new_account(),
        KeyPair::new_user(),
    );
    let limits = r#""subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1"#;
    let stored = format!(
        r#"{{"limits":{{{limits},"mem_storage":-1,"disk_storage":-1,"streams":-1,"consumer":-1}},"type":"account","version":2}}"#
    );
    let plain = format!(r#"{{"limits":{{{limits}}},"type":"account","version":2}}"#);
    let (account_key, system_key) = (account.public_key(), system.public_key());
    let (account_jwt, system_jwt) =
        (jwt(&operator, &account, &stored), jwt(&operator, &system, &plain));
    let operator_jwt = jwt(
        &operator,
        &operator,
        &format!(r#"{{"type":"operator","version":2,"system_account":"{system_key}"}}"#),
    );
    let server = NatsServer::start(&format!(
        "operator: {operator_jwt}\nsystem_account: {system_key}\nresolver: MEMORY\n\
         resolver_preload: {{ {account_key}: {account_jwt}, {system_key}: {system_jwt} }}\n"
    ));
    let user_jwt =
        jwt(&account, &user, r#"{"subs":-1,"data":-1,"payload":-1,"type":"user","version":2}"#);
    let creds = |seed: &str| {
        format!(
            "-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n************ IMPORTANT ************\nText.\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    };
    works(Config {
        creds_file: file(&server, "creds", &creds(&user.seed().unwrap())),
        ..Config::at(server.url())
    })
    .await;
    let other = KeyPair::new_user().seed().unwrap();
    fails(
        Config { creds_file: file(&server, "other", &creds(&other)), ..Config::at(server.url()) },
        ErrorKind::Denied,
    )
    .await;
    let shown = fails(
        Config { creds_file: file(&server, "half", "no creds"), ..Config::at(server.url()) },
        ErrorKind::Config,
    )
    .await;
    assert!(shown.contains("`creds_file`"), "{shown}");
}

/// Writes a CA, a server certificate and a client certificate into a folder.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    for (name, host) in [("server", "127.0.0.1"), ("client", "client.example")] {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![host.to_owned()])
            .unwrap()
            .signed_by(&key, &authority)
            .unwrap();
        std::fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    folder
}

#[tokio::test]
async fn tls_with_a_ca_and_a_client_certificate() {
    let folder = certificates();
    let path = |name: &str| folder.path().join(name);
    let tls = |more: &str| {
        format!(
            "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, {more} }}",
            path("server.pem"),
            path("server.key"),
            path("ca.pem")
        )
    };
    let server = NatsServer::start(&tls(""));
    let trusting = |server: &NatsServer| Config {
        tls_ca_file: Some(path("ca.pem")),
        ..Config::at(server.url())
    };
    works(trusting(&server)).await;
    works(Config {
        url: Some(Urls::new(server.url().replace("nats:", "tls:"))),
        ..trusting(&server)
    })
    .await;
    // The system does not trust the server's CA.
    let shown = fails(Config::at(server.url()), ErrorKind::Disconnected).await;
    assert!(shown.contains("certificate") && shown.contains("tls_ca_file"), "{shown}");

    let server = NatsServer::start(&tls("verify: true"));
    works(Config {
        tls_cert_file: Some(path("client.pem")),
        tls_key_file: Some(path("client.key")),
        ..trusting(&server)
    })
    .await;
    let broker = BrokerConfig::Nats(trusting(&server));
    assert!(broker.sink(std::time::Duration::from_secs(1)).await.is_err());

    let server = NatsServer::start(&tls("handshake_first: true"));
    works(Config { tls_first: true, ..trusting(&server) }).await;
}

#[tokio::test]
async fn a_missing_permission_is_told() {
    let server = NatsServer::start(
        "authorization { users: [
            { user: all, password: p }
            { user: some, password: p, permissions: { publish: { deny: [\"a\"] } } }
            { user: no_api, password: p, permissions: { publish: { deny: [\"$JS.API.>\"] } } }
        ] }",
    );
    let user = |name: &str| Config {
        user: Some(name.to_owned()),
        password: Some(Secret::new("p")),
        ..Config::at(server.url())
    };
    declare(&BrokerConfig::Nats(user("all")), "a").await;
    declare(&BrokerConfig::Nats(user("all")), "b").await;
    let some = BrokerConfig::Nats(user("some"));
    let outcomes = publish(
        &some,
        vec![publication(1, "a", Message::new("x")), publication(2, "b", Message::new("x"))],
    )
    .await;
    assert!(
        matches!(&outcomes[..], [Outcome::Unroutable(why), Outcome::Confirmed] if why.contains("not permitted")),
        "{outcomes:?}"
    );

    let start = std::time::Instant::now();
    let Err(error) = BrokerConfig::Nats(user("no_api")).source(options("a")).await else {
        panic!("it opened")
    };
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    assert!(start.elapsed() < std::time::Duration::from_secs(30));
}
