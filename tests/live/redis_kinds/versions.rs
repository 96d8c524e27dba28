//! Newer servers: the bridge, the commands, `fsync`.

use std::path::PathBuf;

use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisServer, find};

use super::kind::{all_commands, env, lines};
use crate::bridge::load::mixed;

async fn bridge_on(program: PathBuf, name: &str) {
    let options = RedisOptions { program: Some(program), appendonly: Some(AppendFsync::EverySec), ..RedisOptions::default() };
    let server = RedisServer::start(options).await.unwrap();
    let lines = lines("single", &[server.url()], "fsync");
    let (env, file) = env("version", server, &lines).await;
    let _dwell = env.dwell().await;
    env.producer().send(&mixed(0..600)).await;
    let checks = all_commands(&file).await;
    assert!(checks.iter().any(|check| check["detail"].as_str().unwrap().starts_with(name)), "{checks:?}");
    let left = env.settled().await;
    assert_eq!(left.dead.iter().sum::<u64>(), 0);
    let ledger = env.ledger.lock();
    assert_eq!((ledger.sound().len(), ledger.distinct(), ledger.attempts_burned()), (0, 600, 0));
}

#[tokio::test]
async fn the_bridge_runs_on_redis_8() {
    bridge_on(find::redis_server_waitaof().unwrap(), "redis ").await;
}

#[tokio::test]
async fn the_bridge_runs_on_valkey() {
    match find::valkey_server() {
        Ok(program) => bridge_on(program, "valkey ").await,
        // `make servers` says so too; on this machine it brings one.
        Err(error) if cfg!(all(target_os = "linux", target_arch = "x86_64")) => panic!("{error}"),
        Err(error) => println!("not tested: {error}"),
    }
}
