//! Newer servers: the bridge, the commands, `fsync`.

use std::path::PathBuf;

use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisSentinel, RedisServer, find};

use super::kind::{all_commands, env, lines};
use crate::bridge::load::mixed;
use crate::commands::fixture::run_with;
use crate::support::namespace;

async fn bridge_on(program: PathBuf, name: &str) {
    let options = RedisOptions {
        program: Some(program),
        appendonly: Some(AppendFsync::EverySec),
        ..RedisOptions::default()
    };
    let server = RedisServer::start(options).await.unwrap();
    let lines = lines("single", &[server.url()], "fsync");
    let (env, file) = env("version", server, &lines).await;
    let _dwell = env.dwell().await;
    env.producer().send(&mixed(0..600)).await;
    let checks = all_commands(&file).await;
    assert!(
        checks.iter().any(|check| check["detail"].as_str().unwrap().starts_with(name)),
        "{checks:?}"
    );
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

/// Returns the output of `check` and `run` for the server at this URL: their exit codes must be 78.
/// `more`: lines of `[redis]`.
fn refused(url: &str, more: &str) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    let text = format!(
        "[redis]\nurls = [{:?}]\nnamespace = {:?}\n{more}\n[queues.q]\n[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n",
        url,
        namespace("refused")
    );
    std::fs::write(&file, text).unwrap();
    ["check", "run"].map(|command| {
        let said = run_with(&["-c", file.to_str().unwrap(), command], b"");
        assert_eq!(said.code, 78, "{command}: {said:?}");
        format!("{}{}", said.out, said.err)
    })
}

#[tokio::test]
async fn a_server_without_lua_is_told_and_not_retried() {
    let Ok(program) = find::valkey_server() else {
        return println!("not tested: there is no valkey-server");
    };
    let more = vec![("enable-module-command".to_owned(), "local".to_owned())];
    let options = RedisOptions { program: Some(program), more, ..RedisOptions::default() };
    let server = RedisServer::start(options).await.unwrap();
    if server.order(&["MODULE", "UNLOAD", "lua"]).await.is_err() {
        return println!("not tested: this Valkey has Lua built in");
    }
    for said in refused(&server.url(), "") {
        assert!(said.contains("load the Lua module of Valkey"), "{said}");
    }
}

#[tokio::test]
async fn a_sentinel_that_is_taken_for_redis_is_told() {
    let sentinel = RedisSentinel::with_replicas(RedisOptions::default(), 0, 10_000).await.unwrap();
    let said = refused(&sentinel.urls()[0], "");
    assert!(
        said.iter()
            .all(|said| said.contains("this is a sentinel") && said.contains("set redis.mode = ")),
        "{said:?}"
    );
    let said = refused(&sentinel.urls()[0], "mode = \"cluster\"");
    assert!(
        said.iter().all(|said| said.contains("no node of a cluster")
            && said.contains("set redis.mode = ")),
        "{said:?}"
    );
}

#[tokio::test]
async fn a_redis_that_is_taken_for_a_sentinel_is_told() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let said = refused(&server.url(), "mode = \"sentinel\"");
    assert!(
        said.iter().all(|said| said.contains("no sentinel") && said.contains("set redis.mode = ")),
        "{said:?}"
    );
}
