//! Tests of the settings as a whole: precedence, sources, every rule, all mistakes at once, and no secret anywhere.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// The least that a settings file can say.
const LEAST: &str = r#"
[brokers.main]
type = "nats"
url = "nats://127.0.0.1:4222"
allow = ["orders.>"]

[ingest.main]
broker = "main"
"#;

struct Given {
    folder: TempDir,
    env: Vec<(String, String)>,
    overrides: Overrides,
}

impl Given {
    fn file(text: &str) -> Self {
        let given = Given { folder: TempDir::new().unwrap(), env: Vec::new(), overrides: Overrides::default() };
        given.write(text);
        given
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path("dwell.toml"), text).unwrap();
    }

    /// The least, and this.
    fn least(text: &str) -> Self {
        Given::file(&format!("{LEAST}\n{text}"))
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn set(mut self, key: &str, value: &str) -> Self {
        self.overrides.set.push((key.to_owned(), value.to_owned()));
        self
    }

    fn also(self, name: &str, text: &str) -> Self {
        std::fs::write(self.folder.path().join(name), text).unwrap();
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn load(&self) -> Result<Settings, Vec<Problem>> {
        load_from(Some(&self.path("dwell.toml")), &self.env, &self.overrides)
    }

    fn settings(&self) -> Settings {
        self.load().unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    /// The problems, the file's folder left out of their sources.
    fn problems(&self) -> Vec<Problem> {
        let mut problems = self.load().unwrap_err();
        for problem in &mut problems {
            problem.source = problem.source.replace(&format!("{}/", self.folder.path().display()), "");
        }
        problems
    }

    /// The only problem.
    fn problem(&self) -> Problem {
        let problems = self.problems();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        problems.into_iter().next().unwrap()
    }
}

#[test]
fn defaults_stand_where_nothing_is_written() {
    let settings = Given::least("").settings();
    assert_eq!(settings.redis.urls, ["redis://127.0.0.1:6379"]);
    assert_eq!((settings.redis.buckets, settings.redis.durability), (16, Durability::Memory));
    assert_eq!(settings.brokers["main"].allow, ["orders.>"]);
    assert_eq!(settings.brokers["main"].connector.kind(), "nats");
    let ingest = &settings.ingest["main"];
    assert_eq!((ingest.topic.as_str(), ingest.group.as_str(), ingest.rejected.as_str()), ("delay.in", "dwell", "delay.rejected"));
    assert_eq!(settings.delivery.retry_ms, [120_000, 600_000, 600_000, 3_600_000, 7_200_000, 21_600_000, 54_000_000]);
    assert_eq!((settings.delivery.ttr_ms, settings.delivery.publish_timeout_ms), (30_000, 15_000));
    assert_eq!((settings.delivery.max_late_ms, settings.delivery.max_in_flight_bytes), (None, 64 << 20));
    assert_eq!((settings.limits.max_delay_ms, settings.limits.max_body), (366 * 86_400_000, 1 << 20));
    assert_eq!((settings.http.listen.as_str(), settings.http.token_file), ("127.0.0.1:7464", None));
    assert_eq!(settings.shutdown.drain_ms, 10_000);
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let given = Given::least("[delivery]\nttr = \"1s\"\nlate = \"drop\"\nconfirm = \"consumer\"")
        .env("DWELL_DELIVERY__TTR", "2s")
        .env("DWELL_DELIVERY__LATE", "dead")
        .set("delivery.ttr", "3s");
    let delivery = given.settings().delivery;
    assert_eq!((delivery.ttr_ms, delivery.late, delivery.confirm), (3000, Late::Dead, Confirm::Consumer));
}

#[test]
fn the_environment_alone_is_enough() {
    let env = [
        ("DWELL_BROKERS__MAIN__TYPE", "nats"),
        ("DWELL_BROKERS__MAIN__URL", "nats://127.0.0.1:4222"),
        ("DWELL_BROKERS__MAIN__ALLOW", "orders.>, bills.>"),
        ("DWELL_REDIS__URLS", r#"["redis://127.0.0.1:6379"]"#),
        ("DWELL_INGEST__MAIN__BROKER", "main"),
        ("DWELL_INGEST__MAIN__TOPIC", "later"),
        ("DWELL_INGEST__MAIN__DECLARE", "true"),
        ("DWELL_REDIS__BUCKETS", "32"),
        ("DWELL_DELIVERY__RETRY", ""),
    ];
    let env: Vec<_> = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let settings = load_from(None, &env, &Overrides::default()).unwrap();
    assert_eq!(settings.brokers["main"].allow, ["orders.>", "bills.>"]);
    assert_eq!(settings.redis.urls, ["redis://127.0.0.1:6379"]);
    assert_eq!((settings.ingest["main"].topic.as_str(), settings.ingest["main"].declare), ("later", true));
    assert_eq!((settings.redis.buckets, settings.delivery.retry_ms.len()), (32, 0));
}

#[test]
fn a_variable_is_never_taken_for_another_type() {
    for password in ["12345", "007", "true", "[a]", "{", "\"", "1e3", "a,b", " a "] {
        let given = Given::least("").env("DWELL_BROKERS__MAIN__USER", "me").env("DWELL_BROKERS__MAIN__PASSWORD", password);
        let (layers, _) = layers::Layers::read(Some(&given.path("dwell.toml")), &given.env, &given.overrides);
        let (value, _) = walk::walk(&layers, shape::Shape::of_settings());
        assert_eq!(value.find("brokers.main.password").unwrap().as_str(), Some(password));
        given.settings();
    }
}

#[test]
fn variables_that_are_no_settings_do_not_disturb() {
    let given =
        Given::least("").env("DWELL_CONFIG", "x").env("DWELL_PORT", "tcp://10.0.0.1:80").env("DWELL_REDIS_SERVICE_HOST", "10.0.0.2");
    given.settings();
}

#[test]
fn a_variable_with_too_few_underscores_is_told() {
    for (name, meant) in [
        ("DWELL_REDIS_URLS", "DWELL_REDIS__URLS"),
        ("DWELL_DELIVERY_PUBLISH_TIMEOUT", "DWELL_DELIVERY__PUBLISH_TIMEOUT"),
        ("DWELL_INGEST_MAIN_TOPIC", "DWELL_INGEST__MAIN__TOPIC"),
        ("DWELL_BROKERS_MAIN_PASSWORD", "DWELL_BROKERS__MAIN__PASSWORD"),
    ] {
        let problem = Given::least("").env(name, "x").problem();
        assert_eq!((problem.source.as_str(), problem.mend), (name, format!("rename it {meant}")));
    }
}

#[test]
fn every_problem_names_its_source() {
    let given = Given::least("[delivery]\nttr = \"soon\"").env("DWELL_LIMITS__MAX_BODY", "big").set("shutdown.drain", "long");
    let found: Vec<_> = given.problems().into_iter().map(|problem| (problem.key, problem.source)).collect();
    let wanted =
        [("delivery.ttr", "dwell.toml:11"), ("limits.max_body", "DWELL_LIMITS__MAX_BODY"), ("shutdown.drain", "--set shutdown.drain")];
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
    assert!(problems.iter().all(|problem| !problem.mend.is_empty() && problem.source.starts_with("dwell.toml")), "{problems:#?}");
}

#[test]
fn an_unknown_key_tells_what_was_meant() {
    for (text, key, mend) in [
        ("[redis]\nurl = \"x\"", "redis.url", "did you mean `urls`?"),
        ("[delivery]\npublish_timout = \"1s\"", "delivery.publish_timout", "did you mean `publish_timeout`?"),
        ("[limit]\nmax_body = \"1MiB\"", "limit", "did you mean `limits`?"),
        ("[http]\ndrain = \"1s\"", "http.drain", "it belongs to another section: `shutdown.drain`"),
        ("[ingest.other]\nbroker = \"main\"\ntopic = \"b\"\ngruop = \"x\"", "ingest.other.gruop", "did you mean `group`?"),
        (
            "[brokers.other]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = []\npasword = \"hush\"",
            "brokers.other.pasword",
            "did you mean `password`?",
        ),
        ("[brokers.other]\ntype = \"nat\"\nurl = \"nats://h\"\nallow = []", "brokers.other.type", "did you mean \"nats\"?"),
        ("[ingest.other]\nbroker = \"mian\"\ntopic = \"b\"", "ingest.other.broker", "did you mean \"main\"?"),
        ("[delivery]\nlate = \"dropp\"", "delivery.late", "did you mean \"drop\"?"),
    ] {
        let problem = Given::least(text).problem();
        assert_eq!((problem.key.as_str(), problem.mend.as_str()), (key, mend));
    }
    let problem = Given::least("[probes]\nfrequency = 3").problem();
    assert_eq!(problem.mend, "remove it; known here: listen");
    let problem = Given::least("").env("DWELL_REDIS__URL", "x").problem();
    assert_eq!((problem.source.as_str(), problem.mend.as_str()), ("DWELL_REDIS__URL", "did you mean `urls`?"));
    let problem = Given::least("").env("DWELL_RADIO__CHANNEL", "x").problem();
    assert_eq!(problem.source, "DWELL_RADIO__CHANNEL");
}

/// One broken rule a line: the text, the setting that is blamed, and a part of the message or mend.
#[test]
fn every_rule_is_kept() {
    for (text, key, part) in [
        ("[redis]\nbuckets = 0", "redis.buckets", "from 1 to 1024"),
        ("[redis]\nbuckets = 1025", "redis.buckets", "from 1 to 1024"),
        ("[redis]\nbuckets = -1", "redis.buckets", "from 1 to 1024"),
        ("[redis]\nbuckets = 1.5", "redis.buckets", "a fraction"),
        ("[redis]\nbuckets = \"16\"", "redis.buckets", "without quotes"),
        ("[redis]\nnamespace = \"\"", "redis.namespace", "empty"),
        ("[redis]\nnamespace = \"a{b}\"", "redis.namespace", "brace"),
        ("[redis]\nnamespace = \"a\\u0007\"", "redis.namespace", "control"),
        ("[redis]\nurls = []", "redis.urls", "no URL"),
        ("[redis]\nurls = [\"http://h\"]", "redis.urls", "`http` is not a scheme"),
        ("[redis]\nurls = [\"h:6379\"]", "redis.urls", "not a URL"),
        ("[redis]\nurls = [\"redis://:6379\"]", "redis.urls", "no host"),
        ("[redis]\nurls = [\"redis://h:port\"]", "redis.urls", "port"),
        ("[redis]\nurls = [\"redis://h\", \"redis://i\"]", "redis.urls", "takes one URL"),
        ("[redis]\nmode = \"cluster\"\nurls = [\"redis://h\", \"redis://h\"]", "redis.urls", "twice"),
        ("[redis]\nmode = \"sentinel\"\nmaster = \"\"", "redis.master", "empty"),
        ("[redis]\nurls_file = \"/nowhere/urls\"", "redis.urls_file", "no such file"),
        ("[redis]\ndurability = \"disk\"", "redis.durability", "\"fsync+replica\""),
        ("[brokers.\"a b\"]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = []", "brokers.a b", "name cannot be used"),
        ("[brokers.b]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = [\"\"]", "brokers.b.allow", "empty"),
        ("[brokers.b]\ntype = \"amqp\"\nurl = \"amqp://h\"\nallow = [\"orders\"]", "brokers.b.allow", "has no `/`"),
        ("[brokers.b]\ntype = \"nats\"\nurl = \"nats://h\"", "brokers.b.allow", "missing"),
        ("[brokers.b]\ntype = \"nats\"\nallow = []", "brokers.b", "url"),
        ("[brokers.b]\nallow = []", "brokers.b.type", "missing"),
        ("[brokers.\"a.b\"]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = []", "brokers.a.b", "name cannot be used"),
        ("[ingest.z]\nbroker = \"main\"", "ingest.z.topic", "reads the same topic"),
        ("[ingest.z]\nbroker = \"gone\"\ntopic = \"b\"", "ingest.z.broker", "no broker \"gone\""),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"\"", "ingest.z.topic", "empty"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ngroup = \" \"", "ingest.z.group", "empty"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nrejected = \"\"", "ingest.z.rejected", "empty"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nrejected = \"b\"", "ingest.z.rejected", "for ever"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ntarget = \"b\"", "ingest.z.target", "for ever"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ntarget = \"a.*\"", "ingest.z.target", "cannot be published to"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\nexchange = \"x\"", "ingest.z.exchange", "has no exchanges"),
        ("[ingest.z]\nbroker = \"main\"\ntopic = \"b\"\ndeclare = 1", "ingest.z.declare", "true or false"),
        ("[ingest.Z]\nbroker = \"main\"\ntopic = \"b\"", "ingest.Z", "name cannot be used"),
        ("[delivery]\nttr = \"0\"", "delivery.ttr", "too small"),
        ("[delivery]\nttr = \"13h\"", "delivery.ttr", "limits.max_ttr"),
        ("[delivery]\nttr = 30", "delivery.ttr", "in quotes"),
        ("[delivery]\npublish_timeout = \"99ms\"", "delivery.publish_timeout", "too small"),
        ("[delivery]\npublish_timeout = \"11m\"", "delivery.publish_timeout", "too large"),
        ("[delivery]\nretry = [\"2m\", \"later\"]", "delivery.retry", "later"),
        ("[limits]\nmax_retries = 6", "delivery.retry", "limits.max_retries is 6"),
        ("[limits]\nmax_retries = 1001", "limits.max_retries", "from 0 to 1000"),
        ("[delivery]\nmax_late = \"1 month\"", "delivery.max_late", "1 month"),
        ("[delivery]\ndead = \"delay.in\"", "delivery.dead", "would come back"),
        ("[delivery]\ndead = \"dead.*\"", "delivery.dead", "cannot be published to"),
        ("[delivery]\ndedupe_window = \"0\"", "delivery.dedupe_window", "too small"),
        ("[delivery]\nmax_in_flight = 0", "delivery.max_in_flight", "from 1"),
        ("[delivery]\nmax_in_flight_bytes = \"1kB\"", "delivery.max_in_flight_bytes", "limits.max_body"),
        ("[limits]\nmax_delay = \"0\"", "limits.max_delay", "too small"),
        ("[limits]\nmax_delay = \"101y\"", "limits.max_delay", "101y"),
        ("[limits]\nmax_body = \"1GiB\"", "limits.max_body", "too large"),
        ("[limits]\nmax_ttr = \"50d\"", "limits.max_ttr", "too large"),
        ("[http]\nlisten = \"0.0.0.0:7464\"", "http.listen", "no token"),
        ("[http]\nlisten = \"7464\"", "http.listen", "IP address"),
        ("[http]\ntoken_file = \"/nowhere/token\"", "http.token_file", "no such file"),
        ("[probes]\nlisten = \"localhost\"", "probes.listen", "IP address"),
        ("[probes]\nlisten = \"127.0.0.1:7464\"", "probes.listen", "same address"),
        ("[shutdown]\ndrain = \"2h\"", "shutdown.drain", "too large"),
    ] {
        let problem = Given::least(text).problem();
        assert_eq!(problem.key, key, "{text}: {problem}");
        assert!(problem.to_string().contains(part), "{text}: {problem}");
        assert!(!problem.mend.is_empty() || key == "brokers.b", "{text}: {problem}");
    }
}

#[test]
fn what_is_unusual_and_right_is_taken() {
    for text in [
        "[redis]\nmode = \"sentinel\"\nurls = [\"redis://a:26379\", \"rediss://me:hush@[::1]:26379/3\"]",
        "[redis]\nmode = \"cluster\"\nurls = [\"redis://a\", \"redis://b\"]\ndurability = \"fsync+replica\"",
        "[http]\nlisten = \"[::1]:0\"",
        "[delivery]\nretry = []\ndead = \"\"\nmax_late = \"PT15M\"",
        "[brokers.dead_end-2]\ntype = \"nats\"\nurl = \"nats://h\"\nallow = []",
    ] {
        Given::least(text).settings();
    }
}

#[test]
fn a_token_opens_the_admin_api_to_others() {
    let given = Given::least("").also("token", "hush\n");
    let token = given.path("token").display().to_string();
    let given = given.set("http.listen", "0.0.0.0:7464").set("http.token_file", &token);
    assert_eq!(given.settings().http.token_file, Some(token.into()));
    let problem = given.also("token", "\n").problem();
    assert!(problem.message.contains("is empty"), "{problem}");
}

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
fn a_file_that_cannot_be_read_is_the_only_problem() {
    let given = Given::file("[redis\nmode = 1");
    assert_eq!(given.problem().source, "dwell.toml:1");
    let problems = load_from(Some(&given.path("other.toml")), &[], &Overrides::default()).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].message.contains("no such file"));
}

#[test]
fn nothing_at_all_says_where_to_begin() {
    let problems = load_from(None, &[], &Overrides::default()).unwrap_err();
    assert_eq!((problems.len(), problems[0].key.as_str(), problems[0].source.as_str()), (1, "brokers", "no settings file"));
    assert!(problems[0].mend.contains("--config"));
}

#[test]
fn an_empty_table_of_brokers_is_told_too() {
    assert_eq!(Given::file("[brokers]").problem().message, "there is no broker");
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

    let right = Given::least("[redis]\nurls = [\"redis://me:hush@h\"]").set("brokers.main.url", "nats://me:hush@127.0.0.1:4222").settings();
    let shown = format!("{right:?} {right:#?}");
    assert!(!shown.contains("hush"), "{shown}");
}

/// Any value in any place: a problem or none, never a panic, and never the value of a secret.
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
        let lines: Vec<_> = leaves.iter().map(|path| format!("{} = {value}", path.join("."))).collect();
        let tables = ["redis", "brokers", "brokers.other", "ingest", "ingest.other"].map(|table| format!("{table} = {value}"));
        for text in [lines.join("\n")].iter().chain(&tables) {
            given.write(text);
            problems.extend(given.load().err().unwrap_or_default());
        }
        for path in &leaves {
            let kind = ("DWELL_BROKERS__OTHER__TYPE".to_owned(), "nats".to_owned());
            let variable = (format!("DWELL_{}", path.join("__").to_uppercase()), value.to_owned());
            problems.extend(load_from(None, &[kind, variable], &Overrides::default()).err().unwrap_or_default());
        }
        for problem in problems {
            let secret = problem.key.split('.').any(secret::is_secret);
            assert!(!secret || !problem.to_string().contains("hush"), "{value}: {problem}");
        }
    }
}

/// Without its examples the file of defaults says what the code says.
#[test]
fn the_file_of_defaults_equals_the_code() {
    let text = include_str!("../../config/default.toml");
    let mut written: raw::Settings = toml::from_str(text).unwrap();
    let ingest = written.ingest.remove("main").unwrap();
    written.brokers.clear();
    let json = |value: &dyn Fn() -> serde_json::Result<serde_json::Value>| value().unwrap();
    assert_eq!(json(&|| serde_json::to_value(&written)), json(&|| serde_json::to_value(raw::Settings::default())));
    let default = raw::Ingest { broker: "main".to_owned(), ..raw::Ingest::default() };
    assert_eq!(json(&|| serde_json::to_value(&ingest)), json(&|| serde_json::to_value(&default)));
    // And as a whole it can be run.
    Given::file(text).settings();
}

/// Each setting stands in the file of defaults, commented out where it has none, with a few words on it.
#[test]
fn the_file_of_defaults_names_every_setting() {
    let mut named = Vec::new();
    let mut section = String::new();
    for line in include_str!("../../config/default.toml").lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.split(']').next().unwrap_or_default().replace(".main", ".*");
        } else if let Some((key, rest)) = line.trim_start_matches("# ").split_once(" = ").filter(|_| !section.is_empty()) {
            named.push(format!("{section}.{key}"));
            assert!(rest.split_once("# ").is_some_and(|(_, words)| words.len() > 10), "a word on {key}");
        }
    }
    let mut known: Vec<_> = shape::Shape::of_settings().paths().into_iter().map(|path| path.join(".")).collect();
    // A table of any names stands there as one.
    known.iter_mut().for_each(|path| path.truncate(path.trim_end_matches(".*").len()));
    known.sort_unstable();
    // What several kinds of broker have stands once.
    known.dedup();
    named.sort_unstable();
    assert_eq!(named, known);
}

#[test]
fn every_file_in_config_is_right() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            load_from(Some(&path), &[], &Overrides::default()).unwrap_or_else(|problems| panic!("{}: {problems:#?}", path.display()));
        }
    }
}

/// Every setting is described where an editor looks: a description on each key.
#[test]
fn the_schema_describes_every_key() {
    fn undescribed(shape: &shape::Shape, at: &str, found: &mut Vec<String>) {
        match shape {
            shape::Shape::Table(table) => {
                let tables = std::iter::once(table).chain(table.variants.iter().flat_map(|(_, tables)| tables.values()));
                for (name, key) in tables.flat_map(|table| &table.keys) {
                    if key.doc.is_empty() {
                        found.push(format!("{at}.{name}"));
                    }
                    undescribed(&key.shape, &format!("{at}.{name}"), found);
                }
            }
            shape::Shape::Named(inner) => undescribed(inner, &format!("{at}.*"), found),
            _ => {}
        }
    }
    let mut found = Vec::new();
    undescribed(shape::Shape::of_settings(), "", &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn properties_of_kafka_have_any_names_and_some_are_refused() {
    let with = |properties: &str| {
        format!(
            "[redis]\nurls = [\"redis://127.0.0.1:6379\"]\n[brokers.main]\ntype = \"kafka\"\nbootstrap = \"127.0.0.1:9092\"\nallow = [\"*\"]\n\
             properties = {properties}\n[ingest.main]\nbroker = \"main\"\n"
        )
    };
    Given::file(&with("{ \"linger.ms\" = 2, \"check.crcs\" = true, sasl.username = \"u\" }")).settings();
    let problems = format!("{:?}", Given::file(&with("{ acks = 0, no.such = \"x\" }")).load().unwrap_err());
    assert!(problems.contains("`acks` cannot be set") && problems.contains("`no.such` is no property"), "{problems}");
}
