//! The messages of `dwell check` and of the start if a user lacks a permission.

use dwell_testkit::servers::{NatsOptions, RedisOptions};

use super::check_servers::{check, line, says};
use super::fixture::{Fixture, SECRET};

/// Makes a user of Redis with these rules; the setting that logs in as it.
async fn redis_user(fixture: &Fixture, name: &str, rules: &[&str]) -> String {
    let mut raw = crate::support::redis_link(fixture.redis.url()).await;
    let password = format!(">{SECRET}");
    let () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg(name)
        .arg("on")
        .arg(password)
        .arg(rules)
        .query_async(&mut raw)
        .await
        .unwrap();
    format!("redis.urls=redis://{name}:{SECRET}@127.0.0.1:{}", fixture.redis.port())
}

#[tokio::test]
async fn a_redis_user_without_what_the_scripts_need() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings(true);
    // The rights that the hint names are enough, for check and for a start.
    let least = [
        "~{dwell:*",
        "~dwell:*",
        "&dwell:*",
        "+@read",
        "+@write",
        "+@scripting",
        "+@pubsub",
        "+@connection",
        "+info",
        "+time",
    ];
    let user = redis_user(&fixture, "least", &least).await;
    assert_eq!(check(&fixture, &settings, &[&user], 0).len(), 1);
    let text = settings.replace(&fixture.redis.url(), user.strip_prefix("redis.urls=").unwrap());
    dwell_testkit::servers::DwellServer::start(super::fixture::program(), &text)
        .await
        .unwrap()
        .stop()
        .await
        .unwrap();
    for arguments in [&["fsck"][..], &["fsck", "--repair"]] {
        let said = fixture.run(&[arguments, &["--set", &user]].concat());
        assert_eq!(
            (said.code, said.out.as_str()),
            (0, "no damage, 0 jobs checked\n"),
            "{}",
            said.err
        );
    }
    let scanless =
        redis_user(&fixture, "scanless", &["~*", "&*", "+@all", "-scan", "-persist"]).await;
    let said = fixture.run(&["fsck", "--set", &scanless]);
    assert_eq!(said.code, 69);
    assert!(said.err.contains("may not run PERSIST, SCAN on"), "{}", said.err);

    for (name, rules, detail) in [
        ("reader", &["~*", "&*", "+@read", "+@connection", "+info", "+time"][..], "'eval'"),
        ("scriptless", &["~*", "&*", "+@all", "-@scripting"], "'eval'"),
        (
            "hashless",
            &["~*", "&*", "+@all", "-@hash"],
            "may not run HDEL, HEXISTS, HGET, HGETALL, HKEYS, HINCRBY, HLEN, HMGET, HSET, HSETNX, HSTRLEN on",
        ),
        (
            "renameless",
            &["~*", "&*", "+@all", "-rename", "-evalsha"],
            "may not run RENAME, EVALSHA on",
        ),
        ("readonly", &["%R~*", "&*", "+@all"], "to access one of the keys"),
        ("stranger", &["~other:*", "&*", "+@all"], "to access one of the keys"),
    ] {
        let user = redis_user(&fixture, name, rules).await;
        let before = fixture.everything().await;
        let lines = check(&fixture, &settings, &[&user], 69);
        says(line(&lines, "redis.permissions"), false, detail, "+@all");
        assert_eq!(fixture.everything().await, before, "{name}");
    }
    let user = redis_user(&fixture, "blind", &["~*", "&*", "+@all", "-info"]).await;
    says(
        line(&check(&fixture, &settings, &[&user], 69), "redis"),
        false,
        "'info'",
        "with INFO and TIME",
    );
}

/// Servers where NATS gives this user these permissions; the setting that logs in as it.
async fn nats_user(permissions: &str) -> (Fixture, String) {
    let config = format!(
        "authorization {{ users = [\n{{ user: admin, password: admin }}\n{{ user: dwell, password: \"{SECRET}\", permissions: {{ \
         {permissions} }} }}\n] }}"
    );
    let fixture = Fixture::with(
        RedisOptions::default(),
        NatsOptions { config, credentials: Some("admin:admin".to_owned()) },
    )
    .await;
    let user = format!("brokers.main.url=nats://dwell:{SECRET}@127.0.0.1:{}", fixture.nats.port());
    (fixture, user)
}

#[tokio::test]
async fn a_nats_user_that_may_not_ask_for_streams_or_hear_answers() {
    for (permissions, denied) in [
        (
            "publish: { allow: [\"orders.>\", \"delay.>\"] }",
            "Permissions Violation for Publish to \"$JS.API.STREAM.NAMES\"",
        ),
        (
            "subscribe: { deny: \"_INBOX.>\" }",
            "Permissions Violation for Subscription to \"_INBOX.",
        ),
    ] {
        let (fixture, user) = nats_user(permissions).await;
        let began = std::time::Instant::now();
        let config = fixture.config();
        let said =
            super::fixture::run_with(&["-c", &config, "check", "-o", "json", "--set", &user], b"");
        // Told at once, not after the patience for an answer.
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
        assert_eq!(said.code, 69, "{said:?}");
        for name in ["delivery.dead", "ingest.main.rejected", "ingest.main"] {
            says(line(&said.lines(), name), false, denied, "grant the user `$JS.API.>`");
        }
        let ran = super::fixture::run_with(&["-c", &config, "run", "--set", &user], b"");
        assert_eq!(ran.code, 69);
        assert!(
            ran.err.contains("Permissions Violation")
                && ran.err.contains("grant the user `$JS.API.>`"),
            "{}",
            ran.err
        );
    }
}
