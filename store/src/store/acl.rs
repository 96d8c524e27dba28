//! Checks the permissions of the Redis user, without changing anything.

use redis::Value;

use super::client::RedisClient;
use super::error::{Class, ErrorKind, StoreError};
use super::keys::Keys;

/// KEYS: one of the namespace, for its slot. ARGV: commands, each as the number of its words and
/// the words. Answers the forbidden commands, once each; nothing if the server cannot check
/// permissions (Redis before 7.0). Runs none of the commands.
const PERMISSION_SCRIPT: &str = "
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

/// A command on a key, and the words after the key that make it valid; `-` stands for a second key.
type Permit = (&'static str, &'static [&'static str]);

/// The commands of the scripts on hashes and sorted sets.
const KEY_COMMANDS: [Permit; 23] = [
    ("EXISTS", &[]),
    ("UNLINK", &[]),
    ("HDEL", &["f"]),
    ("HEXISTS", &["f"]),
    ("HGET", &["f"]),
    ("HGETALL", &[]),
    ("HKEYS", &[]),
    ("HINCRBY", &["f", "1"]),
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
    ("ZREMRANGEBYRANK", &["0", "0"]),
    ("ZREMRANGEBYSCORE", &["0", "0"]),
    ("ZSCORE", &["m"]),
    ("RENAME", &["-"]),
];
/// Commands without a key, and calls of scripts by hash.
const KEYLESS_COMMANDS: [&[&str]; 4] =
    [&["TIME"], &["INFO"], &["EVALSHA", "h", "0"], &["SCRIPT", "LOAD", "s"]];

/// The further commands of `fsck`, on keys of any type.
const FSCK_COMMANDS: [Permit; 7] = [
    ("HRANDFIELD", &["1"]),
    ("HSCAN", &["0"]),
    ("PERSIST", &[]),
    ("PTTL", &[]),
    ("RENAMENX", &["-"]),
    ("TYPE", &[]),
    ("ZSCAN", &["0"]),
];

/// Refuses a user without the permissions that Dwell needs: otherwise the first job would fail.
pub async fn refuse_unpermitted(link: &RedisClient, keys: &Keys) -> Result<(), StoreError> {
    refuse(link, keys, &[], &[]).await
}

/// Refuses a user without the permissions that `fsck` needs, with and without `--repair`.
pub async fn refuse_unpermitted_fsck(link: &RedisClient, keys: &Keys) -> Result<(), StoreError> {
    refuse(link, keys, &FSCK_COMMANDS, &[&["SCAN", "0"]]).await
}

async fn refuse(
    link: &RedisClient,
    keys: &Keys,
    more_on_a_key: &[Permit],
    more: &[&[&str]],
) -> Result<(), StoreError> {
    let key = keys.claim_deadlines(0);
    let mut command = redis::cmd("EVAL");
    command.arg(PERMISSION_SCRIPT).arg(1).arg(key);
    for (name, rest) in KEY_COMMANDS.iter().chain(more_on_a_key) {
        // A rename has two keys.
        let rest = rest.iter().map(|word| if *word == "-" { key } else { word });
        command.arg(2 + rest.len()).arg(*name).arg(key).arg(rest.collect::<Vec<_>>());
    }
    for words in KEYLESS_COMMANDS.iter().chain(more) {
        command.arg(words.len()).arg(*words);
    }
    let Value::Array(denied) = link.command("asking for permissions", &command).await? else {
        return Ok(());
    };
    let denied: Vec<String> =
        denied.into_iter().filter_map(|name| redis::from_redis_value(name).ok()).collect();
    if denied.is_empty() {
        return Ok(());
    }
    let message =
        format!("redis: the user may not run {} on the keys of the namespace", denied.join(", "));
    Err(StoreError::new(Class::Other, message)
        .hint(super::error::PERMISSION_HINT)
        .of_kind(ErrorKind::Permission))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::scripts::Name;

    /// The permissions of a user in docs/how-to/redis.md, and the further ones for `fsck`.
    const DOC: &str = include_str!("../../../docs/how-to/redis.md");

    #[test]
    fn what_the_scripts_run_is_asked_for_and_granted_by_the_docs() {
        let line = DOC.split_once("ACL SETUSER ").unwrap().1.split_once("```").unwrap().0;
        let of_fsck = DOC.lines().find(|line| line.starts_with("- `fsck`:")).unwrap();
        for name in Name::ALL {
            let source = name.source(16);
            let is_fsck = name.as_str().starts_with("fsck");
            let on_a_key = KEY_COMMANDS
                .iter()
                .chain(FSCK_COMMANDS.iter().filter(|_| is_fsck))
                .map(|permit| permit.0);
            let asked: Vec<&str> =
                on_a_key.chain(KEYLESS_COMMANDS.iter().map(|words| words[0])).collect();
            let granted = if is_fsck { format!("{line} {of_fsck}") } else { line.to_owned() };
            let granted: Vec<&str> = granted.split([' ', '`', '\n']).collect();
            let calls = ["call(", "many("].iter().flat_map(|word| source.split(word).skip(1));
            let commands: Vec<&str> =
                calls.filter_map(|call| call.strip_prefix('\'')?.split('\'').next()).collect();
            assert!(commands.len() > 2, "{}: {commands:?}", name.as_str());
            for command in commands {
                assert!(
                    asked.contains(&command),
                    "{} runs {command}, which is not asked for",
                    name.as_str()
                );
                let right = format!("+{}", command.to_lowercase());
                assert!(
                    granted.contains(&right.as_str()),
                    "{} runs {command}, which docs/how-to/redis.md does not grant",
                    name.as_str()
                );
            }
        }
    }
}
