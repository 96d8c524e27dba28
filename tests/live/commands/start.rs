//! `dwell run` with an unreachable server: the other parts work, the log names the missing server,
//! and `--wait` bounds the wait.

use dwell_testkit::servers::{DwellServer, NatsOptions, NatsServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{Fixture, program, run_with};
use crate::support::wait_until;

/// Head and body of an answer; empty where nobody listens yet.
async fn get(port: u16, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut link) = TcpStream::connect(("127.0.0.1", port)).await {
        link.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
        link.read_to_string(&mut answer).await.unwrap();
    }
    answer
}

async fn until_alive(port: u16) {
    wait_until("it is alive", async || get(port, "/livez").await.starts_with("HTTP/1.1 200").then_some(())).await;
}

/// A second broker, and an ingest of its own.
fn with_far(fixture: &Fixture, far: &NatsServer) -> String {
    let of_far = format!("[brokers.far]\ntype = \"nats\"\nurl = \"{}\"\nallow = [\"orders.>\"]\n", far.url());
    format!("{}{of_far}[ingest.far]\nbroker = \"far\"\ndeclare = true\n", fixture.settings(true))
}

#[tokio::test]
async fn a_broker_that_is_away_keeps_nothing_else_from_working() {
    let fixture = Fixture::new().await;
    let mut far = NatsServer::start(NatsOptions::default()).await.unwrap();
    far.kill().unwrap();
    let mut dwell = DwellServer::prepare(program(), &with_far(&fixture, &far)).unwrap();
    let (port, log) = (dwell.port(), dwell.dir().join("log"));
    let course = async {
        until_alive(port).await;
        // Until the stream of its ingest is made, nothing takes the request.
        let send = ["send", "--for", "0s", "--target", "orders.a", "x"];
        wait_until("a request is sent", async || (fixture.run(&send).code == 0).then_some(())).await;
        wait_until("a job of the first broker is delivered", async || (fixture.messages("ORDERS") > 0).then_some(())).await;
        let ready = get(port, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains(r#""waiting_for":["brokers.far","ingest.far"]"#), "{ready}");
        assert!(ready.contains(&format!("cannot connect to nats at {}", far.url())), "{ready}");
        let metrics = get(port, "/metrics").await;
        assert!(metrics.contains("dwell_broker_connected{broker=\"far\"} 0\n"), "{metrics}");
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.contains("cannot be reached, waiting") && log.contains("brokers.far"), "{log}");
        far.restart().await.unwrap();
    };
    // It is ready once the second broker is read.
    let (started, ()) = tokio::join!(dwell.restart(), course);
    started.unwrap();
    assert!(get(port, "/readyz").await.contains(r#""waiting_for":[]"#));
    assert!(dwell.stop().await.unwrap().unwrap().success());
}

#[tokio::test]
async fn a_redis_that_is_away_is_waited_for_and_told() {
    let mut fixture = Fixture::new().await;
    fixture.redis.kill().unwrap();
    let mut dwell = DwellServer::prepare(program(), &fixture.settings(true)).unwrap();
    let (port, admin) = (dwell.port(), dwell.http_port());
    let redis = &mut fixture.redis;
    let course = async {
        until_alive(port).await;
        let ready = wait_until("redis is named", async || {
            Some(get(port, "/readyz").await).filter(|ready| ready.contains("connecting to redis://"))
        });
        let ready = ready.await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains(r#""waiting_for":["redis","#), "{ready}");
        let stats = get(admin, "/v1/stats").await;
        assert!(stats.starts_with("HTTP/1.1 503") && stats.contains("retry-after: 1") && stats.contains("waits for Redis"), "{stats}");
        redis.restart().await.unwrap();
    };
    let (started, ()) = tokio::join!(dwell.restart(), course);
    started.unwrap();
    assert!(get(admin, "/v1/stats").await.starts_with("HTTP/1.1 200"));
    assert!(dwell.stop().await.unwrap().unwrap().success());
}

#[tokio::test]
async fn a_bounded_wait_ends_with_69() {
    let mut fixture = Fixture::new().await;
    let mut far = NatsServer::start(NatsOptions::default()).await.unwrap();
    far.kill().unwrap();
    let listeners = "[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n";
    let config = fixture.file("far.toml", &format!("{}{listeners}", with_far(&fixture, &far)));
    for wait in ["0s", "1s"] {
        let said = run_with(&["-c", &config, "run", "--wait", wait], b"");
        assert!(said.code == 69 && said.err.contains(&far.url()), "{wait}: {said:?}");
    }
    fixture.redis.kill().unwrap();
    let said = run_with(&["-c", &config, "run", "--wait", "1s"], b"");
    assert!(said.code == 69 && said.err.contains("error: "), "{said:?}");
}
