//! `GET /v1/stats` on `[http]` of a running sidecar: its shape, its token, its problems.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::bed::{Bed, SECRET, program, run_with};
use crate::support::wait_until;

/// A `dwell run` of which the address of `[http]` is known. Dropped, it is killed.
struct Sidecar {
    child: Child,
    address: String,
}

impl Sidecar {
    /// Starts it with these lines in `[http]`, on a free port.
    async fn start(bed: &Bed, http: &str) -> Sidecar {
        let settings = bed.settings(true);
        let config =
            bed.file("http.toml", &format!("{settings}[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n{http}"));
        let log = bed.file("log", "");
        let out = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(program());
        let child =
            command.args(["-c", &config, "run"]).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(out).spawn().unwrap();
        let mut sidecar = Sidecar { child, address: String::new() };
        sidecar.address = wait_until("the admin api", async || address(Path::new(&log))).await;
        sidecar
    }

    /// One request: status, headers, body.
    fn ask(&self, line: &str, headers: &str) -> (u16, String, Value) {
        let mut link = TcpStream::connect(&self.address).unwrap();
        write!(link, "{line} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        link.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address that the log names, once it does.
fn address(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == "admin api").find_map(|line| Some(line["address"].as_str()?.to_owned()))
}

#[tokio::test]
async fn stats_are_counts_and_the_rates_of_this_instance() {
    let bed = Bed::new().await;
    let sidecar = Sidecar::start(&bed, "").await;
    let (status, head, stats) = sidecar.ask("GET /v1/stats", "");
    assert_eq!((status, head.contains("content-type: application/json")), (200, true), "{head}");
    let keys: Vec<&String> = stats.as_object().unwrap().keys().collect();
    let all = ["brokers", "buckets", "dead", "ingests", "instance", "lateness", "next_due_ms", "now_ms", "overdue", "rates", "reserved"];
    assert_eq!(keys, [&all[..], &["scheduled"]].concat());
    let instance = &stats["instance"];
    assert_eq!((&instance["ready"], &instance["namespace"]), (&json!(true), &json!("dwell")), "{instance}");
    let main = json!({"broker": "main", "topic": "delay.in", "reads": true, "paused": null, "last_error": null});
    assert_eq!((&stats["ingests"], &stats["lateness"]), (&json!({"main": main}), &Value::Null));
    let idle = json!({"confirmed": 0.0, "dead": 0.0, "rejected": 0.0, "scheduled": 0.0});
    assert_eq!((&stats["next_due_ms"], &stats["scheduled"], &stats["rates"]), (&Value::Null, &json!(0), &idle));

    assert_eq!(bed.run(&["send", "--for", "1h", "--target", "orders.x", "--id", "x"]).code, 0);
    let counted = wait_until("the job in the counts and in the rates", async || {
        let stats = sidecar.ask("GET /v1/stats", "").2;
        (stats["scheduled"] == 1 && stats["rates"]["scheduled"].as_f64()? > 0.0).then_some(stats)
    })
    .await;
    let job = bed.run(&["show", "x", "-o", "json"]).object();
    let main = json!({"main": {"scheduled": 1, "kind": "nats", "connected": true, "paused": 0, "last_error": null}});
    assert_eq!((&counted["next_due_ms"], &counted["brokers"]), (&job["due_ms"], &main));
    let command = bed.run(&["stats", "-o", "json"]).object();
    let shape = |stats: &Value| stats.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(shape(&command), shape(&counted), "one shape; the command alone knows nothing of an instance");
    let main = json!({"scheduled": 1, "kind": null, "connected": null, "paused": null, "last_error": null});
    assert_eq!((&command["brokers"]["main"], &command["instance"], &command["rates"]), (&main, &Value::Null, &json!({})));
}

#[tokio::test]
async fn with_a_token_only_who_bears_it_is_answered() {
    let bed = Bed::new().await;
    let token_file = bed.file("token", &format!("{SECRET}\n"));
    let sidecar = Sidecar::start(&bed, &format!("token_file = \"{token_file}\"\n")).await;
    let refused = [
        String::new(),
        "authorization: Bearer wrong\r\n".to_owned(),
        "authorization: Bearer\r\n".to_owned(),
        format!("authorization: Basic {SECRET}\r\n"),
        format!("authorization: Bearer {SECRET}x\r\n"),
        format!("authorization: {SECRET}\r\n"),
        format!("x-token: {SECRET}\r\n"),
    ];
    for headers in &refused {
        for line in ["GET /v1/stats", "GET /", "GET /v1/nothing", "POST /v1/stats"] {
            let (status, head, problem) = sidecar.ask(line, headers);
            assert_eq!(status, 401, "{line} {headers}");
            assert!(head.contains("content-type: application/problem+json") && head.contains("www-authenticate: bearer"), "{head}");
            let detail = "send `Authorization: Bearer` with the token of http.token_file";
            assert_eq!(problem, json!({"type": "about:blank", "title": "Unauthorized", "status": 401, "detail": detail}));
        }
    }
    for scheme in ["Bearer", "bearer"] {
        assert_eq!(sidecar.ask("GET /v1/stats", &format!("authorization: {scheme} {SECRET}\r\n")).0, 200);
    }
}

#[tokio::test]
async fn errors_are_problems() {
    let mut bed = Bed::new().await;
    let sidecar = Sidecar::start(&bed, "").await;
    for (line, wanted, title) in
        [("GET /v1/nothing", 404, "Not Found"), ("DELETE /v1/stats", 405, "Method Not Allowed"), ("GET /v1/stats/", 404, "Not Found")]
    {
        let (status, head, problem) = sidecar.ask(line, "");
        assert!(status == wanted && head.contains("content-type: application/problem+json"), "{line}: {head}");
        assert_eq!((&problem["status"], &problem["title"], &problem["type"]), (&json!(wanted), &json!(title), &json!("about:blank")));
        assert_ne!(problem["detail"], "");
    }
    bed.redis.kill().unwrap();
    let (status, head, problem) = sidecar.ask("GET /v1/stats", "");
    assert!(status == 503 && head.contains("content-type: application/problem+json"), "{head} {problem}");
    assert!(problem["detail"].as_str().unwrap().starts_with("redis: "), "{problem}");
    bed.redis.restart().await.unwrap();
    wait_until("an answer again", async || (sidecar.ask("GET /v1/stats", "").0 == 200).then_some(())).await;
}

#[tokio::test]
async fn without_a_token_only_loopback_may_be_bound() {
    let bed = Bed::new().await;
    let config = bed.config();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        for command in ["run", "check"] {
            let said = run_with(&["-c", &config, command, "--set", &format!("http.listen={listen}")], b"");
            assert_eq!(said.code, 78, "{command} {listen}: {said:?}");
            let text = format!("{}{}", said.out, said.err);
            assert!(text.contains("http.listen") && text.contains("there is no token"), "{text}");
        }
    }
    let empty = bed.file("empty", " \n");
    let nowhere = "/nowhere/token".to_owned();
    for file in [empty, nowhere] {
        for command in ["run", "check"] {
            let said = run_with(&["-c", &config, command, "--set", &format!("http.token_file={file}")], b"");
            assert_eq!(said.code, 78, "{command} {file}: {said:?}");
            assert!(format!("{}{}", said.out, said.err).contains("http.token_file"), "{said:?}");
        }
    }
}
