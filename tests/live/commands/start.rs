//! `dwell run` with an unreachable server, or without its streams: the other parts work, log and
//! `/readyz` name what is missing, and `--wait` bounds the wait.

use dwell_testkit::servers::{DwellServer, NatsOptions, NatsServer, RedisOptions, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{Fixture, program, run_with};
use crate::support::wait_until;

const LISTENERS: &str = "[probes]\nlisten = \"127.0.0.1:0\"\n[http]\nlisten = \"127.0.0.1:0\"\n";

/// Head and body of an answer; empty where nobody listens yet.
async fn get(port: u16, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut link) = TcpStream::connect(("127.0.0.1", port)).await {
        link.write_all(
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        )
        .await
        .unwrap();
        link.read_to_string(&mut answer).await.unwrap();
    }
    answer
}

async fn until_alive(port: u16) {
    wait_until("it is alive", async || {
        get(port, "/livez").await.starts_with("HTTP/1.1 200").then_some(())
    })
    .await;
}

/// A second broker, and an ingest of its own.
fn with_far(fixture: &Fixture, far: &NatsServer) -> String {
    let of_far = format!(
        "[brokers.far]\ntype = \"nats\"\nurl = \"{}\"\nallow = [\"orders.>\"]\n",
        far.url()
    );
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
        wait_until("a request is sent", async || (fixture.run(&send).code == 0).then_some(()))
            .await;
        wait_until("a job of the first broker is delivered", async || {
            (fixture.messages("ORDERS") > 0).then_some(())
        })
        .await;
        let ready = get(port, "/readyz").await;
        assert!(
            ready.starts_with("HTTP/1.1 503")
                && ready.contains(r#""waiting_for":["brokers.far","ingest.far"]"#),
            "{ready}"
        );
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
            Some(get(port, "/readyz").await)
                .filter(|ready| ready.contains("connecting to redis://"))
        });
        let ready = ready.await;
        assert!(
            ready.starts_with("HTTP/1.1 503") && ready.contains(r#""waiting_for":["redis","#),
            "{ready}"
        );
        let stats = get(admin, "/v1/stats").await;
        assert!(
            stats.starts_with("HTTP/1.1 503")
                && stats.contains("retry-after: 1")
                && stats.contains("waits for Redis"),
            "{stats}"
        );
        redis.restart().await.unwrap();
    };
    let (started, ()) = tokio::join!(dwell.restart(), course);
    started.unwrap();
    assert!(get(admin, "/v1/stats").await.starts_with("HTTP/1.1 200"));

    // Later it takes no application out of service.
    fixture.redis.kill().unwrap();
    let named = async || {
        Some(get(port, "/readyz").await).filter(|ready| ready.contains("connecting to redis://"))
    };
    let ready = wait_until("redis is named again", named).await;
    assert!(
        ready.starts_with("HTTP/1.1 200") && ready.contains(r#""waiting_for":["redis"]"#),
        "{ready}"
    );
    fixture.redis.restart().await.unwrap();
    wait_until("nothing is missing", async || {
        get(port, "/readyz").await.contains(r#""waiting_for":[]"#).then_some(())
    })
    .await;
    assert!(dwell.stop().await.unwrap().unwrap().success());
}

#[tokio::test]
async fn streams_that_are_missing_are_waited_for_and_told() {
    let mut fixture = Fixture::new().await;
    let mut dwell = DwellServer::prepare(program(), &fixture.settings(false)).unwrap();
    let (port, log) = (dwell.port(), dwell.dir().join("log"));
    let all = [
        "no stream has the subject `delay.in`",
        "at `delay.rejected`",
        "at `delay.dead`, which delivery.dead names",
    ];
    let course = async {
        until_alive(port).await;
        let named = async || {
            Some(get(port, "/readyz").await)
                .filter(|ready| all.iter().all(|missing| ready.contains(missing)))
        };
        let ready = wait_until("all that is missing is named", named).await;
        assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
        let config = fixture.file("now.toml", &format!("{}{LISTENERS}", fixture.settings(false)));
        for command in [&["run", "--wait", "0s"][..], &["check"]] {
            assert_eq!(run_with(&[&["-c", &config], command].concat(), b"").code, 69);
        }
        let told = std::fs::read_to_string(&log).unwrap();
        assert!(
            told.contains("is missing, waiting") && told.contains("set declare = true"),
            "{told}"
        );
        fixture.stream("LETTERS", &["delay.rejected", "delay.dead"]);
        fixture.stream("IN", &["delay.in"]);
    };
    let (started, ()) = tokio::join!(dwell.restart(), course);
    started.unwrap();
    wait_until("nothing is missing", async || {
        get(port, "/readyz").await.contains(r#""waiting_for":[]"#).then_some(())
    })
    .await;

    // The server comes back without any stream.
    fixture.nats.kill().unwrap();
    std::fs::remove_dir_all(fixture.nats.dir().join("jetstream")).unwrap();
    fixture.nats.restart().await.unwrap();
    let named = async || {
        Some(get(port, "/readyz").await)
            .filter(|ready| all.iter().all(|missing| ready.contains(missing)))
    };
    let ready = wait_until("all that is missing is named again", named).await;
    assert!(ready.starts_with("HTTP/1.1 200"), "a pod that runs stays ready: {ready}");
    fixture.stream("LETTERS", &["delay.rejected", "delay.dead"]);
    fixture.stream("IN", &["delay.in"]);
    fixture.stream("ORDERS", &["orders.>"]);
    wait_until("nothing is missing", async || {
        get(port, "/readyz").await.contains(r#""waiting_for":[]"#).then_some(())
    })
    .await;
    assert_eq!(fixture.run(&["send", "--for", "0s", "--target", "orders.a", "x"]).code, 0);
    wait_until("a job is delivered", async || (fixture.messages("ORDERS") > 0).then_some(())).await;
    assert!(dwell.stop().await.unwrap().unwrap().success());
}

#[tokio::test]
async fn a_redis_at_its_limit_of_connections_is_waited_for_and_told() {
    let fixture = Fixture::new().await;
    fixture.redis.order(&["CONFIG", "SET", "maxclients", "1"]).await.unwrap();
    let hold = async || {
        let mut link = TcpStream::connect(("127.0.0.1", fixture.redis.port())).await.unwrap();
        link.write_all(b"PING\r\n").await.ok()?;
        let mut answer = [0; 5];
        link.read_exact(&mut answer).await.ok()?;
        (answer == *b"+PONG").then_some(link)
    };
    let mut held = wait_until("the only connection is taken", hold).await;
    let mut dwell = DwellServer::prepare(program(), &fixture.settings(true)).unwrap();
    let port = dwell.port();
    let course = async {
        until_alive(port).await;
        let named = async || {
            Some(get(port, "/readyz").await)
                .filter(|ready| ready.contains("max number of clients reached"))
        };
        let ready = wait_until("the limit is named", named).await;
        assert!(
            ready.starts_with("HTTP/1.1 503") && ready.contains(r#""waiting_for":["redis","#),
            "{ready}"
        );
        held.write_all(b"CONFIG SET maxclients 1000\r\n").await.unwrap();
    };
    let (started, ()) = tokio::join!(dwell.restart(), course);
    started.unwrap();
    assert!(dwell.stop().await.unwrap().unwrap().success());
}

#[tokio::test]
async fn a_replica_that_the_durability_needs_is_waited_for_and_told() {
    let fixture = Fixture::new().await;
    let gated = |more: &str| {
        let with = format!("[redis]\ndurability = \"replica\"\n{more}");
        fixture.settings(true).replace("[redis]\n", &with)
    };
    let mut dwell = DwellServer::prepare(program(), &gated("")).unwrap();
    let (port, log) = (dwell.port(), dwell.dir().join("log"));
    let replica_of = Some(fixture.redis.port());
    let course = async {
        until_alive(port).await;
        let missing =
            format!("no replica is connected to redis://127.0.0.1:{}", fixture.redis.port());
        let named =
            async || Some(get(port, "/readyz").await).filter(|told| told.contains(&missing));
        let ready = wait_until("the replica is named", named).await;
        assert!(
            ready.starts_with("HTTP/1.1 503") && ready.contains(r#""waiting_for":["redis","#),
            "{ready}"
        );
        let told = std::fs::read_to_string(&log).unwrap();
        assert!(told.contains("WARN") && told.contains("start a replica"), "{told}");
        // Nothing is created before.
        let keys = fixture.redis.order(&["KEYS", "*"]).await.unwrap();
        assert!(keys.concat().is_empty(), "{keys:?}");
        let config = fixture.file("now.toml", &format!("{}{LISTENERS}", gated("")));
        for command in [&["run", "--wait", "0s"][..], &["check"]] {
            assert_eq!(run_with(&[&["-c", &config], command].concat(), b"").code, 69);
        }
        let options = RedisOptions { replica_of, ..RedisOptions::default() };
        RedisServer::start(options).await.unwrap()
    };
    let (started, replica) = tokio::join!(dwell.restart(), course);
    started.unwrap();
    assert!(get(port, "/readyz").await.contains(r#""waiting_for":[]"#));
    assert_eq!(fixture.run(&["send", "--for", "0s", "--target", "orders.a", "x"]).code, 0);
    wait_until("a job is delivered", async || (fixture.messages("ORDERS") > 0).then_some(())).await;

    // Without it what never works ends a start at once.
    drop(replica);
    let alone = async || {
        let told = fixture.redis.order(&["INFO", "replication"]).await.unwrap().concat();
        told.contains("connected_slaves:0").then_some(())
    };
    wait_until("the replica is gone", alone).await;
    let config = fixture.file("never.toml", &format!("{}{LISTENERS}", gated("buckets = 4\n")));
    let said = run_with(&["-c", &config, "run"], b"");
    assert!(said.code == 78 && said.err.contains("redis.buckets = 16"), "{said:?}");
    dwell.kill().unwrap();
}

#[tokio::test]
async fn a_bounded_wait_ends_with_69() {
    let mut fixture = Fixture::new().await;
    let mut far = NatsServer::start(NatsOptions::default()).await.unwrap();
    far.kill().unwrap();
    let config = fixture.file("far.toml", &format!("{}{LISTENERS}", with_far(&fixture, &far)));
    for wait in ["0s", "1s"] {
        let said = run_with(&["-c", &config, "run", "--wait", wait], b"");
        assert!(said.code == 69 && said.err.contains(&far.url()), "{wait}: {said:?}");
    }
    fixture.redis.kill().unwrap();
    let said = run_with(&["-c", &config, "run", "--wait", "1s"], b"");
    assert!(said.code == 69 && said.err.contains("redis://"), "{said:?}");
}
