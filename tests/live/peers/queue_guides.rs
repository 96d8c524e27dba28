//! The pages that lead from other delay queues to Dwell, followed word by word.

use std::net::TcpStream;

use dwell_testkit::servers::{Port, RedisOptions, RedisServer};
use serde_json::{Value, json};

use super::guide::Guide;
use super::listeners::call;
use crate::support::wait_until;

/// A page, with its listener on a port of its own; the URL of that.
fn open(
    page: &str,
    file: &str,
    listen: &'static str,
    redis: &RedisServer,
    port: &Port,
) -> (Guide, String) {
    let ours = format!("127.0.0.1:{}", port.number());
    let guide =
        Guide::open(page, file, &[(listen, ours.clone()), ("redis://127.0.0.1:6379", redis.url())]);
    (guide, format!("http://{ours}"))
}

/// Waits until the listener has started, by a call that changes nothing.
async fn until_started(server: &str, line: &str, status: u16) {
    wait_until("the listener", async || {
        TcpStream::connect(server.strip_prefix("http://")?).ok()?;
        (call(server, line, "", b"{}").await.status == status).then_some(())
    })
    .await;
}

fn said(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_from_lmstfy_leads_to_dwell() {
    let (redis, port) =
        (RedisServer::start(RedisOptions::default()).await.unwrap(), Port::reserve().unwrap());
    let (mut guide, server) =
        open("migrate-from-lmstfy", "lmstfy", "127.0.0.1:7777", &redis, &port);
    guide.follow("dwell check").await;
    let dwell = guide.start("dwell run");
    until_started(&server, "GET /api/shop/orders/size", 200).await;
    assert_eq!(said(&guide.follow("curl -s -X PUT").await)["msg"], "published");
    let job = said(&guide.follow("curl -s -H").await);
    assert_eq!((&job["data"], &job["remain_tries"]), (&json!("b3JkZXIgMTc="), &json!(2)));
    dwell.stop().await;
    guide.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_from_delay_queue_leads_to_dwell() {
    let (redis, port) =
        (RedisServer::start(RedisOptions::default()).await.unwrap(), Port::reserve().unwrap());
    let (mut guide, server) =
        open("migrate-from-delay-queue", "delay-queue", "127.0.0.1:9277", &redis, &port);
    guide.follow("dwell check").await;
    let dwell = guide.start("dwell run");
    until_started(&server, "POST /get", 200).await;
    assert_eq!(said(&guide.follow("curl -s").await)["code"], 0);
    let popped = said(&guide.follow("curl -s").await);
    assert_eq!(popped["data"], json!({"id": "15702398321", "body": "order 17"}));
    assert_eq!(said(&guide.follow("curl -s").await)["code"], 0);
    dwell.stop().await;
    guide.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_from_the_go_library_leads_to_dwell() {
    let (redis, port) =
        (RedisServer::start(RedisOptions::default()).await.unwrap(), Port::reserve().unwrap());
    let (mut guide, server) =
        open("migrate-from-redis-delayqueue", "queues", "127.0.0.1:7464", &redis, &port);
    guide.follow("dwell check").await;
    let dwell = guide.start("dwell run");
    until_started(&server, "GET /v1/queues", 200).await;
    let job = said(&guide.follow("curl -s").await);
    assert_eq!((&job["queue"], &job["retry"]), (&json!("emails"), &json!(["0s"])));
    let popped = said(&guide.follow("curl -s").await);
    assert_eq!(
        (&popped["jobs"][0]["id"], &popped["jobs"][0]["body"]),
        (&job["id"], &json!("payload"))
    );
    dwell.stop().await;
    guide.end();
}
