//! The user that docs/how-to/redis.md makes for Dwell: the bridge, the commands and `fsck` work
//! with it, and it may do nothing that is not needed.

use std::sync::Arc;

use dwell::config::Redis;
use dwell::store::admin::fsck::{self, FsckRules};
use dwell::store::error::StoreError;
use dwell::store::{Store, Unobserved, instances};
use dwell_testkit::servers::{AppendFsync, RedisOptions, RedisServer, find};

use super::kind::{all_commands, env, lines};
use crate::bridge::load::mixed;
use crate::commands::fixture::SECRET;
use crate::store::fixture::{FAR, KEEP, MAIN, RETRY, request, settings};
use crate::support::{namespace, wait_until};

const DOC: &str = include_str!("../../../docs/how-to/redis.md");

/// Returns the line of the docs as words, behind `ACL SETUSER`, for this namespace, with the
/// additions of the list below it for these uses.
pub(super) fn user(namespace: &str, uses: &[&str]) -> Vec<String> {
    let line =
        DOC.split_once("ACL SETUSER ").unwrap().1.split_once("```").unwrap().0.replace("\\\n", " ");
    let more = uses.iter().flat_map(|wanted| {
        let row = DOC
            .lines()
            .find(|line| line.starts_with(&format!("- `{wanted}`:")))
            .unwrap_or_else(|| panic!("nothing for {wanted}"));
        row.split('`')
            .filter(|word| word.starts_with('+'))
            .flat_map(str::split_whitespace)
            .map(str::to_owned)
    });
    let named = |word: &str| match word.split_once("dwell:") {
        Some((mark, rest)) => format!("{mark}{namespace}:{rest}"),
        None => word.replace("PASSWORD", SECRET),
    };
    let words: Vec<String> = line.split_whitespace().map(named).chain(more).collect();
    assert!(words.len() > 20 && words[0] == "dwell", "{words:?}");
    words
}

/// The same places, as that user.
pub(super) fn logged_in(urls: &[String]) -> Vec<String> {
    urls.iter().map(|url| url.replace("redis://", &format!("redis://dwell:{SECRET}@"))).collect()
}

#[tokio::test]
async fn the_user_of_the_docs_can_do_all_that_dwell_does() {
    let story = async |program: Option<std::path::PathBuf>, durability: &str, uses: &[&str]| {
        let options = RedisOptions {
            program,
            appendonly: Some(AppendFsync::EverySec),
            user: user("acl-*", uses),
            ..RedisOptions::default()
        };
        let master = RedisServer::start(options.clone()).await.unwrap();
        let replica =
            RedisServer::start(RedisOptions { replica_of: Some(master.port()), ..options })
                .await
                .unwrap();
        let lines = lines("single", &logged_in(&[master.url()]), durability);
        let (env, file) = env("acl", master, &lines).await;
        let (one, _two) = tokio::join!(env.dwell(), env.dwell());
        env.producer().send(&mixed(0..300)).await;
        all_commands(&file).await;
        env.settled().await;
        let (copies, arrived) = {
            let ledger = env.ledger.lock();
            (ledger.sound().len(), ledger.distinct())
        };
        assert_eq!((copies, arrived), (0, 300));
        let refused = env.redis.order(&["ACL", "LOG"]).await.unwrap();
        let mut objects =
            refused.windows(2).filter(|pair| pair[0] == "object").map(|pair| pair[1].as_str());
        // Redis refused only the name of the client library, sent when it connects, and questions
        // that are asked only to know better.
        assert!(
            objects.all(|object| object == "client|setinfo" || object == "config|get"),
            "{refused:?}"
        );
        drop((one, replica));
    };
    let newer = find::redis_server_waitaof().unwrap();
    tokio::join!(
        story(None, "replica", &["replica", "fsck"]),
        story(Some(newer), "fsync+replica", &["fsync+replica", "fsck"])
    );
}

/// Starts, stores, wakes, listens, looks for damage: the first of it that is refused.
async fn everything(redis: &Redis) -> Result<(), StoreError> {
    let store = Store::open(redis, &[MAIN.to_owned()], Arc::new(Unobserved)).await?;
    let wake_ups = store.jobs.schedule(&[request("a", rand::random(), FAR)]).await?.wake_ups;
    store.read_clock().await?;
    store.wake_others(&wake_ups).await?;
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let channel = store.keys().wake();
    let listening = instances::listen(redis, &channel, || {}, move |head| drop(sender.send(head)));
    let hears = wait_until("a wake-up", async || {
        store
            .wake_others(&[dwell::store::wake_up::WakeUp {
                bucket: 0,
                broker: MAIN.to_owned(),
                due_ms: 1,
            }])
            .await
            .ok()?;
        heard.try_recv().ok()
    });
    tokio::select! {
        ended = listening => ended?,
        _ = hears => {}
    }
    let rules = FsckRules { lease_ms: 20_000, retry_ms: RETRY.to_vec(), sweep: KEEP, repair: true };
    fsck::run(redis, rules, &mut |_| {}).await.map(drop)
}

#[tokio::test]
async fn the_user_of_the_docs_can_do_no_more_than_is_needed() {
    let server = RedisServer::start(RedisOptions::default()).await.unwrap();
    let _replica = RedisServer::start(RedisOptions {
        replica_of: Some(server.port()),
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let name = namespace("least");
    let all = user(&name, &["replica", "fsck"]);
    let set = async |words: &[String]| {
        let words: Vec<&str> =
            ["ACL", "SETUSER"].into_iter().chain(words.iter().map(String::as_str)).collect();
        server.order(&["ACL", "DELUSER", "dwell"]).await.unwrap();
        server.order(&words).await.unwrap();
    };
    let durability = dwell::config::Durability::Replica;
    let as_user = Redis { durability, ..settings(&logged_in(&[server.url()])[0], &name, 4) };
    set(&all).await;
    everything(&as_user).await.unwrap();
    let other = Redis { namespace: namespace("other"), ..as_user.clone() };
    assert!(everything(&other).await.is_err(), "another namespace is not its own");

    let sources = sources();
    for (at, word) in all.iter().enumerate() {
        let right = word.starts_with(['~', '&', '+']);
        if !right {
            continue;
        }
        if let Some(command) = word.strip_prefix('+') {
            let command = command.split('|').next().unwrap().to_uppercase();
            assert!(
                command == "SUBSCRIBE"
                    || sources.contains(&format!("'{command}'"))
                    || sources.contains(&format!("\"{command}\"")),
                "nothing in store/src/store runs {command}"
            );
        }
        let mut fewer = all.clone();
        fewer.remove(at);
        set(&fewer).await;
        let done = everything(&as_user).await;
        assert!(done.is_err(), "all is well without {word}: it is not needed");
    }
}

/// Returns the text of the store, but for the list of the rights that it needs.
fn sources() -> String {
    let mut folders =
        vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("store/src/store")];
    let mut all = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("permits.rs") {
                all += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    all
}
