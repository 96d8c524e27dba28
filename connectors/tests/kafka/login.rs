//! Credentials and TLS.

use dwell_connectors::{BrokerConfig, ErrorKind};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::server::KafkaServer;
use crate::{confirmed, declare, numbered, options, read, with};

/// Reading and publishing work.
async fn works(broker: BrokerConfig) {
    assert_eq!(broker.problems(), Vec::<String>::new());
    declare(&broker, "a").await;
    confirmed(&broker, numbered("a", 3)).await;
    let source = broker.source(options("a")).await.unwrap();
    read(&*source, 3).await;
    source.close().await.unwrap();
}

async fn fails(broker: BrokerConfig, kind: ErrorKind) -> String {
    let Err(error) = broker.sink(std::time::Duration::from_secs(1)).await else {
        panic!("it opened")
    };
    assert_eq!(error.kind, kind, "{error}");
    assert!(!error.hint.is_empty() || kind == ErrorKind::Config);
    format!("{error} {error:?} {broker:?}")
}

#[tokio::test]
async fn a_user_logs_in_with_a_password() {
    let users =
        r#"required username="admin" password="admin" user_admin="admin" user_bob="s3cr3t";"#;
    let server = KafkaServer::start_with(
        "SASL_PLAINTEXT",
        &format!(
            "listener.name.clients.sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n\
             listener.name.clients.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule {users}\n"
        ),
    );
    let bob = [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "bob"),
    ];
    let and = |name, value| with(&server, &[&bob[..], &[(name, value)]].concat());
    works(and("sasl.password", "s3cr3t")).await;
    let file = server.folder().join("password");
    std::fs::write(&file, "s3cr3t\n").unwrap();
    works(and("sasl.password_file", file.to_str().unwrap())).await;

    let shown = fails(and("sasl.password", "hunter2"), ErrorKind::Denied).await;
    assert!(!shown.contains("hunter2"), "{shown}");
    let Err(error) = and("sasl.password", "hunter2").source(options("a")).await else {
        panic!("it opened")
    };
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    let shown =
        fails(and("sasl.password_file", "/nowhere/password"), ErrorKind::Disconnected).await;
    assert!(shown.contains("cannot read /nowhere/password"), "{shown}");
}

#[cfg(feature = "kafka-tls")]
#[tokio::test]
async fn tls_checks_the_brokers_certificate() {
    let authority = |name: &str| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        // OpenSSL takes a certificate with its issuer's name for self-signed.
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (ours, other) = (authority("ours"), authority("other"));
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .signed_by(&key, &ours)
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let store = file("broker.pem", key.serialize_pem() + &certificate.pem());
    let (ours, other) = (file("ours.pem", ours.pem()), file("other.pem", other.pem()));
    let server = KafkaServer::start_with(
        "SSL",
        &format!(
            "ssl.keystore.type=PEM\nssl.keystore.location={store}\nssl.truststore.type=PEM\nssl.truststore.location={ours}\n"
        ),
    );
    let trusting =
        |file: &str| with(&server, &[("security.protocol", "ssl"), ("ssl.ca.location", file)]);
    works(trusting(&ours)).await;
    let shown = fails(trusting(&other), ErrorKind::Disconnected).await;
    assert!(shown.to_lowercase().contains("certificate"), "{shown}");
    // The system's authorities do not know the CA.
    fails(with(&server, &[("security.protocol", "ssl")]), ErrorKind::Disconnected).await;
    fails(with(&server, &[]), ErrorKind::Disconnected).await;
}
