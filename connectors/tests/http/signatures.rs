//! Signatures, which the libraries of Standard Webhooks verify.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_connectors::{BrokerConfig, ErrorKind, Message, Outcome, Outcomes, Sink, http};
use tokio::time::Instant;

use crate::app::{Answer, App, Received};
use crate::{TIMEOUT, collect, local, open, publication};

const OLD: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
const NEW: &str = "whsec_yMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5uc=";
const OTHER: &str = "whsec_b3RoZXJvdGhlcm90aGVyb3RoZXI=";

/// A request, the secret of its receiver, and whether the receiver is to accept the request.
type Case<'a> = (&'a Received, &'a str, bool);

/// Has the libraries verify requests.
fn verify(cases: &[Case<'_>]) {
    let folder = clients();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/clients");
    let mut python = Command::new("python3");
    python
        .arg(scripts.join("webhook.py"))
        .env("PYTHONPATH", &folder)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let mut node = Command::new("node");
    node.arg(scripts.join("webhook.cjs")).env("NODE_PATH", folder.join("node_modules"));
    for (name, mut command) in [("Python", python), ("Node", node)] {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines: String =
            cases.iter().map(|(received, secret, _)| line(received, secret) + "\n").collect();
        // Closed behind the last line.
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.lines().count() == cases.len(), "{name}: {said}");
        for ((received, secret, is_good), verdict) in cases.iter().zip(said.lines()) {
            assert_eq!(verdict == "ok", *is_good, "{name} with {secret}: {verdict}: {received:?}");
        }
    }
}

/// A request for a receiver.
fn line(received: &Received, secret: &str) -> String {
    let headers: serde_json::Map<_, _> = received
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.into())))
        .collect();
    serde_json::json!({"headers": headers, "body": STANDARD.encode(&received.body), "secret": secret}).to_string()
}

/// The folder in which `make clients` put the libraries.
fn clients() -> PathBuf {
    let named = std::env::var_os("DWELL_CLIENTS").map(PathBuf::from);
    let folder =
        named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.servers/clients"));
    assert!(
        folder.join("node_modules").is_dir(),
        "no clients at {}: run `make clients`",
        folder.display()
    );
    folder
}

/// An application that takes signed requests.
struct Signed {
    app: App,
    folder: tempfile::TempDir,
}

impl Signed {
    async fn start(secrets: &str) -> Self {
        let app = App::start().await;
        app.answer("/", Answer::status(202));
        let signed = Signed { app, folder: tempfile::tempdir().unwrap() };
        signed.write(secrets);
        signed
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("secrets")
    }

    /// Replaces the file, as secrets are mounted.
    fn write(&self, secrets: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, secrets).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    fn config(&self) -> http::Config {
        http::Config { secret_file: Some(self.file()), ..local() }
    }

    /// Publishes this body; returns the request.
    async fn publish(&self, sink: &dyn Sink, outcomes: &mut Outcomes, body: &str) -> Received {
        sink.publish(vec![publication(7, &self.app.url("/"), Message::new(body.to_owned()))]).await;
        assert_eq!(collect(outcomes, 1).await, [Outcome::Confirmed]);
        self.app.received("/").pop().unwrap()
    }

    /// Publishes until a request has such a signature.
    async fn publish_until(
        &self,
        sink: &dyn Sink,
        outcomes: &mut Outcomes,
        body: &str,
        is_good: impl Fn(&str) -> bool,
    ) -> Received {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let received = self.publish(sink, outcomes, body).await;
            if is_good(signature(&received)) {
                return received;
            }
            assert!(Instant::now() < deadline, "still signed with {}", signature(&received));
        }
    }
}

fn signature(received: &Received) -> &str {
    received.headers["webhook-signature"].to_str().unwrap()
}

#[tokio::test]
async fn the_libraries_of_receivers_verify_a_request() {
    let signed = Signed::start(&format!("{OLD}\n")).await;
    let (sink, mut outcomes) = open(signed.config()).await;
    let mut requests = Vec::new();
    for body in ["{}", "{\"name\": \"ü\", \"text\": \"a\\r\\nb\"}", "[]", "\"\""] {
        requests.push(signed.publish(&*sink, &mut outcomes, body).await);
    }
    let mut forged = requests[0].clone();
    forged.body = "{\"admin\": true}".into();
    let mut replayed = requests[0].clone();
    replayed.headers.insert("webhook-timestamp", "1700000000".parse().unwrap());
    let mut renamed = requests[0].clone();
    renamed.headers.insert("webhook-id", "id-8".parse().unwrap());
    let mut cases: Vec<Case<'_>> = requests.iter().map(|request| (request, OLD, true)).collect();
    cases.extend([
        (&requests[0], NEW, false),
        (&forged, OLD, false),
        (&replayed, OLD, false),
        (&renamed, OLD, false),
    ]);
    verify(&cases);
}

#[tokio::test]
async fn secrets_are_rotated_while_a_sink_lives() {
    let signed = Signed::start(OLD).await;
    let (sink, mut outcomes) = open(signed.config()).await;
    let before = signed.publish(&*sink, &mut outcomes, "{}").await;
    assert_eq!(signature(&before).split(' ').count(), 1);
    signed.write(&format!("{NEW}\n{OLD}\n"));
    let both = signed
        .publish_until(&*sink, &mut outcomes, "{}", |signature| signature.contains(' '))
        .await;
    signed.write(NEW);
    let after = signed
        .publish_until(&*sink, &mut outcomes, "{}", |signature| !signature.contains(' '))
        .await;
    // Unreadable content leaves the former secrets.
    signed.write("no secret!\n");
    let still = signed.publish(&*sink, &mut outcomes, "{}").await;
    std::fs::remove_file(signed.file()).unwrap();
    let gone = signed.publish(&*sink, &mut outcomes, "{}").await;
    signed.write(&format!("{OTHER}\n{NEW}"));
    let last = signed
        .publish_until(&*sink, &mut outcomes, "{}", |signature| signature.contains(' '))
        .await;
    verify(&[
        (&before, OLD, true),
        (&before, NEW, false),
        (&both, OLD, true),
        (&both, NEW, true),
        (&both, OTHER, false),
        (&after, NEW, true),
        (&after, OLD, false),
        (&still, NEW, true),
        (&gone, NEW, true),
        (&last, OTHER, true),
        (&last, NEW, true),
        (&last, OLD, false),
    ]);
}

#[tokio::test]
async fn a_sink_does_not_open_without_its_secrets() {
    let signed = Signed::start("whsec_").await;
    for secrets in ["whsec_", "", "not base64", &[OLD; 3].join("\n")] {
        signed.write(secrets);
        let Err(error) = BrokerConfig::Http(signed.config()).sink(TIMEOUT).await else {
            panic!("a sink opened with {secrets:?}")
        };
        // An empty file is one that somebody writes.
        let kind = if secrets.is_empty() { ErrorKind::Disconnected } else { ErrorKind::Config };
        assert!(error.kind == kind && error.message.starts_with("`secret_file`: "), "{error}");
    }
    std::fs::remove_file(signed.file()).unwrap();
    let Err(error) = BrokerConfig::Http(signed.config()).sink(TIMEOUT).await else {
        panic!("a sink opened without its file")
    };
    assert!(
        error.kind == ErrorKind::Disconnected && error.message.contains("no such file"),
        "{error}"
    );
}
