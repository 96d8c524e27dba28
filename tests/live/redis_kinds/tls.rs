//! Redis over TLS: an unverified server is refused.

use std::path::Path;

use dwell_testkit::servers::{DwellServer, RedisCluster, RedisOptions, RedisServer};
use tempfile::TempDir;

use super::kind::{env, lines};
use crate::bridge::load::mixed;
use crate::commands::fixture::{Said, program, run_in};

#[path = "../../../connectors/tests/amqp/certificates.rs"]
mod certificates;

fn authority() -> TempDir {
    let folder = TempDir::new().unwrap();
    certificates::write(folder.path());
    folder
}

/// `dwell check` where this file names the authorities.
fn check(settings: &Path, authorities: Option<&Path>) -> Said {
    let file = authorities.map(|folder| folder.join("ca.pem").to_str().unwrap().to_owned());
    let variables: Vec<(&str, &str)> =
        file.iter().map(|file| ("SSL_CERT_FILE", file.as_str())).collect();
    run_in(&variables, &["-c", settings.to_str().unwrap(), "check"], b"")
}

#[tokio::test]
async fn a_certificate_is_verified_and_the_authority_can_be_named() {
    let (ours, other) = (authority(), authority());
    let server = RedisServer::start(RedisOptions {
        tls: Some(ours.path().to_owned()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let lines = lines("single", &[server.url()], "memory");
    let (mut env, file) = env("tls", server, &lines).await;
    for authorities in [None, Some(other.path())] {
        let said = check(file.path(), authorities);
        assert_eq!(said.code, 69, "{} {}", said.out, said.err);
        assert!(
            said.out.contains("FAIL  redis ")
                && said.out.contains("certificate")
                && said.out.contains("SSL_CERT_FILE"),
            "{}",
            said.out
        );
    }
    // The certificate is for 127.0.0.1 alone.
    let elsewhere = env.text().replace("rediss://127.0.0.1", "rediss://localhost");
    let misnamed = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(misnamed.path(), elsewhere).unwrap();
    let said = check(misnamed.path(), Some(ours.path()));
    assert!(said.code == 69 && said.out.contains("certificate"), "{} {}", said.out, said.err);
    let said = check(file.path(), Some(ours.path()));
    assert_eq!(said.code, 0, "{} {}", said.out, said.err);

    let mut dwell = DwellServer::prepare(program(), env.text()).unwrap();
    dwell.set_env([("SSL_CERT_FILE", ours.path().join("ca.pem").to_str().unwrap())]);
    dwell.restart().await.unwrap();
    // This process does not know the authority: it looks at the server by another interface.
    env.settings.redis.urls =
        vec![format!("redis+unix://{}", env.redis.dir().join("redis.sock").display())];
    env.producer().send(&mixed(0..300)).await;
    env.settled().await;
    let ledger = env.ledger.lock();
    assert_eq!((ledger.sound().len(), ledger.distinct()), (0, 300));
}

#[tokio::test]
async fn every_node_of_a_cluster_is_reached_over_tls() {
    let ours = authority();
    let cluster = RedisCluster::start(RedisOptions {
        tls: Some(ours.path().to_owned()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let lines = lines("cluster", &cluster.urls()[..1], "replica");
    let (_rig, file) = env("tls", cluster, &lines).await;
    let said = check(file.path(), Some(ours.path()));
    assert!(
        said.code == 0 && said.out.contains("3 masters, each with 1 replicas"),
        "{} {}",
        said.out,
        said.err
    );
    assert_eq!(check(file.path(), None).code, 69);
}
