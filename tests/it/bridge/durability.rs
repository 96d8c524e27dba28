//! One pass of the durability gate for all requests of a batch.

use dwell_testkit::servers::{AppendFsync, RedisOptions, find};

use super::environment::{Environment, action, asking, request, verdicts};
use crate::support::redis_link;

/// A Redis of which each wait takes as long as its next fsync: up to a second.
pub(super) fn everysec() -> RedisOptions {
    let program = Some(find::redis_server_waitaof().unwrap());
    RedisOptions { program, appendonly: Some(AppendFsync::EverySec), ..RedisOptions::default() }
}

/// Returns the number of waits for an fsync.
async fn waits(env: &Environment) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut redis_link(&env.redis.url()).await)
        .await
        .unwrap();
    let line =
        stats.lines().find_map(|line| line.strip_prefix("cmdstat_waitaof:calls=")).unwrap_or("0,");
    line.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn schedules_and_actions_of_a_batch_share_one_wait() {
    let mut env = Environment::idle(everysec(), &[("redis.durability", "fsync")]).await;
    for n in 0..8 {
        let id = format!("job-{n}");
        env.send(asking(request(&id, "1h")));
        env.send(asking(action("cancel", &id)));
        env.send(asking(action("finish", &id)));
    }
    env.run(super::environment::ALL).await;
    assert_eq!(
        verdicts(&env.arrived("replies", 24).await),
        ["added", "cancelled", "not_found"].repeat(8)
    );
    env.taken().await;
    // A batch or two, of which each may be sent again because the scripts are not known yet.
    let waits = waits(&env).await;
    assert!(waits <= 6, "24 requests waited {waits} times");
}
