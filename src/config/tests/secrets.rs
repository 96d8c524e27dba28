//! Secrets: read from files, and never shown.

use super::*;

#[test]
fn urls_come_from_a_file() {
    let given = Given::least("").also("urls", "redis://:hush@a\nredis://:hush@b\n");
    let urls = given.path("urls").display().to_string();
    let given = given.set("redis.urls_file", &urls).set("redis.mode", "cluster");
    assert_eq!(given.settings().redis.urls, ["redis://:hush@a", "redis://:hush@b"]);
    let problem = given.set("redis.urls", "redis://c").problem();
    assert_eq!((problem.key.as_str(), problem.source.as_str()), ("redis.urls", "--set redis.urls"));
}

#[test]
fn no_secret_is_ever_shown() {
    let wrong = [
        "[redis]\nurls = [\"redis://me:hush@h:port\"]",
        "[redis]\nurls = [\"hush://me:hush@h\", \"redis:hush\", 5]",
        "[redis]\nurls = \"redis://:hush@h\"",
        "[redis]\nmode = \"cluster\"\nurls = [\"redis://:hush@h\", \"redis://:hush@h\"]",
        "[redis]\nurl = \"redis://:hush@h\"",
        "[brokers.b]\ntype = \"nats\"\nallow = []\nurl = { is = \"nats://me:hush@h\" }",
        "[brokers.b]\ntype = \"nats\"\nallow = []\nurl = \"nats://h\"\npasswrd = \"hush\"",
        "[brokers.b]\ntype = \"nats\"\nallow = []\nurl = \"nats://h\"\ntoken = [\"hush\"]",
        "[brokers.b]\ntype = \"nats\"\nallow = []\npassword = \"hush",
        "[brokers.b]\ntype = \"nats\"\nallow = []\npassword = hush",
    ];
    for text in wrong {
        let problems = Given::least(text).problems();
        for shown in
            problems.iter().flat_map(|problem| [problem.to_string(), format!("{problem:?}")])
        {
            assert!(!shown.contains("hush"), "{text}: {shown}");
        }
    }
    let problem = Given::least(
        "[brokers.b]\ntype = \"nats\"\nallow = []\nurl = \"nats://h\"\npassword = 271828",
    )
    .problem();
    assert!(!problem.to_string().contains("271828"), "{problem}");

    let right = "[redis]\nurls = [\"redis://me:hush@h\"]\n[brokers.b]\ntype = \"amqp\"\nallow = []\nurl = \"amqp://h/v?password=hush\"";
    let right =
        Given::least(right).set("brokers.main.url", "nats://me:hush@127.0.0.1:4222").settings();
    let shown = format!("{right:?} {right:#?}");
    assert!(!shown.contains("hush"), "{shown}");
    let redis = Redis { sentinel_password: Some("hush".to_owned()), ..right.redis };
    let shown = serde_json::to_string(&redis).unwrap();
    assert!(shown.contains("redis://me:***@h") && !shown.contains("hush"), "{shown}");
}

#[test]
fn a_login_in_a_wrong_setting_is_not_shown() {
    for password in ["hush", "hush17", "hu:sh", "hu/sh", "99999", "17hush"] {
        let login = format!("bob:{password}");
        for text in [
            format!("[delivery]\nttr = \"{login}\""),
            format!("[ingest.main]\nstart = \"{login}\""),
        ] {
            for problem in Given::least(&text).problems() {
                let shown = format!("{problem} {problem:?}");
                assert!(!shown.contains(password), "{text}: {shown}");
            }
        }
    }
    // Text that is no login helps to find the mistake.
    for (text, shown) in [
        ("[delivery]\nttr = \"soon\"", "soon"),
        ("[delivery]\nttr = \"h:6379\"", "h:6379"),
        ("[delivery]\nttr = \"2026-01-01T00:00:00Z\"", "2026-01-01T00:00:00Z"),
        ("[delivery]\nttr = \"dwell::runtime\"", "dwell::runtime"),
        ("[delivery]\nttr = \"https://*.internal/*\"", "https://*.internal/*"),
    ] {
        let problem = Given::least(text).problem().to_string();
        assert!(problem.contains(shown), "{text}: {problem}");
    }
}
