//! A rolling upgrade: an older binary beside this one; and a namespace of another schema.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell::clock;
use dwell_testkit::servers::{DwellServer, RedisOptions};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use super::environment::{Environment, published};
use super::load::{Job, When};
use crate::support::wait_until;

async fn raw(env: &Environment) -> MultiplexedConnection {
    crate::support::redis_link(env.redis.url()).await
}

fn text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Every key of the namespace but its instances, without its name: `[key, "HSET" or "ZADD", then
/// pairs]`.
async fn stored(env: &Environment) -> Vec<Value> {
    let (mut link, namespace) = (raw(env).await, &env.settings.redis.namespace);
    let mut keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("*{namespace}*")).query_async(&mut link).await.unwrap();
    keys.sort();
    let mut lines = Vec::new();
    for key in keys.iter().filter(|key| !key.ends_with(":instances")) {
        let kind: String = redis::cmd("TYPE").arg(key).query_async(&mut link).await.unwrap();
        let is_hash = kind == "hash";
        let mut ask = redis::cmd(if is_hash { "HGETALL" } else { "ZRANGE" });
        ask.arg(key);
        if !is_hash {
            ask.arg(0).arg(-1).arg("WITHSCORES");
        }
        let flat: Vec<Vec<u8>> = ask.query_async(&mut link).await.unwrap();
        let pairs: Vec<Value> =
            flat.chunks(2).map(|pair| json!([text(&pair[0]), text(&pair[1])])).collect();
        lines.push(json!([key.replace(namespace, "NAMESPACE"), kind, pairs]));
    }
    lines
}

#[tokio::test]
async fn a_namespace_of_another_schema_is_refused_and_left_as_it_is() {
    let env = Environment::new("older", RedisOptions::default(), "").await;
    // It creates the namespace.
    env.dwell().await.stop().await.unwrap();
    let meta = env.store().await.keys().meta();
    for (schema, hint) in [
        ("2", "a version before 0.1.0 wrote it"),
        ("1000", "run the version of Dwell that wrote it"),
    ] {
        let _: i64 = redis::cmd("HSET")
            .arg(&meta)
            .arg("schema")
            .arg(schema)
            .query_async(&mut raw(&env).await)
            .await
            .unwrap();
        let before = stored(&env).await;
        let Err(refused) = env.prepared().restart().await else {
            panic!("it starts on schema {schema}")
        };
        let refused = refused.to_string();
        assert!(
            refused.contains(&format!("has schema {schema}, this program knows 3"))
                && refused.contains(hint),
            "{refused}"
        );
        assert_eq!(stored(&env).await, before);
    }
}

/// Both run at a time, then the new one alone, then both again: there is a way back.
#[tokio::test]
#[ignore = "needs DWELL_OLD_PROGRAM, an older binary of this schema: make upgrade OLD=REVISION"]
async fn old_and_new_instances_share_a_namespace_and_lose_nothing() {
    let old: PathBuf = std::env::var_os("DWELL_OLD_PROGRAM")
        .expect("DWELL_OLD_PROGRAM names an older binary")
        .into();
    for is_stopped in [true, false] {
        let env = Environment::new("upgrade", RedisOptions::default(), "redis.buckets = 64").await;
        let start = async |program: Option<&PathBuf>| {
            let mut dwell =
                program.map_or_else(|| env.prepared(), |program| env.prepared_as(program.clone()));
            dwell.restart().await.unwrap();
            dwell
        };
        let more = async |dwell: &DwellServer| {
            let before = published(dwell, "confirmed").await;
            wait_until("it takes part", async || {
                (published(dwell, "confirmed").await > before + 50).then_some(())
            })
            .await;
        };
        let due_ms = clock::wall_ms() + 8000;
        let far: Vec<Job> =
            (0..300).map(|n| Job { id: format!("far-{n}"), when: When::At(due_ms) }).collect();
        let load = env.load(60);
        let mut first = start(Some(&old)).await;
        env.producer().send(&far).await;
        more(&first).await;
        let second = start(None).await;
        more(&second).await;
        more(&first).await;
        if is_stopped {
            first.stop().await.unwrap();
        } else {
            first.kill().unwrap();
        }
        more(&second).await;
        let third = start(Some(&old)).await;
        more(&third).await;
        more(&second).await;
        load.finish().await;
        let left = env.settled().await;
        assert_eq!(left.dead.iter().sum::<u64>(), 0);
        let ledger = env.ledger.lock();
        let copies = ledger.sound();
        println!("{} jobs, {} delivered again", ledger.count(), copies.len());
        assert!(
            !is_stopped
                || (copies.len(), ledger.attempts_burned(), ledger.uncertain()) == (0, 0, 0)
        );
    }
}
