//! A `dwell run` with a known address of `[http]`, and a plain HTTP client of its API.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::commands::fixture::{Fixture, program};
use crate::support::{DEADLINE, wait_until};

/// Dropped, it is killed.
pub(super) struct Sidecar {
    child: Child,
    folder: TempDir,
    pub(super) address: String,
    /// Stands in every request.
    pub(super) token: Option<String>,
}

/// An answer: status, head in lower case, body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) text: String,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as a problem of the status that the answer has.
    #[track_caller]
    pub(super) fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("\r\ncontent-type: application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(
            (&problem["status"], &problem["type"]),
            (&status.into(), &"about:blank".into()),
            "{problem}"
        );
        assert!(
            !problem["title"].as_str().unwrap().is_empty()
                && !problem["detail"].as_str().unwrap().is_empty(),
            "{problem}"
        );
        problem
    }
}

impl Sidecar {
    /// On the servers of a fixture, with these lines in `[http]`.
    pub(super) async fn start(fixture: &Fixture, http: &str) -> Sidecar {
        Sidecar::run(&fixture.settings(true), http, &[]).await
    }

    /// With these settings and flags, ready.
    pub(super) async fn run(settings: &str, http: &str, flags: &[&str]) -> Sidecar {
        let folder = TempDir::new().unwrap();
        let listeners = format!(
            "\n[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n{http}"
        );
        let (config, log) = (folder.path().join("dwell.toml"), folder.path().join("log"));
        std::fs::write(&config, format!("{settings}{listeners}")).unwrap();
        let err = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(program());
        command
            .arg("-c")
            .arg(&config)
            .arg("run")
            .args(flags)
            .env_clear()
            .env("DWELL_LOG", "dwell=debug");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(err).spawn().unwrap();
        let mut sidecar = Sidecar { child, folder, address: String::new(), token: None };
        sidecar.address = wait_until("the admin api", async || sidecar.address_in_log()).await;
        sidecar
    }

    /// The settings file, which commands take too.
    pub(super) fn config(&self) -> PathBuf {
        self.folder.path().join("dwell.toml")
    }

    /// Everything that it has logged.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The lines of the log as JSON.
    pub(super) fn log_lines(&self) -> Vec<Value> {
        self.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and how.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    fn address_in_log(&self) -> Option<String> {
        let lines = self.log_lines();
        // Before that, the API answers nothing but 503.
        lines.iter().find(|line| line["message"] == "running")?;
        lines
            .iter()
            .find(|line| line["message"] == "admin api")
            .and_then(|line| Some(line["address"].as_str()?.to_owned()))
    }

    /// One request with a JSON body, or none.
    pub(super) fn call(&self, line: &str, body: Option<&Value>) -> Answer {
        match body {
            Some(body) => {
                self.send(line, "content-type: application/json\r\n", body.to_string().as_bytes())
            }
            None => self.send(line, "", b""),
        }
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.call(&format!("GET {path}"), None)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(&format!("POST {path}"), Some(body))
    }

    /// One request with these headers and bytes.
    pub(super) fn send(&self, line: &str, headers: &str, body: &[u8]) -> Answer {
        let host = if headers.contains("host:") { "" } else { "host: 127.0.0.1\r\n" };
        let token = self
            .token
            .as_ref()
            .map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        let length = if headers.contains("content-length:") {
            String::new()
        } else {
            format!("content-length: {}\r\n", body.len())
        };
        let head =
            format!("{line} HTTP/1.1\r\nconnection: close\r\n{host}{token}{length}{headers}\r\n");
        let mut link = self.connect();
        link.write_all(head.as_bytes()).unwrap();
        // A server that refuses a body early closes.
        let _ = link.write_all(body);
        let mut answer = Vec::new();
        let read = link.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, text) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{line}: no answer: {answer:?} {read:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), text: text.to_owned() }
    }

    /// A scrape of its metrics.
    pub(super) fn metrics(&self) -> String {
        self.probe("/metrics")
    }

    /// The answer of this path of `[probes]`, head and body.
    pub(super) fn probe(&self, path: &str) -> String {
        let lines = self.log_lines();
        let probes = lines.iter().find(|line| line["message"] == "probes").unwrap()["address"]
            .as_str()
            .unwrap();
        let mut link = TcpStream::connect(probes).unwrap();
        link.set_read_timeout(Some(DEADLINE)).unwrap();
        link.write_all(
            format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        )
        .unwrap();
        let mut answer = String::new();
        link.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(super) fn connect(&self) -> TcpStream {
        let link = TcpStream::connect(&self.address).unwrap();
        link.set_read_timeout(Some(DEADLINE)).unwrap();
        link
    }

    /// Listens to events: name and data of each, in their order.
    pub(super) fn events(&self) -> impl Iterator<Item = (String, Value)> + use<> {
        let mut link = self.connect();
        write!(link, "GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
        let mut name = String::new();
        BufReader::new(link).lines().map_while(Result::ok).filter_map(move |line| {
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            }
            Some((name.clone(), serde_json::from_str(line.strip_prefix("data: ")?).unwrap()))
        })
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
