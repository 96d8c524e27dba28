//! `dwell check` without problems, or with problems that need no server: its output, and that it
//! changes nothing.

use serde_json::Value;
use tempfile::TempDir;

use super::fixture::{Fixture, SECRET, Said, run_with};

/// The names of the checks, in their order.
fn names(said: &Said) -> Vec<String> {
    said.lines().iter().map(|line| line["check"].as_str().unwrap().to_owned()).collect()
}

const ALL: [&str; 13] = [
    "settings",
    "redis",
    "redis.permissions",
    "redis.namespace",
    "redis.rules",
    "redis.durability",
    "redis.maxmemory-policy",
    "redis.memory",
    "time_zones",
    "brokers.main",
    "delivery.dead",
    "ingest.main.rejected",
    "ingest.main",
];

#[tokio::test]
async fn good_settings_pass_and_nothing_is_changed_before_or_after_the_first_start() {
    let fixture = Fixture::new().await;
    let before = fixture.everything().await;
    assert_eq!(before.len(), 1, "one stream: {before:?}");
    let said = fixture.run(&["check", "-o", "json"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    assert_eq!(names(&said), ALL);
    for line in said.lines() {
        let keys: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            (keys, &line["ok"]),
            (vec!["check", "detail", "hint", "ok"], &Value::Bool(true)),
            "{line}"
        );
        assert_eq!(
            line["hint"] != "",
            line["check"] == "redis.durability",
            "a Redis that keeps nothing is the one warning: {line}"
        );
    }
    assert!(said.out.contains("`dwell` is new: would be created, with 16 buckets"), "{}", said.out);
    assert!(
        said.out.contains("`delay.in` would be created (declare), and its reader `dwell`"),
        "{}",
        said.out
    );
    assert_eq!(fixture.everything().await, before);

    fixture.sidecar().await.stop().await.unwrap();
    let before = fixture.everything().await;
    let said = fixture.run(&["check"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    for line in [
        "\nok    redis.namespace  `dwell` has 16 buckets; brokers: main\n",
        "\nwarn  redis.durability  memory: acknowledged jobs are lost when Redis ends",
        "\n        set appendonly yes in redis.conf",
        "\nok    ingest.main  `delay.in` is read as `dwell`\n",
    ] {
        assert!(said.out.contains(line), "{line}: {}", said.out);
    }
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_setting_of_the_namespace_is_followed_until_another_is_adopted() {
    let fixture = Fixture::new().await;
    fixture.sidecar().await.stop().await.unwrap();
    let rules = |arguments: &[&str]| {
        let said = fixture.run(&[&["check", "-o", "json"], arguments].concat());
        assert_eq!(said.code, 0, "{said:?}");
        said.lines().into_iter().find(|line| line["check"] == "redis.rules").unwrap()
    };
    let other = ["--set", "delivery.dead_retention=1h"];
    assert_eq!(rules(&[])["hint"], "");
    let line = rules(&other);
    assert!(
        line["ok"] == true && line["hint"].as_str().unwrap().contains("check --adopt"),
        "{line}"
    );
    assert!(line["detail"].as_str().unwrap().contains("has delivery.dead_retention 14d"), "{line}");
    assert_eq!(rules(&[&["--adopt"], &other[..]].concat())["hint"], "");
    assert_eq!(rules(&other)["hint"], "");
    assert_ne!(rules(&[])["hint"], "", "the settings of the others are not what is kept now");
}

#[tokio::test]
async fn a_target_that_nothing_takes_is_a_warning() {
    let fixture = Fixture::new().await;
    let said = fixture.run(&[
        "check",
        "-o",
        "json",
        "--set",
        "brokers.main.allow=[\"orders.>\", \"invoices\", \"orders.close\", \"bills.>\"]",
    ]);
    assert_eq!(said.code, 0, "{said:?}");
    let lines = said.lines();
    let warnings: Vec<&Value> =
        lines.iter().filter(|line| line["check"] == "brokers.main.allow").collect();
    let details: Vec<&Value> = warnings.iter().map(|warning| &warning["detail"]).collect();
    let nothing = |at: &str| {
        format!("nothing takes messages at `{at}`: jobs for it would be retried, and die")
    };
    assert_eq!(details, [&nothing("invoices"), &nothing("bills.>")]);
    assert!(
        warnings.iter().all(|warning| warning["ok"] == true && warning["hint"] != ""),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn offline_reaches_no_server() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dwell.toml");
    // Nothing listens on port 1.
    std::fs::write(
        &file,
        format!(
            "[redis]\nurls = [\"redis://:{SECRET}@127.0.0.1:1\"]\n[brokers.main]\ntype = \"nats\"\nurl = \
             \"nats://me:{SECRET}@127.0.0.1:1\"\nallow = [\"orders.>\"]\n[ingest.main]\nbroker = \"main\"\n"
        ),
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let said = run_with(&["check", "--offline", "-c", path, "-o", "json"], b"");
    assert_eq!((said.code, names(&said)), (0, vec!["settings".to_owned()]), "{said:?}");
    let said = run_with(&["check", "-c", path, "-o", "json"], b"");
    let failed: Vec<(String, String)> = said
        .lines()
        .iter()
        .filter(|line| line["ok"] == false)
        .map(|line| {
            (
                line["check"].as_str().unwrap().to_owned(),
                line["detail"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    assert_eq!(said.code, 69);
    assert_eq!(
        failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ALL[1..].iter().copied().filter(|name| *name != "time_zones").collect::<Vec<_>>(),
        "what could not be looked at is no pass"
    );
    assert!(failed[0].1.contains("redis://:***@127.0.0.1:1"), "{failed:?}");
    assert_eq!(failed[1].1, "skipped: see redis");
}

#[tokio::test]
async fn every_mistake_is_told_in_one_run_with_its_source_and_hint() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dwell.toml");
    let text = format!(
        "[redis]\nbuckets = 0\nurls = [\"http://:{SECRET}@h\"]\n[brokers.main]\ntype = \"nats\"\nurl = \"nats://{SECRET}@h:99999\"\nallow = \
         [\"orders.>\"]\n[ingest.main]\nbroker = \"mian\"\nrejected = \"delay.in\"\n[delivery]\nretry = [\"soon\"]\n[http]\nlisten = \
         \"0.0.0.0:7464\"\n[probes]\nport = 1\n"
    );
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let arguments = ["-c", path, "--set", "limits.max_body=huge"];
    let said = run_with(&[&["check", "-o", "json"], &arguments[..]].concat(), b"");
    assert_eq!((said.code, said.err.as_str()), (78, ""));
    let lines = said.lines();
    let found: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            (
                line["check"].as_str().unwrap(),
                line["detail"].as_str().unwrap().split(": ").next().unwrap(),
            )
        })
        .collect();
    let at = |line: u32| format!("{path}:{line}");
    let wanted = [
        ("redis.buckets", at(2)),
        ("redis.urls", at(3)),
        ("brokers.main.url", at(6)),
        ("ingest.main.broker", at(9)),
        ("ingest.main.rejected", at(10)),
        ("delivery.retry", at(12)),
        ("limits.max_body", "--set limits.max_body".to_owned()),
        ("http.listen", at(14)),
        ("probes.port", at(16)),
    ];
    assert_eq!(
        found,
        wanted.iter().map(|(key, source)| (*key, source.as_str())).collect::<Vec<_>>()
    );
    for line in &lines {
        assert!(line["ok"] == false && line["detail"] != "", "{line}");
        assert_ne!(line["hint"], "", "{line}");
    }
    let ran = run_with(&[&["run"], &arguments[..]].concat(), b"");
    assert_eq!((ran.code, ran.out.as_str()), (78, ""));
    // Lines of the log, each a mistake.
    let logged: Vec<Value> =
        ran.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = logged
        .iter()
        .map(|line| (&line["level"], &line["exit_code"], &line["setting"], &line["hint"]))
        .collect();
    let (error, code) = (Value::from("ERROR"), Value::from(78));
    assert_eq!(
        told,
        lines.iter().map(|line| (&error, &code, &line["check"], &line["hint"])).collect::<Vec<_>>()
    );
}
