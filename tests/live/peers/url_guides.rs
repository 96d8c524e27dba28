//! The pages about targets that are URLs, followed word by word.

use std::net::TcpStream;

use dwell_testkit::servers::{Port, RedisOptions, RedisServer};
use serde_json::Value;

use super::guide::Guide;
use super::listeners::call;
use crate::http_targets::receiver::Receiver;
use crate::support::wait_until;

const FILE: &str = "http";

/// The servers with which the pages are followed.
struct GuideServers {
    redis: RedisServer,
    api: Port,
}

impl GuideServers {
    async fn new() -> GuideServers {
        GuideServers {
            redis: RedisServer::start(RedisOptions::default()).await.unwrap(),
            api: Port::reserve().unwrap(),
        }
    }

    /// Opens a page, with the receiver at this address; `more` stands for the other words of the
    /// page.
    fn open(&self, page: &str, receiver: &str, more: &[(&'static str, String)]) -> Guide {
        let own = [
            ("redis://127.0.0.1:6379", self.redis.url()),
            ("127.0.0.1:7464", self.address()),
            ("127.0.0.1:8080", receiver.to_owned()),
        ];
        Guide::open(page, FILE, &[more, &own].concat())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.api.number())
    }

    /// The answer of a call: status and body.
    async fn get(&self, path: &str) -> (u16, Value) {
        let reply =
            call(&format!("http://{}", self.address()), &format!("GET {path}"), "", b"").await;
        (reply.status, serde_json::from_slice(&reply.body).unwrap())
    }

    async fn until_started(&self) {
        wait_until("the api", async || {
            TcpStream::connect(self.address()).ok()?;
            (self.get("/v1/stats").await.0 == 200).then_some(())
        })
        .await;
    }
}

fn said(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Both programs of the page verify what Dwell signs: they answer 401 to anything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_on_targets_leads_to_a_verified_delivery() {
    for (language, file, program) in [
        ("python", "receiver.py", "python3 receiver.py"),
        ("js", "receiver.mjs", "node receiver.mjs"),
    ] {
        let (servers, port) = (GuideServers::new().await, Port::reserve().unwrap());
        let receiver = format!("127.0.0.1:{}", port.number());
        let start = ("python3 receiver.py 8080", format!("{program} {}", port.number()));
        let mut guide = servers.open("http-targets", &receiver, &[start]);
        guide.save("http-targets", language, file);
        guide.follow("install -m 600").await;
        let _receiver = guide.start("python3 receiver.py");
        wait_until(&format!("{file} listens"), async || {
            TcpStream::connect(&receiver).ok().map(drop)
        })
        .await;
        assert!(guide.follow("dwell check").await.contains("takes connections"));
        let dwell = guide.start("dwell run");
        servers.until_started().await;
        assert_eq!(said(&guide.follow("curl -s").await)["id"], "order-17");
        let (status, job) = wait_until(&format!("{file} has answered"), async || {
            let (status, job) = servers.get("/v1/jobs/order-17").await;
            (status == 404 || job["last_error"].is_string()).then_some((status, job))
        })
        .await;
        assert_eq!(status, 404, "{file}: {job}");
        dwell.stop().await;
        guide.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_from_hosted_services_lead_to_dwell() {
    let receiver = Receiver::always(200).await;
    for (number, page) in (1..).zip(["migrate-from-qstash", "migrate-from-cloud-tasks"]) {
        let servers = GuideServers::new().await;
        let mut guide = servers.open(page, receiver.url("").trim_start_matches("http://"), &[]);
        guide.follow("dwell check").await;
        let dwell = guide.start("dwell run");
        servers.until_started().await;
        let job = said(&guide.follow("curl -s").await);
        assert!(job["id"].is_string(), "{page}: {job}");
        let seen = receiver.until(number).await.remove(number - 1);
        assert_eq!(
            (seen.text("delayed-id"), &seen.body[..]),
            (job["id"].as_str().unwrap(), &br#"{"order": 17}"#[..]),
            "{page}"
        );
        assert_eq!(seen.text("content-type"), "application/json");
        dwell.stop().await;
        guide.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_on_cron_leads_to_dwell() {
    let (receiver, servers) = (Receiver::always(200).await, GuideServers::new().await);
    let mut guide =
        servers.open("cron-calling-urls", receiver.url("").trim_start_matches("http://"), &[]);
    guide.follow("dwell check").await;
    let dwell = guide.start("dwell run");
    servers.until_started().await;
    assert_eq!(said(&guide.follow("curl -s").await)["id"], "close-order-17");
    assert_eq!(said(&guide.follow("curl -s -X DELETE").await)["verdict"], "cancelled");
    let schedule = said(&guide.follow("curl -s -X PUT").await);
    assert_eq!(schedule["id"], "report");
    assert_eq!(schedule["schedule"], "0 6 * * *");
    assert_eq!(schedule["next"].as_array().unwrap().len(), 5);
    assert!(receiver.seen().is_empty());
    dwell.stop().await;
    guide.end();
}
