//! The features that lmstfy does not have: queues that are not declared, rights of tokens, and jobs
//! that a client does not lose when its connection breaks.

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::TOKEN;
use super::peer::Peer;
use crate::peers::listeners::{Listeners, call};
use crate::support::{redis_link, wait_until};

/// A namespace that the settings do not have.
pub(super) async fn undeclared_queues(peer: &Peer) {
    let dwell = Listeners::start("[queues.\"client-ns.declared\"]\n").await;
    for (line, status) in [
        ("PUT /api/client-ns/other", 400),
        ("PUT /api/client-ns/other/bulk", 400),
        ("PUT /api/client-ns/other/deadletter", 400),
        ("GET /api/client-ns/other", 404),
        ("GET /api/client-ns/declared,other?count=2", 404),
        ("GET /api/client-ns/other/peek", 404),
        ("GET /api/client-ns/other/size", 404),
        ("GET /api/client-ns/other/job/x", 404),
        ("GET /api/client-ns/other/deadletter", 404),
    ] {
        let reply = call(&dwell.lmstfy, line, "", b"[1]").await;
        assert_eq!(reply.status, status, "{line}");
        assert!(
            reply.json()["error"].as_str().unwrap().contains("client-ns.other"),
            "{line}: {reply:?}"
        );
    }
    for line in [
        "DELETE /api/client-ns/other",
        "DELETE /api/client-ns/other/job/x",
        "DELETE /api/client-ns/other/deadletter",
    ] {
        assert_eq!(call(&dwell.lmstfy, line, "", b"").await.status, 204, "{line}");
    }
    // Without tokens every token is fine, from this host alone.
    assert_eq!(
        call(&dwell.lmstfy, "PUT /api/client-ns/declared", "x-token: any\r\n", b"x").await.status,
        201
    );
    assert_eq!(
        call(&dwell.lmstfy, "PUT /api/client-ns/declared", "host: evil.example\r\n", b"x")
            .await
            .status,
        421
    );
    let page = "origin: http://evil.example\r\n";
    assert_eq!(
        call(&dwell.lmstfy, "GET /api/client-ns/declared", page, b"").await.status,
        403,
        "a fetch changes something"
    );
    let reply = peer.get("declared?timeout=600").await;
    assert_eq!(reply.status, 400, "{reply:?}");
}

/// A token for one namespace, and tokens that may do some things only.
pub(super) async fn scopes(dwell: &Listeners) {
    let headers = format!("x-token: {TOKEN}\r\n");
    let reply = call(&dwell.lmstfy, "PUT /api/other-ns/q", &headers, b"x").await;
    assert_eq!(reply.status, 403, "{reply:?}");
    let tokens = "[queues.\"n.*\"]\n[http.tokens.producer]\ntoken = \"of-the-producer\"\nmay = [\"schedule\"]\n[http.tokens.worker]\ntoken = \
                  \"of-the-worker\"\nmay = [\"consume\"]\n";
    let dwell = Listeners::start(tokens).await;
    for (line, producer, worker) in [
        ("PUT /api/n/q", 201, 403),
        ("PUT /api/n/q/bulk", 201, 403),
        ("PUT /api/n/q/job/x", 403, 403),
        ("GET /api/n/q", 403, 200),
        ("DELETE /api/n/q/job/x", 403, 204),
        ("GET /api/n/q/peek", 403, 403),
        ("GET /api/n/q/deadletter", 403, 403),
        ("PUT /api/n/q/deadletter", 403, 403),
        ("DELETE /api/n/q/deadletter", 403, 403),
        ("DELETE /api/n/q", 403, 403),
    ] {
        for (token, status) in [("of-the-producer", producer), ("of-the-worker", worker)] {
            let reply = call(&dwell.lmstfy, line, &format!("x-token: {token}\r\n"), b"[1]").await;
            assert_eq!(reply.status, status, "{line} {token}: {reply:?}");
        }
    }
    let log = dwell.log();
    assert!(
        log.contains("\"producer\"") && !log.contains("of-the-"),
        "the name of a token is logged, not the token"
    );
}

/// A full queue takes no new job, but one in the place of another.
pub(super) async fn full_queues() {
    let dwell = Listeners::start("[queues.\"full*\"]\nmax_jobs = 1\n").await;
    let publish = async |path: &str| {
        let reply = call(&dwell.lmstfy, &format!("PUT /api/full/{path}?delay=60"), "", b"x").await;
        assert_eq!(reply.status == 429, reply.head.contains("\r\nretry-after: 1\r\n"), "{reply:?}");
        (reply.status, reply.json())
    };
    let (status, answer) = publish("q").await;
    assert_eq!(status, 201, "{answer}");
    let (_, refused) = wait_until("the queue is full", async || {
        Some(publish("q").await).filter(|(status, _)| *status == 429)
    })
    .await;
    assert!(refused["error"].as_str().unwrap().contains("max_jobs"), "{refused}");
    let again = format!("q/job/{}", answer["job_id"].as_str().unwrap());
    assert_eq!(publish(&again).await.0, 201);
    assert_eq!(publish("q/job/unknown").await.0, 429);

    let push = async |id: &str| {
        let job =
            json!({"topic": "full", "id": id, "delay": 60, "ttr": 1, "body": "x"}).to_string();
        call(&dwell.delay_queue, "POST /push", "", job.as_bytes()).await.json()["code"].clone()
    };
    assert_eq!(push("a").await, 0);
    wait_until("the topic is full", async || {
        (push(&rand::random::<u32>().to_string()).await == 1).then_some(())
    })
    .await;
    assert_eq!(push("a").await, 0);
}

/// A job ends at its `ttl` in any state: while nobody fetches it, while a consumer has it, and
/// dead. Neither lmstfy's calls nor the HTTP API show it then.
pub(super) async fn ttl_in_any_state() {
    let dwell = Listeners::start("[queues.\"n.*\"]\n").await;
    let lmstfy = async |line: &str| call(&dwell.lmstfy, line, "", b"x").await;
    let publish = async |queue: &str, query: &str| {
        let reply = lmstfy(&format!("PUT /api/n/{queue}?{query}")).await;
        reply.json()["job_id"].as_str().unwrap().to_owned()
    };
    let fetch = async |queue: &str, ttr: u8| {
        lmstfy(&format!("GET /api/n/{queue}?ttr={ttr}&timeout=0")).await.json()["job_id"].clone()
    };
    let counts = async |queue: &str| {
        let counts = call(&dwell.http, &format!("GET /v1/queues/n.{queue}"), "", b"").await.json();
        ["ready", "reserved", "dead"].map(|state| counts[state].as_u64().unwrap())
    };
    let is_dead = async |queue: &str| {
        wait_until("a dead job", async || (counts(queue).await == [0, 0, 1]).then_some(())).await
    };
    // These stay: one without an end, and one that lives on by its respawn.
    let stays = publish("stays", "ttl=0").await;
    let again = publish("again", "ttl=25&tries=1").await;
    assert_eq!(fetch("again", 1).await, again);
    is_dead("again").await;
    assert_eq!(lmstfy("PUT /api/n/again/deadletter?limit=1&ttl=600").await.json()["count"], 1);
    let dead = publish("dead", "ttl=15&tries=1").await;
    assert_eq!(fetch("dead", 1).await, dead);
    is_dead("dead").await;
    let held = publish("held", "ttl=10").await;
    assert_eq!(fetch("held", 60).await, held);
    publish("ready", "ttl=2").await;

    for queue in ["ready", "held", "dead"] {
        wait_until("the end of the job", async || (counts(queue).await == [0, 0, 0]).then_some(()))
            .await;
    }
    assert_eq!(lmstfy("GET /api/n/dead/deadletter").await.json()["deadletter_size"], 0);
    for (queue, id) in [("held", &held), ("dead", &dead)] {
        assert_eq!(lmstfy(&format!("GET /api/n/{queue}/job/{id}")).await.status, 404);
    }
    assert_eq!((counts("stays").await, counts("again").await), ([1, 0, 0], [1, 0, 0]));
    assert_eq!(fetch("stays", 60).await, stays);
    assert_eq!(fetch("again", 60).await, again);
}

/// The id of a job of another queue shows and ends nothing.
pub(super) async fn job_of_another_queue(peer: &Peer) {
    let (mine, other) = (peer.queue("mine"), peer.queue("other"));
    let id = peer.publish(&format!("{mine}?ttl=60"), "x").await;
    assert_eq!(peer.get(&format!("{other}/job/{id}")).await.status, 404);
    let new = peer.publish(&format!("{other}/job/{id}?ttl=60"), "y").await;
    assert_eq!(
        (peer.size(&format!("{mine}/size")).await, peer.size(&format!("{other}/size")).await),
        (1, 1)
    );
    assert_ne!(new, id);
}

/// A job whose consumer went away before it got it is ready again at once, and burns no try.
pub(super) async fn clients_that_go_away(peer: &Peer) {
    let queue = peer.queue("goes-away");
    let address = peer.server.strip_prefix("http://").unwrap();
    let mut link = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET /api/client-ns/{queue}?ttr=60&timeout=60 HTTP/1.1\r\nhost: {address}\r\nx-token: {}\r\n\r\n",
        peer.token
    );
    link.write_all(head.as_bytes()).await.unwrap();
    drop(link);
    let id = peer.publish(&format!("{queue}?ttl=0&tries=1"), "x").await;
    let job = wait_until("the job for another consumer", async || {
        let reply = peer.get(&format!("{queue}?ttr=60&timeout=1")).await;
        (reply.status == 200).then(|| reply.json())
    })
    .await;
    assert_eq!((&job["job_id"], &job["remain_tries"]), (&json!(id), &json!(0)));
}

/// Hand-outs and ended leases are counted as those over HTTP are.
pub(super) async fn what_is_counted(dwell: &Listeners, peer: &Peer) {
    let read = async || {
        let series =
            |name: &str, more: &str| format!("dwell_{name}_total{{queue=\"client-ns.*\"{more}}}");
        let names = [
            series("pop", ""),
            series("popped_jobs", ""),
            series("lease_ends", ",end=\"finished\""),
        ];
        let [pops, popped, finished] = names.map(async |name| dwell.metric(&name).await);
        [pops.await, popped.await, finished.await]
    };
    let before = read().await;
    let queue = peer.queue("counted");
    let id = peer.publish(&format!("{queue}?ttl=60"), "x").await;
    peer.consume(&format!("{queue}?ttr=60&count=5")).await;
    peer.get(&queue).await;
    for _ in 0..2 {
        peer.call("DELETE", &format!("{queue}/job/{id}"), "", b"").await;
    }
    let after = read().await;
    assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), [2.0, 1.0, 1.0]);
}

/// Waiting consumers get an answer at once.
pub(super) async fn consumers_of_an_instance_that_stops(dwell: Listeners, peer: &Peer) {
    let path = format!("{}?timeout=60", peer.queue("waits"));
    let series = "dwell_pop_total{queue=\"client-ns.*\"}";
    let before = dwell.metric(series).await;
    let (reply, ()) = tokio::join!(peer.get(&path), async {
        wait_until("the consumer waits", async || {
            (dwell.metric(series).await > before).then_some(())
        })
        .await;
        dwell.stop().await;
    });
    assert_eq!((reply.status, reply.json()), (404, json!({"msg": "no job available"})));
}

/// A caller without a token may ask for sizes, and costs Redis next to nothing.
pub(super) async fn sizes_without_a_token(dwell: &Listeners, peer: &Peer) {
    let queue = peer.queue("sizes");
    let size = async |headers: &str| {
        let reply =
            call(&dwell.lmstfy, &format!("GET /api/client-ns/{queue}/size"), headers, b"").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["size"].as_u64().unwrap()
    };
    let mut redis = redis_link(&dwell.redis.url()).await;
    let mut counted = async || {
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut redis).await.unwrap();
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_zcount:calls="))
            .unwrap_or("0,");
        line.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let before = counted().await;
    for _ in 0..300 {
        assert_eq!(size("").await, 0);
    }
    // One count of 16 buckets a second, beside those of the gauges; 300 would be 4800.
    let many = counted().await - before;
    assert!(many < 2000, "300 calls count {many} times");
    let headers = format!("x-token: {TOKEN}\r\n");
    assert_eq!(
        call(&dwell.lmstfy, &format!("PUT /api/client-ns/{queue}"), &headers, b"x").await.status,
        201
    );
    assert_eq!(size(&headers).await, 1, "with a token it is that of now");
    wait_until("a new count", async || (size("").await == 1).then_some(())).await;
}
