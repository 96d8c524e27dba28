//! Settings that refuse to start, and the words of `dwell check` on the hosts.

use dwell_testkit::servers::{Port, RedisOptions, RedisServer};
use serde_json::Value;

use super::fixture::broker;
use super::receiver::Receiver;
use crate::commands::fixture::run_with;

/// The mistakes that `dwell check` finds in these settings, as key and sentence with hint. It and
/// `dwell run` exit 78.
fn mistakes(settings: &str) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    std::fs::write(&file, settings).unwrap();
    let path = file.to_str().unwrap();
    let ran = run_with(&["run", "-c", path], b"");
    assert_eq!(ran.code, 78, "{settings}: {ran:?}");
    let said = run_with(&["check", "--offline", "-c", path, "-o", "json"], b"");
    assert_eq!(said.code, 78, "{settings}: {said:?}");
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    said.lines()
        .iter()
        .map(|line| {
            (text(line, "check"), format!("{} | {}", text(line, "detail"), text(line, "hint")))
        })
        .collect()
}

#[test]
fn a_mistake_is_named_and_ends_the_start() {
    let hook = |more: &str| {
        format!("[brokers.hook]\ntype = \"http\"\nallow = [\"https://app.internal/*\"]\n{more}\n")
    };
    for (settings, key, words) in [
        (
            hook("[ingest.main]\nbroker = \"hook\""),
            "ingest.main.broker",
            &[
                "a broker of type \"http\" takes messages, and none can be read from it",
                "POST /v1/jobs",
            ][..],
        ),
        (
            hook("timeout = \"16s\""),
            "brokers.hook.timeout",
            &["longer than delivery.publish_timeout, 15s", "raise delivery.publish_timeout"],
        ),
        (
            hook("timeout = \"6s\"\n[delivery]\npublish_timeout = \"5s\""),
            "brokers.hook.timeout",
            &["longer than delivery.publish_timeout, 5s"],
        ),
        (
            hook("subnets = [\"10.0.0.0/33\"]"),
            "brokers.hook.subnets",
            &["`10.0.0.0/33` is no subnet"],
        ),
        (hook("secret_file = \"/nowhere\""), "brokers.hook.secret_file", &["cannot read /nowhere"]),
        (
            hook("dead = \"http://10.0.0.1/\""),
            "brokers.hook.dead",
            &["a private address", "`subnets`"],
        ),
        (hook("url = \"https://app.internal/\""), "brokers.hook.url", &["no such setting"]),
        (
            hook("").replace("app.internal", "*"),
            "brokers.hook.allow",
            &["have a `*`", "https://app.internal/hooks/*"],
        ),
        (hook("").replace("https", "ftp"), "brokers.hook.allow", &["scheme"]),
    ] {
        let found = mistakes(&settings);
        let [(found_key, sentence)] = &found[..] else { panic!("{settings}: {found:?}") };
        assert!(
            found_key == key && words.iter().all(|word| sentence.contains(word)),
            "{settings}: {found:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_says_which_hosts_can_be_reached() {
    let (redis, receiver, closed) = (
        RedisServer::start(RedisOptions::default()).await.unwrap(),
        Receiver::always(200).await,
        Port::reserve().unwrap(),
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    let by_name = receiver.url("/*").replace("127.0.0.1", "localhost");
    let closed = format!("http://127.0.0.1:{}", closed.number());
    let open = broker("hook", &[&receiver], "dead = \"http://127.0.0.1:1/letters?token=hush\"")
        .replace("/*\"", &format!("/*\", \"{closed}/*\", \"https://nothing.invalid/*\""));
    let guarded = format!(
        "[brokers.guarded]\ntype = \"http\"\nallow = [\"{}\", \"{by_name}\"]\n",
        receiver.url("/*")
    );
    let listeners = "[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(
        &file,
        format!("[redis]\nurls = [\"{}\"]\n{open}{guarded}{listeners}", redis.url()),
    )
    .unwrap();
    // The checks block this thread; the receiver has another.
    let said = run_with(&["check", "-c", file.to_str().unwrap(), "-o", "json"], b"");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.out.contains("hush") && !said.err.contains("hush"), "{said:?}");
    let lines = said.lines();
    let of = |name: &str| {
        let lines = lines.iter().filter(|line| line["check"] == format!("brokers.{name}.allow"));
        lines
            .map(|line| (line["detail"].as_str().unwrap(), line["hint"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let origin = receiver.url("");
    let hook = of("hook");
    assert_eq!(
        hook[0],
        (format!("`{origin}` takes connections (it is 127.0.0.1)").as_str(), ""),
        "{hook:?}"
    );
    assert!(
        hook[1].0.starts_with(&format!("`{closed}` cannot be reached: "))
            && hook[1].1.contains("start the server"),
        "{hook:?}"
    );
    assert!(
        hook[2].0.starts_with("`https://nothing.invalid` cannot be reached: ")
            && !hook[2].1.is_empty(),
        "{hook:?}"
    );
    for (detail, hint) in of("guarded") {
        assert!(
            detail.contains("loopback address")
                && detail.contains("`subnets`")
                && hint.contains("`subnets`"),
            "{detail} {hint}"
        );
    }
    assert_eq!((hook.len(), of("guarded").len()), (3, 2));
    let dead = lines.iter().find(|line| line["check"] == "brokers.hook.dead").unwrap();
    assert!(
        dead["detail"].as_str().unwrap().starts_with("`http://127.0.0.1:1` cannot be reached: "),
        "{dead}"
    );
    assert!(receiver.seen().is_empty(), "no request is sent");
}
