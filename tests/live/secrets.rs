//! A unique secret in every place that can hold one. No output contains any of them, in normal
//! operation and under errors: output, logs, errors, HTTP answers, metrics, spans.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use dwell_testkit::servers::{DwellServer, NatsOptions, NatsServer, RedisOptions, RedisServer};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::commands::fixture::program;
use crate::support::wait_until;
use crate::traces::Collector;

/// The secrets that no output may hold. None is part of another word.
const REDIS: &str = "hushRedis7d1f";
const NATS: &str = "hushNats9c42";
const TOKEN: &str = "hushToken51aa";
const AMQP: &str = "hushAmqpe0b3";
const KAFKA: &str = "hushKafka88d6";
const WRONG: &str = "hushWrong30fc";
const ALL: [&str; 6] = [REDIS, NATS, TOKEN, AMQP, KAFKA, WRONG];

/// All texts that were said, each with its source.
#[derive(Default)]
struct Heard {
    said: usize,
    /// Words that were seen, so that the test knows it listened.
    seen: BTreeSet<&'static str>,
}

impl Heard {
    #[track_caller]
    fn hear(&mut self, from: &str, text: &str) {
        self.said += text.len();
        for secret in ALL {
            if let Some(at) = text.find(secret) {
                let around = &text[text.floor_char_boundary(at.saturating_sub(300))
                    ..text.ceil_char_boundary((at + 100).min(text.len()))];
                panic!("{from} says {secret}: …{around}…");
            }
        }
        self.seen.extend(
            ["redis://", "nats://", "127.0.0.1", "***", "DEBUG", "refused"]
                .into_iter()
                .filter(|word| text.contains(word)),
        );
    }

    /// Runs a command to its end, as loud as it can be.
    #[track_caller]
    fn run(&mut self, arguments: &[&str], environment: &[(&str, &str)]) -> i32 {
        let output = Command::new(program())
            .args(arguments)
            .env_clear()
            .envs(environment.iter().copied())
            .env("DWELL_LOG", "trace,lapin=trace")
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let hidden: Vec<&&str> = arguments
            .iter()
            .filter(|argument| !ALL.iter().any(|secret| argument.contains(secret)))
            .collect();
        let from = format!("{hidden:?}");
        self.hear(&from, &String::from_utf8_lossy(&output.stdout));
        self.hear(&from, &String::from_utf8_lossy(&output.stderr));
        output.status.code().unwrap_or_else(|| panic!("{from} did not end by itself"))
    }
}

/// Redis and NATS that ask for passwords.
struct Servers {
    redis: RedisServer,
    nats: NatsServer,
    folder: TempDir,
}

impl Servers {
    async fn start() -> Servers {
        let redis = RedisOptions { password: Some(REDIS.to_owned()), ..RedisOptions::default() };
        let config = format!("authorization {{ user: me, password: {NATS} }}");
        let nats = NatsOptions { config, credentials: Some(format!("me:{NATS}")) };
        let (redis, nats) =
            tokio::try_join!(RedisServer::start(redis), NatsServer::start(nats)).unwrap();
        Servers { redis, nats, folder: TempDir::new().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Settings whose secrets stand in files.
    fn settings(&self) -> String {
        let (redis, nats) =
            (self.file("redis", &self.redis.url()), self.file("nats", &self.nats.url()));
        format!(
            "[redis]\nurls_file = {redis:?}\n[brokers.main]\ntype = \"nats\"\nurl_file = {nats:?}\nallow = [\"orders.>\"]\n\
             [ingest.main]\nbroker = \"main\"\ndeclare = true\n"
        )
    }
}

const LISTEN: &str = "[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n";

async fn ask(address: &str, line: &str, token: &str, body: &str) -> String {
    let mut link = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\nconnection: close\r\n"
    );
    let request = format!(
        "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    link.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    link.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sidecar_and_every_command_keep_every_secret() {
    let servers = Servers::start().await;
    let mut heard = Heard::default();
    let collector = Collector::default();
    let (url, _serving) = collector.start().await;
    let token_file = servers.file("token", TOKEN);
    // `start` adds listeners; the token is set by a variable, and the log is as loud as can be.
    let mut dwell = DwellServer::prepare(program(), &servers.settings()).unwrap();
    dwell.set_env([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("DWELL_HTTP__TOKEN_FILE", token_file.as_str()),
        ("DWELL_LOG", "trace"),
        ("RUST_BACKTRACE", "1"),
    ]);
    dwell.restart().await.unwrap();

    let config = servers.file("dwell.toml", &format!("{}{LISTEN}", servers.settings()));
    let commands: [(&[&str], i32); 18] = [
        (&["check"], 0),
        (&["check", "-o", "json"], 0),
        (&["check", "--offline"], 0),
        (&["send", "--for", "0", "--target", "orders.none", "--id", "dies", "body"], 0),
        (&["send", "--for", "1h", "--target", "orders.a", "--id", "waits", "body"], 0),
        (&["send", "--for", "1h", "--target", "$JS.x", "--id", "no", "body"], 64),
        (&["ls"], 0),
        (&["ls", "-o", "json"], 0),
        (&["stats"], 0),
        (&["fsck"], 0),
        (&["fsck", "--repair"], 0),
        (&["upgrade"], 0),
        (&["cancel", "nobody"], 2),
        (&["schema"], 0),
        (&["completions", "bash"], 0),
        (&["--help"], 0),
        (&["run", "--nonsense"], 64),
        (&["bogus"], 64),
    ];
    for (arguments, code) in commands {
        assert_eq!(heard.run(&[arguments, &["-c", &config]].concat(), &[]), code, "{arguments:?}");
    }
    let shown = wait_until("the job is there", async || {
        (heard.run(&["show", "waits", "--body", "-c", &config], &[]) == 0).then_some(())
    })
    .await;
    let () = shown;

    let log = || std::fs::read_to_string(dwell.dir().join("log")).unwrap();
    let address = wait_until("the admin api", async || {
        let log = log();
        let line = log
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .find(|line| line["message"] == "admin api");
        line.and_then(|line| Some(line["address"].as_str()?.to_owned()))
    })
    .await;
    let new = r#"{"id":"h","for":"1h","target":"orders.a","body":"x"}"#;
    for (line, body) in [
        ("GET /", ""),
        ("GET /openapi.json", ""),
        ("GET /v1/jobs", ""),
        ("GET /v1/jobs/waits?body=1", ""),
        ("GET /v1/jobs?cursor=x", ""),
        ("GET /v1/stats", ""),
        ("GET /v1/horizon", ""),
        ("POST /v1/jobs", new),
        ("POST /v1/jobs", "{"),
        ("DELETE /v1/jobs/h", ""),
        ("GET /nothing", ""),
    ] {
        for token in [TOKEN, WRONG] {
            let answer = ask(&address, line, token, body).await;
            assert!(
                answer.starts_with("HTTP/1.1 401") || token == TOKEN || !line.contains("/v1"),
                "{line}: {answer}"
            );
            heard.hear(line, &answer);
        }
    }
    let probes = format!("127.0.0.1:{}", dwell.port());
    for line in ["GET /metrics", "GET /livez", "GET /readyz"] {
        heard.hear(line, &ask(&probes, line, TOKEN, "").await);
    }

    // Servers that go away, come back and refuse; then an end as abrupt as a crash.
    let mut servers = servers;
    servers.nats.kill().unwrap();
    servers.redis.kill().unwrap();
    wait_until("it says that they are away", async || {
        (log().matches("WARN").count() > 2).then_some(())
    })
    .await;
    for (arguments, code) in [
        (&["check"][..], 69),
        (&["ls"], 69),
        (&["send", "--for", "1h", "--target", "orders.a", "x"], 69),
        (&["fsck"], 69),
        (&["upgrade"], 69),
        (&["run", "--wait", "0s"], 69),
    ] {
        assert_eq!(heard.run(&[arguments, &["-c", &config]].concat(), &[]), code, "{arguments:?}");
    }
    servers.redis.restart().await.unwrap();
    servers.nats.restart().await.unwrap();
    wait_until("spans", async || (!collector.spans.lock().is_empty()).then_some(())).await;
    let pid = Pid::from_raw(i32::try_from(dwell.pid().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::ABORT).unwrap();
    let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    wait_until("it is gone", async || is_gone().then_some(())).await;
    heard.hear("the log", &log());
    heard.hear("the spans", &format!("{:?}", collector.spans.lock()));
    assert!(!collector.spans.lock().is_empty() && heard.said > 200_000, "{}", heard.said);
    for word in ["redis://", "nats://", "127.0.0.1", "***", "DEBUG", "refused"] {
        assert!(heard.seen.contains(word), "nothing said {word}: was anything listened to?");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_being_written_is_told_by_one_claim_and_by_the_watch() {
    let servers = Servers::start().await;
    let dwell = DwellServer::start(program(), &servers.settings()).await.unwrap();
    let log = || std::fs::read_to_string(dwell.dir().join("log")).unwrap();
    servers.file("redis", &format!("redis://127.0.0.1/{REDIS}"));
    servers.redis.order(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    let told = |message: &str| {
        let log = log();
        let lines = log.lines().filter(|line| line.contains("a line is no URL of Redis"));
        lines.filter(|line| line.contains(message)).count()
    };
    wait_until("the watch of the store repeats it", async || {
        (told("cannot be reached, waiting") > 1).then_some(())
    })
    .await;
    assert_eq!(told("claiming failed"), 1, "{}", log());
    Heard::default().hear("the log", &log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_passwords_wrong_settings_and_servers_that_hang_up_keep_every_secret() {
    let servers = Servers::start().await;
    let mut heard = Heard::default();
    // A server of any kind that takes connections and hangs up.
    let rude = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = rude.local_addr().unwrap().port();
    let _rude = tokio::spawn(async move {
        while let Ok((mut link, _)) = rude.accept().await {
            let _ = link.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let config = servers.file("dwell.toml", &format!("{}{LISTEN}", servers.settings()));
    let redis = format!("redis://:{WRONG}@127.0.0.1:{}", servers.redis.port());
    let user = format!("redis://me:{WRONG}@127.0.0.1:{}", servers.redis.port());
    let nats = format!("nats://me:{WRONG}@127.0.0.1:{}", servers.nats.port());
    let token = format!("nats://{WRONG}@127.0.0.1:{}", servers.nats.port());
    let broker = |kind: &str, more: &str| {
        let text = servers.settings().split("[brokers.main]").next().unwrap().to_owned();
        format!(
            "{text}[brokers.main]\ntype = \"{kind}\"\n{more}\n[ingest.main]\nbroker = \"main\"\n{LISTEN}"
        )
    };
    let sasl = format!(
        "bootstrap = \"127.0.0.1:{port}\"\nallow = [\"a\"]\nproperties = {{ \"security.protocol\" = \"sasl_plaintext\", \"sasl.mechanism\" = \
         \"PLAIN\", \"sasl.username\" = \"me\", \"sasl.password\" = \"{KAFKA}\" }}"
    );
    let amqp =
        |rest: &str| format!("url = \"amqp://me:{AMQP}@127.0.0.1:{rest}\"\nallow = [\"/a\"]");
    let files = [
        servers.file("amqp.toml", &broker("amqp", &amqp(&port.to_string()))),
        servers.file("amqp-port.toml", &broker("amqp", &amqp("port/%zz"))),
        servers.file(
            "amqp-list.toml",
            &broker("amqp", &format!("url = [\"amqp://me:{AMQP}@h:1\", 7]\nallow = [\"a\"]")),
        ),
        servers.file("kafka.toml", &broker("kafka", &sasl)),
        servers.file(
            "kafka-bad.toml",
            &broker("kafka", &sasl.replace("sasl.mechanism", "sasl.mechanisn")),
        ),
        servers.file(
            "kafka-text.toml",
            &broker("kafka", &sasl.replace("\"PLAIN\"", "\"PLAIN\", \"ssl.key.password\" = 5")),
        ),
        servers.file("broken.toml", &broker("nats", &format!("password = {NATS}"))),
        servers.file(
            "unknown.toml",
            &broker("nats", &format!("url = \"nats://h\"\nallow = []\npasswrd = \"{NATS}\"")),
        ),
    ];
    for file in &files {
        for command in [
            &["check"][..],
            &["run", "--wait", "0s"],
            &["send", "--for", "1h", "--target", "a", "x"],
            &["check", "--offline", "-o", "json"],
        ] {
            let code = heard.run(&[command, &["-c", file]].concat(), &[]);
            assert!(
                [0, 1, 69, 78].contains(&code) && (code != 0 || command.contains(&"--offline")),
                "{file} {command:?}: {code}"
            );
        }
    }
    let wrong = [
        ("redis.urls", redis.as_str()),
        ("redis.urls", &user),
        ("brokers.main.url", &nats),
        ("brokers.main.url", &token),
    ];
    for (key, value) in wrong {
        // The file's own secret would stand twice.
        let text = servers
            .settings()
            .lines()
            .filter(|line| !line.starts_with(&format!("{}_file", key.rsplit('.').next().unwrap())))
            .collect::<Vec<_>>()
            .join("\n");
        let file = servers.file("wrong.toml", &format!("{text}\n{LISTEN}"));
        let variable = format!("DWELL_{}", key.to_uppercase().replace('.', "__"));
        for command in [
            &["check"][..],
            &["run", "--wait", "0s"],
            &["send", "--for", "1h", "--target", "orders.a", "x"],
            &["ls"],
            &["fsck"],
            &["stats"],
        ] {
            let set = format!("{key}={value}");
            let by_flag = heard.run(&[command, &["-c", &file, "--set", &set]].concat(), &[]);
            let by_variable = heard.run(&[command, &["-c", &file]].concat(), &[(&variable, value)]);
            assert_eq!(by_flag, by_variable, "{key} {command:?}");
            let asks_redis_alone = !["check", "run", "send"].contains(&command[0]);
            assert!(
                by_flag == 69
                    || by_flag == 78
                    || asks_redis_alone && key.starts_with("brokers") && by_flag == 0,
                "{key} {command:?}: {by_flag}"
            );
        }
    }
    // Where a secret stands by mistake.
    for (flag, variable) in [
        (format!("redis.urls=rediss{REDIS}"), ("DWELL_REDIS__URL", format!("redis://:{REDIS}@h"))),
        (format!("redis.mode=redis://:{REDIS}@h"), ("DWELL_REDIS__NAMESPACE", "ok".to_owned())),
        (
            format!("http.token={TOKEN}\u{1}"),
            ("DWELL_HTTP__TOKEN_FILE", format!("/nowhere/{}", "t")),
        ),
        (
            format!("brokers.main.url=nats://me:{NATS}@h:port"),
            ("DWELL_BROKERS__MAIN__PASSWORD", NATS.to_owned()),
        ),
    ] {
        let code =
            heard.run(&["check", "-c", &config, "--set", &flag], &[(variable.0, &variable.1)]);
        assert_eq!(code, 78, "{}", flag.split('=').next().unwrap());
    }
    assert!(heard.seen.contains("***") && heard.said > 20_000, "{} {:?}", heard.said, heard.seen);
}
