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
        for shown in problems.iter().flat_map(|problem| [problem.to_string(), format!("{problem:?}")]) {
            assert!(!shown.contains("hush"), "{text}: {shown}");
        }
    }
    let problem = Given::least("[brokers.b]\ntype = \"nats\"\nallow = []\nurl = \"nats://h\"\npassword = 271828").problem();
    assert!(!problem.to_string().contains("271828"), "{problem}");

    let right = "[redis]\nurls = [\"redis://me:hush@h\"]\n[brokers.b]\ntype = \"amqp\"\nallow = []\nurl = \"amqp://h/v?password=hush\"";
    let right = Given::least(right).set("brokers.main.url", "nats://me:hush@127.0.0.1:4222").settings();
    let shown = format!("{right:?} {right:#?}");
    assert!(!shown.contains("hush"), "{shown}");
}
