//! Tests of the settings as a whole: precedence and sources; their rules, mistakes, secrets, files,
//! queues and listeners each in a module.

mod files;
mod listeners;
mod mistakes;
mod queues;
mod rules;
mod schedules;
mod secrets;
mod target_limits;

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::job::{Confirm, Late};

/// A minimal settings file.
const MINIMAL_SETTINGS: &str = r#"
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
        let given = Given {
            folder: TempDir::new().unwrap(),
            env: Vec::new(),
            overrides: Overrides::default(),
        };
        given.write(text);
        given
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path("dwell.toml"), text).unwrap();
    }

    /// The minimal file with these lines.
    fn least(text: &str) -> Self {
        Given::file(&format!("{MINIMAL_SETTINGS}\n{text}"))
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

    /// The problems, without the folder in their sources.
    fn problems(&self) -> Vec<Problem> {
        let mut problems = self.load().unwrap_err();
        for problem in &mut problems {
            problem.source =
                problem.source.replace(&format!("{}/", self.folder.path().display()), "");
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
    assert_eq!(
        (ingest.topic.as_str(), ingest.group.as_str(), ingest.rejected.as_str()),
        ("delay.in", "dwell", "delay.rejected")
    );
    assert_eq!((ingest.start, *ingest.max_age), (dwell_connectors::Start::Earliest, None));
    assert_eq!(
        *settings.delivery.retry,
        [120_000, 600_000, 600_000, 3_600_000, 7_200_000, 21_600_000, 54_000_000]
    );
    assert_eq!(
        (settings.delivery.ttr.ms(), settings.delivery.publish_timeout.ms()),
        (30_000, 15_000)
    );
    assert_eq!(
        (*settings.delivery.max_late, settings.delivery.max_in_flight_bytes.bytes()),
        (None, 64 << 20)
    );
    assert_eq!(
        (settings.limits.max_delay.ms(), settings.limits.max_body.bytes()),
        (366 * 86_400_000, 1 << 20)
    );
    assert_eq!(settings.limits.max_inbound_bytes(), 64 << 20);
    assert_eq!(
        (settings.http.listen.as_str(), settings.http.token_file.as_deref()),
        ("127.0.0.1:7464", None)
    );
    assert_eq!(settings.shutdown.drain.ms(), 10_000);
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let given = Given::least("[delivery]\nttr = \"1s\"\nlate = \"drop\"\nconfirm = \"consumer\"")
        .env("DWELL_DELIVERY__TTR", "2s")
        .env("DWELL_DELIVERY__LATE", "dead")
        .set("delivery.ttr", "3s");
    let delivery = given.settings().delivery;
    assert_eq!(
        (delivery.ttr.ms(), delivery.late, delivery.confirm),
        (3000, Late::Dead, Confirm::Consumer)
    );
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
    assert_eq!(
        (settings.ingest["main"].topic.as_str(), settings.ingest["main"].declare),
        ("later", true)
    );
    assert_eq!((settings.redis.buckets, settings.delivery.retry.len()), (32, 0));
}

#[test]
fn a_variable_is_never_taken_for_another_type() {
    for password in ["12345", "007", "true", "[a]", "{", "\"", "1e3", "a,b", " a "] {
        let given = Given::least("")
            .env("DWELL_BROKERS__MAIN__USER", "me")
            .env("DWELL_BROKERS__MAIN__PASSWORD", password);
        let (layers, _) =
            layers::Layers::read(Some(&given.path("dwell.toml")), &given.env, &given.overrides);
        let (value, _) = walk::walk(&layers, shape::Shape::of_settings());
        assert_eq!(value.find("brokers.main.password").unwrap().as_str(), Some(password));
        given.settings();
    }
}

#[test]
fn variables_that_are_no_settings_do_not_disturb() {
    let given = Given::least("")
        .env("DWELL_CONFIG", "x")
        .env("DWELL_PORT", "tcp://10.0.0.1:80")
        .env("DWELL_REDIS_SERVICE_HOST", "10.0.0.2");
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
        assert_eq!((problem.source.as_str(), problem.hint), (name, format!("rename it {meant}")));
    }
}

#[test]
fn threads_follow_the_processors_up_to_four_or_the_settings() {
    for (processors, threads) in [(1, 1), (2, 2), (4, 4), (5, 4), (96, 4)] {
        assert_eq!(Runtime::default().threads_of(|| processors), threads, "{processors}");
    }
    let of_settings = Runtime { threads: 96 };
    assert_eq!(of_settings.threads_of(|| 2), 96);
}
