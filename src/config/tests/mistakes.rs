//! All mistakes in settings are reported at once, each with its source and hint.

use super::*;

#[test]
fn every_problem_names_its_source() {
    let given = Given::least("[delivery]\nttr = \"soon\"")
        .env("DWELL_LIMITS__MAX_BODY", "big")
        .set("shutdown.drain", "long");
    let found: Vec<_> =
        given.problems().into_iter().map(|problem| (problem.key, problem.source)).collect();
    let wanted = [
        ("delivery.ttr", "dwell.toml:11"),
        ("limits.max_body", "DWELL_LIMITS__MAX_BODY"),
        ("shutdown.drain", "--set shutdown.drain"),
    ];
    assert_eq!(found, wanted.map(|(key, source)| (key.to_owned(), source.to_owned())));
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = r#"
[redis]
mode = "singel"
bukkets = 3
buckets = 5000
assume_fsync = "yes"
[brokers.main]
type = "nats"
url = "nats://127.0.0.1:4222"
[brokers.Other]
type = "rabbit"
allow = []
[ingest.main]
broker = "mian"
topic = ""
[ingest.second]
[delivery]
retry = "2m"
publish_timeout = "0"
[https]
listen = ""
"#;
    let problems = Given::file(text).problems();
    let found: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
    let mut wanted = vec![
        "redis.assume_fsync",
        "redis.buckets",
        "redis.bukkets",
        "redis.mode",
        "brokers.main.allow",
        "brokers.Other.type",
        "brokers.Other",
        "ingest.main.broker",
        "ingest.main.topic",
        "ingest.second.broker",
        "delivery.retry",
        "delivery.publish_timeout",
        "https",
    ];
    wanted.sort_unstable();
    let mut sorted = found.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, wanted, "{problems:#?}");
    assert!(
        problems
            .iter()
            .all(|problem| !problem.hint.is_empty() && problem.source.starts_with("dwell.toml")),
        "{problems:#?}"
    );
}

#[test]
fn an_unknown_key_tells_what_was_meant() {
    for (text, key, hint) in [
        ("[redis]\nurl = \"x\"", "redis.url", "did you mean `urls`?"),
        (
            "[delivery]\npublish_timout = \"1s\"",
            "delivery.publish_timout",
            "did you mean `publish_timeout`?",
        ),
        ("[limit]\nmax_body = \"1MiB\"", "limit", "did you mean `limits`?"),
        ("[http]\ndrain = \"1s\"", "http.drain", "it belongs to another section: `shutdown.drain`"),
        (
            "[ingest.other]\nbroker = \"main\"\ntopic = \"b\"\ngruop = \"x\"",
            "ingest.other.gruop",
            "did you mean `group`?",
        ),
        (
            "[brokers.other]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = []\npasword = \"hush\"",
            "brokers.other.pasword",
            "did you mean `password`?",
        ),
        (
            "[brokers.other]\ntype = \"nat\"\nurl = \"nats://h\"\nallow = []",
            "brokers.other.type",
            "did you mean \"nats\"?",
        ),
        (
            "[ingest.other]\nbroker = \"mian\"\ntopic = \"b\"",
            "ingest.other.broker",
            "did you mean \"main\"?",
        ),
        ("[delivery]\nlate = \"dropp\"", "delivery.late", "did you mean \"drop\"?"),
    ] {
        let problem = Given::least(text).problem();
        assert_eq!((problem.key.as_str(), problem.hint.as_str()), (key, hint));
    }
    let problem =
        Given::least("[ingest.other]\nbroker = \"main\"\ntopic = \"b\"\nqueue = \"b\"").problem();
    assert_eq!(problem.hint, "write `topic`, which names a topic, a queue or a subject");
    let problem = Given::least("[probes]\nfrequency = 3").problem();
    assert_eq!(problem.hint, "remove it; known here: listen");
    let problem = Given::least("").env("DWELL_REDIS__URL", "x").problem();
    assert_eq!(
        (problem.source.as_str(), problem.hint.as_str()),
        ("DWELL_REDIS__URL", "did you mean `urls`?")
    );
    let problem = Given::least("").env("DWELL_RADIO__CHANNEL", "x").problem();
    assert_eq!(problem.source, "DWELL_RADIO__CHANNEL");
}

#[test]
fn each_wrong_wait_is_told_and_a_limit_quotes_what_was_written() {
    let problems = Given::least("[delivery]\nretry = [\"soon\", \"1s\", \"later\"]").problems();
    let told: Vec<_> =
        problems.iter().map(|problem| (problem.key.as_str(), problem.source.as_str())).collect();
    assert_eq!(told, [("delivery.retry", "dwell.toml:11"); 2], "{problems:#?}");
    assert!(problems[0].message.contains("soon") && problems[1].message.contains("later"));
    let (ttr, size) = (
        "write at most 12h, or raise limits.max_ttr",
        "write at least 1MiB, which is limits.max_body",
    );
    for (text, shown, hint) in [
        ("[delivery]\nttr = \"1000m\"", "`1000m`", ttr),
        ("[delivery]\nttr = \"60d\"", "`60d`", ttr),
        ("[queues.a]\nttr = \"60d\"", "`60d`", ttr),
        ("[delivery]\nmax_in_flight_bytes = \"1kB\"", "`1kB`", size),
        ("[delivery]\nmax_in_flight_bytes = \"0\"", "`0`", size),
        ("[limits]\nmax_inbound_bytes = \"0\"", "`0`", size),
    ] {
        let problem = Given::least(text).problem();
        assert!(problem.message.contains(shown), "{problem}");
        assert_eq!(problem.hint, hint);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_the_only_problem() {
    let given = Given::file("[redis\nmode = 1");
    assert_eq!(given.problem().source, "dwell.toml:1");
    let problems =
        load_from(Some(&given.path("other.toml")), &[], &Overrides::default()).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].message.contains("no such file"));
}

#[test]
fn nothing_at_all_says_where_to_begin() {
    let problems = load_from(None, &[], &Overrides::default()).unwrap_err();
    assert_eq!(
        (problems.len(), problems[0].key.as_str(), problems[0].source.as_str()),
        (1, "brokers", "no settings file")
    );
    assert!(problems[0].hint.contains("--config"));
}

#[test]
fn an_empty_table_of_brokers_is_told_too() {
    assert_eq!(Given::file("[brokers]").problem().message, "there is neither a broker nor a queue");
    assert_eq!(Given::file("[queues]\n[brokers]").problem().key, "brokers");
}

/// Any value at any key causes at most problems, never a panic, and never shows a secret.
#[test]
fn nothing_that_is_written_breaks_the_reader() {
    let written = [
        "\"hush\"",
        "\"\"",
        "-1",
        "18446744073709551615",
        "1e308",
        "nan",
        "true",
        "[]",
        "[\"hush\", 5, [[]]]",
        "{}",
        "{ hush = \"hush\" }",
        "2026-01-31T12:00:00Z",
    ];
    let leaves: Vec<Vec<String>> = shape::Shape::of_settings()
        .paths()
        .into_iter()
        .map(|path| path.into_iter().map(|name| name.replace('*', "other")).collect())
        .collect();
    let given = Given::file("");
    for value in written {
        let mut problems = Vec::new();
        let lines: Vec<_> =
            leaves.iter().map(|path| format!("{} = {value}", path.join("."))).collect();
        let tables = [
            "redis",
            "brokers",
            "brokers.other",
            "ingest",
            "ingest.other",
            "queues",
            "queues.other",
            "http.tokens",
            "http.tokens.other",
        ]
        .map(|table| format!("{table} = {value}"));
        for text in [lines.join("\n")].iter().chain(&tables) {
            given.write(text);
            problems.extend(given.load().err().unwrap_or_default());
        }
        for path in &leaves {
            let kind = ("DWELL_BROKERS__OTHER__TYPE".to_owned(), "nats".to_owned());
            let variable = (format!("DWELL_{}", path.join("__").to_uppercase()), value.to_owned());
            problems.extend(
                load_from(None, &[kind, variable], &Overrides::default()).err().unwrap_or_default(),
            );
        }
        for problem in problems {
            let secret = problem.key.split('.').any(secret::is_secret);
            assert!(!secret || !problem.to_string().contains("hush"), "{value}: {problem}");
        }
    }
}

#[test]
fn a_mistake_in_a_list_of_allow_names_the_pattern_and_its_line() {
    let text = "[brokers.hook]\ntype = \"http\"\nallow = [\n  \"https://app.internal/*\",\n  \"https://me:secret@app.internal/?token=secret\", \"\",\n  \"ftp://app.internal/*\",\n]\n";
    let problems = Given::file(text).problems();
    let found: Vec<_> = problems
        .iter()
        .map(|problem| (problem.key.as_str(), problem.source.rsplit(':').next().unwrap()))
        .collect();
    assert_eq!(
        found,
        [("brokers.hook.allow", "5"), ("brokers.hook.allow", "5"), ("brokers.hook.allow", "6")],
        "{problems:#?}"
    );
    for (problem, (pattern, why)) in problems.iter().zip([
        ("https://***@app.internal/", "user info"),
        ("``", "empty"),
        ("`ftp://app.internal/*`", "the scheme of the URL"),
    ]) {
        assert!(problem.message.contains(pattern) && problem.message.contains(why), "{problem:?}");
        assert!(!problem.message.contains("secret"), "{problem:?}");
    }
    let set = Given::least("")
        .set("brokers.hook.type", "http")
        .set("brokers.hook.allow", "[\"ftp://app.internal/*\"]")
        .problems();
    assert!(
        set.len() == 1
            && set[0].source == "--set brokers.hook.allow"
            && set[0].message.contains("ftp://app.internal/*"),
        "{set:#?}"
    );
}
