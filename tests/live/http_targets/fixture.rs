//! A Redis, and a sidecar whose brokers are HTTP; with a client of its API.

use dwell_testkit::servers::{DwellServer, RedisOptions, RedisServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::receiver::Receiver;
use crate::commands::fixture::program;
use crate::support::wait_until;

/// The secret of the sidecar's broker, as receivers have it.
pub(super) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Of every settings file: a first retry comes soon.
const DELIVERY: &str = "[delivery]\nretry = [\"100ms\", \"200ms\"]\npublish_timeout = \"5s\"\n";

/// The servers of one test.
pub(super) struct Fixture {
    pub(super) dwell: DwellServer,
    _redis: RedisServer,
    _folder: tempfile::TempDir,
}

impl Fixture {
    /// With `[brokers.hook]`, which may call these receivers and signs what it sends. `more` ends
    /// the settings.
    pub(super) async fn start(receivers: &[&Receiver], more: &str) -> Fixture {
        let (redis, folder) = (
            RedisServer::start(RedisOptions::default()).await.unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let secret = folder.path().join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        let hook = broker(
            "hook",
            receivers,
            &format!("secret_file = \"{}\"\ntimeout = \"5s\"", secret.display()),
        );
        let settings = format!("[redis]\nurls = [\"{}\"]\n{DELIVERY}{hook}{more}", redis.url());
        let mut dwell = DwellServer::prepare(program(), &settings).unwrap();
        dwell.set_env([("DWELL_LOG", "debug")]);
        dwell.restart().await.unwrap();
        Fixture { dwell, _redis: redis, _folder: folder }
    }

    /// One call of the API: status, and the body as JSON.
    pub(super) async fn call(&self, line: &str, body: &Value) -> (u16, Value) {
        let (status, text) = call(self.dwell.http_port(), line, &body.to_string()).await;
        (
            status,
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}")),
        )
    }

    /// Schedules a job, which names its `broker` where the settings have several.
    pub(super) async fn schedule(&self, job: Value) -> Value {
        let (status, answer) = self.call("POST /v1/jobs", &job).await;
        assert_eq!(status, 201, "{job}: {answer}");
        answer
    }

    /// The job; `None` if it is over.
    pub(super) async fn job(&self, id: &str) -> Option<Value> {
        let (status, job) = self.call(&format!("GET /v1/jobs/{id}"), &json!({})).await;
        (status == 200).then_some(job)
    }

    /// Waits until the job is done.
    pub(super) async fn until_over(&self, id: &str) {
        wait_until(&format!("{id} is over"), async || self.job(id).await.is_none().then_some(()))
            .await;
    }

    /// Waits until the job is in this state, and gives the job.
    pub(super) async fn until_state(&self, id: &str, state: &str) -> Value {
        wait_until(&format!("{id} is {state}"), async || {
            self.job(id).await.filter(|job| job["state"] == state)
        })
        .await
    }

    /// Waits until this series has this value.
    pub(super) async fn until_metric(&self, series: &str, value: f64) {
        let what = format!("{series} is {value}");
        wait_until(&what, async || {
            (crate::support::metric(&self.dwell.metrics().await.unwrap(), series) == value)
                .then_some(())
        })
        .await;
    }

    /// Everything that the sidecar has logged.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.dwell.dir().join("log")).unwrap()
    }
}

/// `[brokers.NAME]`, which may call these receivers.
pub(super) fn broker(name: &str, receivers: &[&Receiver], more: &str) -> String {
    let allow: Vec<String> = receivers.iter().map(|receiver| receiver.url("/*")).collect();
    format!(
        "\n[brokers.{name}]\ntype = \"http\"\nallow = {allow:?}\nsubnets = [\"127.0.0.0/8\"]\n{more}\n"
    )
}

/// One request over a connection of its own: status and body.
pub(super) async fn call(port: u16, line: &str, body: &str) -> (u16, String) {
    let mut link = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    );
    link.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    link.read_to_string(&mut answer).await.unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{line}: {answer}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text.to_owned())
}
