//! The fixture of the command tests: private servers, settings, the binary, and a view of the
//! stored state.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;

use dwell_testkit::servers::{DwellServer, NatsOptions, NatsServer, RedisOptions, RedisServer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::DEADLINE;

/// The secret in all these tests: no output may hold it.
pub(crate) const SECRET: &str = "hush-7d1f";

/// The binary, with an environment that holds nothing of this machine's.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_dwell"))
}

/// The answer of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Each line of stdout as JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }

    /// The one line of stdout as JSON.
    #[track_caller]
    pub(crate) fn object(&self) -> Value {
        let [object] = self
            .lines()
            .try_into()
            .unwrap_or_else(|lines| panic!("one object, not {lines:?}: {}", self.err));
        object
    }
}

/// Runs `dwell` with these arguments to its end, with this on stdin. No secret may be seen, and
/// nothing that steers a terminal.
pub(crate) fn run_with(arguments: &[&str], stdin: &[u8]) -> Said {
    run_in(&[], arguments, stdin)
}

/// As [`run_with`], with these variables.
pub(crate) fn run_in(variables: &[(&str, &str)], arguments: &[&str], stdin: &[u8]) -> Said {
    let mut child = Command::new(program())
        .args(arguments)
        .env_clear()
        .env("TZ", "UTC")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let (ended, watched) = std::sync::mpsc::channel::<()>();
    // A command that hangs is a failure, not a test that never ends. It was not waited for yet, so
    // the id is its own.
    let watchdog = std::thread::spawn(move || {
        if watched.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
            kill_process(pid, Signal::KILL).unwrap();
        }
    });
    // A command that does not read its stdin may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    drop(ended);
    watchdog.join().unwrap();
    let said = Said {
        code: output
            .status
            .code()
            .unwrap_or_else(|| panic!("{arguments:?} did not end by itself: {output:?}")),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    for text in [&said.out, &said.err] {
        assert!(!text.contains(SECRET), "{arguments:?}: {text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{arguments:?}: {text:?}");
    }
    said
}

/// Private servers and settings for them. The namespace is the default one: the Redis is private.
pub(crate) struct Fixture {
    pub(crate) redis: RedisServer,
    pub(crate) nats: NatsServer,
    folder: TempDir,
}

impl Fixture {
    /// Both servers as they come, and a stream for `orders.>`.
    pub(crate) async fn new() -> Fixture {
        let fixture = Fixture::with(RedisOptions::default(), NatsOptions::default()).await;
        fixture.stream("ORDERS", &["orders.>"]);
        fixture
    }

    pub(crate) async fn with(redis: RedisOptions, nats: NatsOptions) -> Fixture {
        let (redis, nats) =
            tokio::try_join!(RedisServer::start(redis), NatsServer::start(nats)).unwrap();
        Fixture { redis, nats, folder: TempDir::new().unwrap() }
    }

    /// Settings that lead to the servers, without `[probes]` and `[http]`; `declare` as asked.
    pub(crate) fn settings(&self, declare: bool) -> String {
        format!(
            "[redis]\nurls = [\"{}\"]\n[brokers.main]\ntype = \"nats\"\nurl = \"{}\"\nallow = [\"orders.>\"]\n[ingest.main]\nbroker = \
             \"main\"\ndeclare = {declare}\n",
            self.redis.url(),
            self.nats.url()
        )
    }

    /// A file of its own in the folder of the test.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The settings with `declare`, as a file that all commands can take.
    pub(crate) fn config(&self) -> String {
        let listeners = "[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n";
        self.file("dwell.toml", &format!("{}{listeners}", self.settings(true)))
    }

    /// Runs a command with the settings of [`Fixture::config`].
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.run_with(arguments, b"")
    }

    pub(crate) fn run_with(&self, arguments: &[&str], stdin: &[u8]) -> Said {
        let config = self.config();
        run_with(&[&["-c", config.as_str()], arguments].concat(), stdin)
    }

    /// A sidecar on these servers, ready.
    pub(crate) async fn sidecar(&self) -> DwellServer {
        DwellServer::start(program(), &self.settings(true)).await.unwrap()
    }

    /// One call of the JetStream API, as an operator's tool makes it.
    pub(crate) fn api(&self, subject: &str, body: &str) -> Value {
        self.ask(&format!("$JS.API.{subject}"), body)
    }

    /// Publishes to a stream.
    pub(crate) fn publish(&self, subject: &str, body: &str) {
        let answer = self.ask(subject, body);
        assert!(answer["seq"].is_u64(), "{answer}");
    }

    /// Publishes, and waits for the answer.
    fn ask(&self, subject: &str, body: &str) -> Value {
        let mut link = TcpStream::connect(("127.0.0.1", self.nats.port())).unwrap();
        let mut lines = BufReader::new(link.try_clone().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        let url = self.nats.url();
        let login = url
            .split_once("://")
            .unwrap()
            .1
            .rsplit_once('@')
            .and_then(|(login, _)| login.split_once(':'));
        let (user, pass) = login.unwrap_or_default();
        let hello = json!({"verbose": false, "user": user, "pass": pass});
        write!(
            link,
            "CONNECT {hello}\r\nSUB answer 1\r\nPUB {subject} answer {}\r\n{body}\r\n",
            body.len()
        )
        .unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            lines.read_line(&mut line).unwrap();
            if line.starts_with("MSG ") {
                let mut answer = vec![0; line.trim().rsplit_once(' ').unwrap().1.parse().unwrap()];
                lines.read_exact(&mut answer).unwrap();
                return serde_json::from_slice(&answer).unwrap();
            }
            assert!(!line.starts_with("-ERR") && !line.is_empty(), "{line}");
        }
    }

    /// Makes a stream.
    pub(crate) fn stream(&self, name: &str, subjects: &[&str]) {
        let made = self.api(
            &format!("STREAM.CREATE.{name}"),
            &json!({"name": name, "subjects": subjects}).to_string(),
        );
        assert_eq!(made["config"]["name"], name, "{made}");
    }

    /// Returns the number of messages in a stream.
    pub(crate) fn messages(&self, stream: &str) -> u64 {
        self.api(&format!("STREAM.INFO.{stream}"), "")["state"]["messages"].as_u64().unwrap_or(0)
    }

    /// The last message on a subject of a stream: its headers as they stand on the wire, and its
    /// body.
    pub(crate) fn last(&self, stream: &str, subject: &str) -> Option<(String, Vec<u8>)> {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let found = self.api(
            &format!("STREAM.MSG.GET.{stream}"),
            &json!({"last_by_subj": subject}).to_string(),
        );
        let field = |name: &str| {
            STANDARD.decode(found["message"][name].as_str().unwrap_or_default()).unwrap()
        };
        (!found["message"].is_null())
            .then(|| (String::from_utf8(field("hdrs")).unwrap(), field("data")))
    }

    /// Returns all data: every key of Redis with its value, every stream with its state, every
    /// consumer.
    pub(crate) async fn everything(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut raw = crate::support::redis_link(self.redis.url()).await;
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut raw).await.unwrap();
        for key in keys {
            let dump: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(&mut raw).await.unwrap();
            all.insert(format!("redis {key}"), format!("{dump:?}"));
        }
        for stream in self.api("STREAM.LIST", "")["streams"].as_array().into_iter().flatten() {
            let name = stream["config"]["name"].as_str().unwrap();
            all.insert(
                format!("stream {name}"),
                format!("{} {}", stream["config"], stream["state"]),
            );
            for consumer in self.api(&format!("CONSUMER.LIST.{name}"), "")["consumers"]
                .as_array()
                .into_iter()
                .flatten()
            {
                all.insert(
                    format!("consumer {} of {name}", consumer["name"]),
                    consumer["config"].to_string(),
                );
            }
        }
        all
    }
}
