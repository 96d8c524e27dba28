//! A `dwell run` with the listeners of `[compat]`, and a plain HTTP client.

use std::process::{Child, Command, Stdio};

use dwell_testkit::servers::{RedisOptions, RedisServer};
use dwell_testkit::usage::Usage;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::routes::environment::program;
use crate::support::{DEADLINE, metric, wait_until};

/// Dropped, it is killed.
pub(crate) struct Listeners {
    child: Child,
    folder: TempDir,
    pub(super) redis: RedisServer,
    /// `http://127.0.0.1:PORT` of each listener.
    pub(crate) delay_queue: String,
    pub(crate) lmstfy: String,
    pub(crate) probes: String,
    /// The URL of its API.
    pub(crate) http: String,
}

impl Listeners {
    /// With these settings besides, ready.
    pub(crate) async fn start(settings: &str) -> Listeners {
        let redis = RedisServer::start(RedisOptions::default()).await.unwrap();
        let folder = TempDir::new().unwrap();
        let own = format!(
            "[redis]\nurls = [\"{}\"]\n[compat]\ndelay_queue = \"127.0.0.1:0\"\nlmstfy = \"127.0.0.1:0\"\n[probes]\nlisten = \
             \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n",
            redis.url()
        );
        let (config, log) = (folder.path().join("dwell.toml"), folder.path().join("log"));
        std::fs::write(&config, format!("{own}{settings}")).unwrap();
        let err = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(program());
        command.arg("-c").arg(&config).arg("run").env_clear();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(err).spawn().unwrap();
        let [delay_queue, lmstfy, probes, http] = Default::default();
        let mut started = Listeners { child, folder, redis, delay_queue, lmstfy, probes, http };
        wait_until("it runs", async || started.line("running")).await;
        let address = |message: &str| {
            format!("http://{}", started.line(message).unwrap()["address"].as_str().unwrap())
        };
        let addresses = [
            "listener for clients of delay-queue",
            "listener for clients of lmstfy",
            "probes",
            "admin api",
        ]
        .map(address);
        [started.delay_queue, started.lmstfy, started.probes, started.http] = addresses;
        started
    }

    /// Everything that it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The value of a series of its metrics.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let scrape = call(&self.probes, "GET /metrics", "", b"").await;
        metric(std::str::from_utf8(&scrape.body).unwrap(), series)
    }

    /// Waits until so many consumers wait for this queue.
    pub(crate) async fn until_waiting(&self, queue: &str, count: usize) {
        let path = format!("GET /v1/queues/{queue}");
        wait_until("the waiting pops", async || {
            (call(&self.http, &path, "", b"").await.json()["waiting"] == count).then_some(())
        })
        .await;
    }

    /// Its resident memory, bytes.
    pub(crate) fn resident(&self) -> u64 {
        Usage::of([self.child.id()]).unwrap().rss
    }

    /// The most resident memory that it has had, bytes.
    pub(crate) fn peak(&self) -> u64 {
        Usage::of([self.child.id()]).unwrap().peak_rss
    }

    /// Tells it to stop; its end.
    pub(crate) async fn stop(mut self) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), Signal::TERM)
            .unwrap();
        let status = wait_until("its end", async || self.child.try_wait().unwrap()).await;
        assert!(status.success(), "{status}");
    }

    /// The first line of the log with this message.
    fn line(&self, message: &str) -> Option<Value> {
        self.log()
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["message"] == message)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {self:?} {}", String::from_utf8_lossy(&self.body))
        })
    }
}

/// One request: `line` is a method and a path; each header ends with a line end.
pub(crate) async fn call(server: &str, line: &str, headers: &str, body: &[u8]) -> Reply {
    let reply = try_call(server, line, headers, body).await;
    reply.unwrap_or_else(|| panic!("{line}: the connection ended without an answer"))
}

/// The same; `None` where the connection ends without an answer, because another one took its place.
pub(crate) async fn try_call(
    server: &str,
    line: &str,
    headers: &str,
    body: &[u8],
) -> Option<Reply> {
    let asked = async {
        let address = server.strip_prefix("http://").unwrap();
        let mut link = TcpStream::connect(address).await.ok()?;
        let host =
            if headers.contains("host:") { String::new() } else { format!("host: {address}\r\n") };
        let head = format!(
            "{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n{host}{headers}\r\n",
            body.len()
        );
        link.write_all(head.as_bytes()).await.ok()?;
        // A server that refuses a body early closes.
        let _ = link.write_all(body).await;
        let mut answer = Vec::new();
        let _ = link.read_to_end(&mut answer).await;
        Some(answer)
    };
    let answer = tokio::time::timeout(DEADLINE, asked).await;
    let answer: Vec<u8> = answer.unwrap_or_else(|_| panic!("{line}: no answer"))?;
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Some(Reply { status, head: head.to_lowercase(), body: answer[end + 4..].to_vec() })
}
