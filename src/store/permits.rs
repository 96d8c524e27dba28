//! What the user of `redis.urls` may do: asked of Redis itself, changing nothing.

use redis::Value;

use super::error::{Class, StoreError};
use super::keys::Keys;
use super::link::Link;

/// KEYS: one of the namespace, for its slot. ARGV: commands, each as the number of its words and the words. Answers the commands that the
/// caller may not run, once each; nothing where the server has no way to ask (Redis before 7.0). Runs none of them.
const ASK: &str = "
if not redis.acl_check_cmd then return {} end
local denied, seen, at = {}, {}, 1
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  local name = ARGV[at + 1]
  if not redis.acl_check_cmd(unpack(ARGV, at + 1, at + words)) and not seen[name] then
    seen[name] = true
    denied[#denied + 1] = name
  end
  at = at + words + 1
end
return denied";

/// What the scripts run on hashes and sorted sets: each with a key, and what makes it well-formed.
const ON_A_KEY: [(&str, &[&str]); 20] = [
    ("EXISTS", &[]),
    ("UNLINK", &[]),
    ("HDEL", &["f"]),
    ("HEXISTS", &["f"]),
    ("HGET", &["f"]),
    ("HGETALL", &[]),
    ("HLEN", &[]),
    ("HMGET", &["f"]),
    ("HSET", &["f", "v"]),
    ("HSETNX", &["f", "v"]),
    ("HSTRLEN", &["f"]),
    ("ZADD", &["0", "m"]),
    ("ZCARD", &[]),
    ("ZCOUNT", &["0", "0"]),
    ("ZRANGE", &["0", "0"]),
    ("ZRANGEBYSCORE", &["0", "0"]),
    ("ZREM", &["m"]),
    ("ZREMRANGEBYSCORE", &["0", "0"]),
    ("ZSCORE", &["m"]),
    ("RENAME", &["-"]),
];
/// What is run without a key, or by its hash.
const WITHOUT_A_KEY: [&[&str]; 4] = [&["TIME"], &["INFO"], &["EVALSHA", "h", "0"], &["SCRIPT", "LOAD", "s"]];

/// Refuses where the user lacks what Dwell runs: a start would else only find out with its first job.
pub async fn refuse_unpermitted(link: &Link, keys: &Keys) -> Result<(), StoreError> {
    let key = keys.run(0);
    let mut command = redis::cmd("EVAL");
    command.arg(ASK).arg(1).arg(key);
    for (name, rest) in ON_A_KEY {
        // A rename has two keys.
        let rest = rest.iter().map(|word| if *word == "-" { key } else { word });
        command.arg(2 + rest.len()).arg(name).arg(key).arg(rest.collect::<Vec<_>>());
    }
    for words in WITHOUT_A_KEY {
        command.arg(words.len()).arg(words);
    }
    let Value::Array(denied) = link.command("asking for permissions", &command).await? else { return Ok(()) };
    let denied: Vec<String> = denied.into_iter().filter_map(|name| redis::from_redis_value(name).ok()).collect();
    if denied.is_empty() {
        return Ok(());
    }
    let message = format!("redis: the user may not run {} on the keys of the namespace", denied.join(", "));
    Err(StoreError::new(Class::Other, message).mend(super::error::GRANT))
}
