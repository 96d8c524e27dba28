//! `dwell check` against misconfigured servers: its line, its hint, its exit code, and the same
//! exit code of `dwell run`.

use dwell_testkit::servers::{AppendFsync, DwellServer, NatsOptions, RedisOptions};
use serde_json::Value;

use super::fixture::{Fixture, SECRET, program, run_with};
use crate::support::wait_until;

/// Checks these settings, with `more` set. The lines that say more than `ok`; and `run`, where it
/// is to fail, exits with the same code and says the first of them that says why.
pub(super) fn check(fixture: &Fixture, settings: &str, more: &[&str], code: i32) -> Vec<Value> {
    let config = fixture.file(
        "case.toml",
        &format!(
            "{settings}[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n"
        ),
    );
    let more: Vec<&str> = more.iter().flat_map(|setting| ["--set", setting]).collect();
    let said = run_with(&[&["-c", &config, "check", "-o", "json"][..], &more].concat(), b"");
    assert_eq!((said.code, said.err.as_str()), (code, ""), "{}", said.out);
    let lines: Vec<Value> =
        said.lines().into_iter().filter(|line| line["ok"] == false || line["hint"] != "").collect();
    for line in &lines {
        assert_ne!(line["hint"], "", "{line}");
    }
    if code != 0 {
        let ran = run_with(&[&["-c", &config, "run", "--wait", "0s"][..], &more].concat(), b"");
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{}", ran.err);
        let last: Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&last["level"], &last["exit_code"]),
            (&Value::from("ERROR"), &Value::from(code)),
            "{last}"
        );
        let says = |line: &&Value| {
            line["ok"] == false
                && last["error"].as_str().unwrap().contains(line["detail"].as_str().unwrap())
        };
        assert!(lines.iter().any(|line| says(&line)), "{lines:?}: {}", ran.err);
    }
    lines
}

/// The line of this check.
pub(super) fn line<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    lines
        .iter()
        .find(|line| line["check"] == name)
        .unwrap_or_else(|| panic!("no {name} in {lines:?}"))
}

#[track_caller]
pub(super) fn says(line: &Value, ok: bool, detail: &str, hint: &str) {
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    assert!(
        line["ok"] == ok && text("detail").contains(detail) && text("hint").contains(hint),
        "{line}"
    );
}

#[tokio::test]
async fn servers_that_are_away() {
    let mut fixture = Fixture::new().await;
    let settings = fixture.settings(true);
    fixture.redis.kill().unwrap();
    let lines = check(&fixture, &settings, &[], 69);
    says(
        line(&lines, "redis"),
        false,
        &format!("connecting to redis://127.0.0.1:{}: ", fixture.redis.port()),
        "is Redis running there",
    );
    assert!(
        lines.iter().all(|line| line["check"].as_str().unwrap().starts_with("redis")),
        "the broker was looked at: {lines:?}"
    );
    fixture.redis.restart().await.unwrap();
    fixture.nats.kill().unwrap();
    let lines = check(&fixture, &settings, &[], 69);
    let away = format!("cannot connect to nats at nats://127.0.0.1:{}: ", fixture.nats.port());
    says(line(&lines, "brokers.main"), false, &away, "is the server running");
    says(line(&lines, "ingest.main"), false, "see brokers.main", "fix brokers.main first");
}

#[tokio::test]
async fn destinations_that_are_missing() {
    let fixture = Fixture::new().await;
    let lines = check(&fixture, &fixture.settings(false), &[], 69);
    let names: Vec<&str> = lines.iter().map(|line| line["check"].as_str().unwrap()).collect();
    assert_eq!(names, ["redis.durability", "delivery.dead", "ingest.main.rejected", "ingest.main"]);
    says(
        line(&lines, "delivery.dead"),
        false,
        "nothing takes messages at `delay.dead`, which delivery.dead names",
        "declare = true",
    );
    says(
        line(&lines, "ingest.main.rejected"),
        false,
        "`delay.rejected`, which ingest.main.rejected names",
        "declare = true",
    );
    says(
        line(&lines, "ingest.main"),
        false,
        "no stream has the subject `delay.in`",
        "declare = true",
    );
    assert_eq!(check(&fixture, &fixture.settings(true), &[], 0).len(), 1);

    fixture.stream("IN", &["delay.in"]);
    fixture.stream("REJECTED", &["delay.rejected"]);
    let lines = check(&fixture, &fixture.settings(false), &[], 69);
    assert_eq!(lines.len(), 2, "only the dead letters are missing: {lines:?}");
    assert_eq!(line(&lines, "delivery.dead")["ok"], false);
    assert_eq!(
        check(&fixture, &fixture.settings(false), &["delivery.dead="], 0).len(),
        1,
        "dead letters may stay in Redis"
    );
    fixture.stream("DEAD", &["delay.dead"]);
    assert_eq!(check(&fixture, &fixture.settings(false), &[], 0).len(), 1);
    fixture.api("STREAM.DELETE.REJECTED", "");
    says(
        line(&check(&fixture, &fixture.settings(false), &[], 69), "ingest.main.rejected"),
        false,
        "nothing takes messages",
        "create that",
    );
}

#[tokio::test]
async fn a_consumer_that_cannot_be_used_is_a_mistake_in_the_settings() {
    let fixture = Fixture::new().await;
    fixture.stream("IN", &["delay.in"]);
    let config = r#"{"stream_name":"IN","config":{"durable_name":"dwell","ack_policy":"none","filter_subject":"delay.in"}}"#;
    fixture.api("CONSUMER.DURABLE.CREATE.IN.dwell", config);
    let lines = check(&fixture, &fixture.settings(true), &[], 78);
    says(
        line(&lines, "ingest.main"),
        false,
        "its ack policy is not explicit",
        "name another `group`",
    );
    assert_eq!(check(&fixture, &fixture.settings(true), &["ingest.main.group=other"], 0).len(), 1);
}

#[tokio::test]
async fn what_a_first_start_would_read_is_told() {
    let fixture = Fixture::new().await;
    fixture.stream("IN", &["delay.in"]);
    let settings = fixture.settings(true);
    assert_eq!(check(&fixture, &settings, &[], 0).len(), 1, "nothing waits");
    for number in 0..200 {
        fixture.publish("delay.in", &number.to_string());
    }
    let lines = check(&fixture, &settings, &[], 0);
    let waits = "its reader `dwell` would be created, and start with the earliest message: up to 200 messages, the oldest of 20";
    says(
        line(&lines, "ingest.main"),
        true,
        waits,
        "set ingest.main.start (latest, or a time) or ingest.main.max_age",
    );
    assert_eq!(check(&fixture, &settings, &["ingest.main.start=latest"], 0).len(), 1);
    assert_eq!(
        check(
            &fixture,
            &settings,
            &["ingest.main.group=other", "ingest.main.start=2020-01-01T00:00:00Z"],
            0
        )
        .len(),
        2
    );
    // A group that is known goes on where it was.
    fixture.sidecar().await.stop().await.unwrap();
    assert_eq!(check(&fixture, &settings, &[], 0).len(), 1);
}

#[tokio::test]
async fn a_topic_that_takes_rejected_in_is_a_mistake_in_the_settings() {
    let fixture = Fixture::new().await;
    let pattern = ["--set", "ingest.main.topic=delay.>"];
    let said = fixture.run(&[&["check", "-o", "json"][..], &pattern].concat());
    assert_eq!((said.code, fixture.run(&[&["run"][..], &pattern].concat()).code), (78, 78));
    let lines = said.lines();
    says(
        line(&lines, "ingest.main.rejected"),
        false,
        "`delay.rejected` is read by ingest.main (`delay.>`)",
        "a narrower topic",
    );
    says(
        line(&lines, "delivery.dead"),
        false,
        "`delay.dead` is read by ingest.main (`delay.>`)",
        "a narrower topic",
    );
    fixture.stream("REJECTED", &["delay.rejected"]);
    let source =
        r#"{"name":"REJECTED","subject_transforms":[{"src":"delay.rejected","dest":"delay.in"}]}"#;
    fixture.api(
        "STREAM.CREATE.IN",
        &format!(r#"{{"name":"IN","subjects":["delay.in"],"sources":[{source}]}}"#),
    );
    let lines = check(&fixture, &fixture.settings(true), &[], 78);
    says(
        line(&lines, "ingest.main"),
        false,
        "receives what is published to `delay.rejected`, as `delay.in`",
        "name another destination",
    );
}

#[tokio::test]
async fn a_namespace_with_other_buckets() {
    let fixture = Fixture::new().await;
    fixture.sidecar().await.stop().await.unwrap();
    let lines = check(&fixture, &fixture.settings(true), &["redis.buckets=4"], 78);
    says(
        line(&lines, "redis.namespace"),
        false,
        "`dwell` has 16 buckets, redis.buckets says 4",
        "set redis.buckets = 16",
    );
    assert_eq!(
        check(&fixture, &fixture.settings(true), &["redis.buckets=4", "redis.namespace=other"], 0)
            .len(),
        1
    );
}

#[tokio::test]
async fn a_durability_that_this_redis_cannot_give() {
    let fixture = Fixture::new().await;
    let lines = check(&fixture, &fixture.settings(true), &["redis.durability=fsync"], 78);
    says(line(&lines, "redis.durability"), false, "runs without AOF", "set appendonly yes");
    // What never works comes before what is waited for.
    let lines = check(&fixture, &fixture.settings(true), &["redis.durability=fsync+replica"], 78);
    says(line(&lines, "redis.durability"), false, "runs without AOF", "set appendonly yes");
    let lines = check(&fixture, &fixture.settings(true), &["redis.durability=replica"], 69);
    says(line(&lines, "redis.durability"), false, "no replica is connected", "start a replica");

    let options = RedisOptions { appendonly: Some(AppendFsync::Always), ..RedisOptions::default() };
    let fixture = Fixture::with(options, NatsOptions::default()).await;
    fixture.stream("ORDERS", &["orders.>"]);
    assert_eq!(
        check(&fixture, &fixture.settings(true), &["redis.durability=fsync"], 0),
        Vec::<Value>::new()
    );
}

#[tokio::test]
async fn a_redis_that_throws_keys_away() {
    let options = |policy: &str| RedisOptions {
        maxmemory: Some("64mb".to_owned()),
        maxmemory_policy: Some(policy.to_owned()),
        ..RedisOptions::default()
    };
    let fixture = Fixture::with(options("allkeys-lru"), NatsOptions::default()).await;
    let lines = check(&fixture, &fixture.settings(true), &[], 78);
    says(
        line(&lines, "redis.maxmemory-policy"),
        false,
        "allkeys-lru: a full Redis would evict jobs",
        "noeviction",
    );
    let fixture = Fixture::with(options("volatile-lru"), NatsOptions::default()).await;
    let lines = check(&fixture, &fixture.settings(true), &[], 0);
    says(line(&lines, "redis.maxmemory-policy"), true, "volatile-lru", "noeviction");
}

#[tokio::test]
async fn a_replica_takes_no_writes() {
    let fixture = Fixture::new().await;
    let options =
        RedisOptions { replica_of: Some(fixture.redis.port()), ..RedisOptions::default() };
    let replica = Fixture::with(options, NatsOptions::default()).await;
    let lines = check(&replica, &replica.settings(true), &[], 69);
    says(
        line(&lines, "redis"),
        false,
        "is a replica: it takes no writes",
        "point redis.urls at its master",
    );
}

#[tokio::test]
async fn wrong_credentials_are_told_without_being_shown() {
    let redis = RedisOptions { password: Some("right".to_owned()), ..RedisOptions::default() };
    let nats = NatsOptions {
        config: "authorization { user: dwell, password: right }".to_owned(),
        credentials: Some("dwell:right".to_owned()),
    };
    let fixture = Fixture::with(redis, nats).await;
    let lines = check(&fixture, &fixture.settings(true), &[], 0);
    assert_eq!(lines.len(), 2);
    says(
        line(&lines, "brokers.main.allow"),
        true,
        "nothing takes messages at `orders.>`",
        "create that destination",
    );
    let url = format!("redis.urls=redis://:{SECRET}@127.0.0.1:{}", fixture.redis.port());
    let lines = check(&fixture, &fixture.settings(true), &[&url], 69);
    says(
        line(&lines, "redis"),
        false,
        "uthentication",
        "check the user and the password in redis.urls",
    );
    let url = format!("redis.urls=redis://127.0.0.1:{}", fixture.redis.port());
    says(
        line(&check(&fixture, &fixture.settings(true), &[&url], 69), "redis"),
        false,
        "uthentication",
        "the password into redis.urls",
    );
    let port = fixture.nats.port();
    let mistakes = [
        [format!("brokers.main.url=nats://dwell:{SECRET}@127.0.0.1:{port}")].to_vec(),
        [format!("brokers.main.url=nats://{SECRET}@127.0.0.1:{port}")].to_vec(),
        [
            format!("brokers.main.url=nats://127.0.0.1:{port}"),
            "brokers.main.user=dwell".to_owned(),
            format!("brokers.main.password={SECRET}"),
        ]
        .to_vec(),
    ];
    for mistake in mistakes {
        let mistake: Vec<&str> = mistake.iter().map(String::as_str).collect();
        let lines = check(&fixture, &fixture.settings(true), &mistake, 69);
        says(
            line(&lines, "brokers.main"),
            false,
            "authorization violation",
            "check user, password, token",
        );
    }
}

#[tokio::test]
async fn limits_of_queues_are_compared_with_those_of_the_namespace() {
    let fixture = Fixture::new().await;
    let with = |limits: &str| format!("{}[queues.mails]\n{limits}", fixture.settings(true));
    let told = |limits: &str| {
        let lines = check(&fixture, &with(limits), &[], 0);
        lines.into_iter().find(|line| line["check"] == "limits")
    };
    let (kept, other) = ("rate = \"10/s\"\nin_flight = 3\n", "rate = \"20/s\"\nin_flight = 3\n");
    let _dwell = DwellServer::start(program(), &with(kept)).await.unwrap();
    // The rates are kept first.
    let ended = wait_until("both are kept", async || told("rate = \"10/s\"\n")).await;
    assert_eq!(told(kept), None);
    for line in [ended, told(other).unwrap(), told("").unwrap()] {
        says(&line, true, "keeps other limits of queues: mails", "for all instances");
    }
}
