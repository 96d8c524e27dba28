//! The cases of lmstfy's handlers that its client does not have.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::peer::{Peer, data};
use crate::support::wait_until;

/// A queue without jobs does not hold up one that has some; a delayed job ends the wait.
pub(super) async fn consume_multi(peer: &Peer) {
    let queues = ["q3", "q4", "q5"].map(|name| peer.queue(name));
    let list = queues.join(",");
    let id = peer.publish(&format!("{}?ttl=60", queues[1]), "now").await;
    assert_eq!(peer.consume(&format!("{list}?ttr=10&timeout=0")).await["job_id"], id);
    let begun = Instant::now();
    let id = peer.publish(&format!("{}?ttl=60&delay=2", queues[1]), "later").await;
    let job = peer.consume(&format!(",{list},?ttr=10&timeout=10")).await;
    assert_eq!(
        (&job["job_id"], &job["queue"], data(&job).as_str()),
        (&json!(id), &json!(queues[1]), "later")
    );
    // lmstfy counts whole seconds.
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// A job that waits is deleted too.
pub(super) async fn delete(peer: &Peer) {
    let queue = peer.queue("q6");
    let id = peer.publish(&format!("{queue}?ttl=60&delay=1"), "x").await;
    assert_eq!(peer.call("DELETE", &format!("{queue}/job/{id}"), "", b"").await.status, 204);
    assert_eq!(peer.get(&format!("{queue}?ttr=10&timeout=2")).await.status, 404);
    // Text that is no id is no error.
    assert_eq!(peer.call("DELETE", &format!("{queue}/job/no%0Aid"), "", b"").await.status, 204);
}

/// Ready jobs go; waiting and reserved ones stay.
pub(super) async fn destroy_queue(peer: &Peer) {
    let queue = peer.queue("q13");
    peer.publish(&format!("{queue}?ttl=60"), "reserved").await;
    peer.consume(&format!("{queue}?ttr=60")).await;
    let waits = peer.publish(&format!("{queue}?ttl=60&delay=30"), "waits").await;
    for body in ["a", "b"] {
        peer.publish(&format!("{queue}?ttl=60"), body).await;
    }
    let reply = peer.call("DELETE", &queue, "", b"").await;
    assert_eq!(
        (reply.status, reply.body.len(), peer.size(&format!("{queue}/size")).await),
        (204, 0, 0)
    );
    assert_eq!(peer.get(&format!("{queue}?timeout=0")).await.status, 404);
    assert_eq!(peer.get(&format!("{queue}/job/{waits}")).await.status, 200);
}

/// Each value byte for byte, but for the white space around it.
pub(super) async fn publish_bulk(peer: &Peer) {
    let queue = peer.queue("q17");
    let body = "[ {\"a\": 1.50, \"b\":[ ]},  \"x\\u00e9\\/\" ,null, 1e400 ]";
    let reply =
        peer.call("PUT", &format!("{queue}/bulk?ttl=10&tries=2"), "", body.as_bytes()).await;
    assert_eq!(reply.status, 201);
    let jobs = peer.consume(&format!("{queue}?count=10")).await;
    let ids = reply.json()["job_ids"].as_array().unwrap().clone();
    let mut found: Vec<(Value, String)> =
        jobs.as_array().unwrap().iter().map(|job| (job["job_id"].clone(), data(job))).collect();
    found.sort_by_key(|(id, _)| ids.iter().position(|other| other == id));
    let bodies: Vec<&str> = found.iter().map(|(_, body)| body.as_str()).collect();
    assert_eq!(bodies, ["{\"a\": 1.50, \"b\":[ ]}", "\"x\\u00e9\\/\"", "null", "1e400"]);
    assert!(ids.windows(2).all(|pair| pair[0].as_str().unwrap().len() == 26));
}

/// Attributes only with a version in the id; names and values are cut, and no more than sixteen.
pub(super) async fn publish_with_job_version(peer: &Peer) {
    let queue = peer.queue("q18");
    let (name, value) = ("k".repeat(300), "v".repeat(300));
    let attributes = format!(
        "Job-Attr-Hello: world\r\nJob-Attr-Foo: bar\r\nJob-Attr-Empty: \r\nJob-Attr-{name}: {value}\r\n"
    );
    for (enable, version) in [("yes", "1"), ("NO", "")] {
        let headers = format!("Enable-Job-Version: {enable}\r\n{attributes}");
        let reply =
            peer.call("PUT", &format!("{queue}?ttl=10"), &headers, b"hello job version").await;
        let id = reply.json()["job_id"].as_str().unwrap().to_owned();
        assert_eq!((reply.status, id.len()), (201, 26 + version.len()));
        let job = peer.consume(&format!("{queue}?ttr=10&timeout=3")).await;
        assert_eq!((&job["job_id"], data(&job).as_str()), (&json!(id), "hello job version"));
        let wanted = json!({"hello": "world", "foo": "bar", (&name[..32]): (&value[..128])});
        assert_eq!(job["attributes"], if version.is_empty() { Value::Null } else { wanted });
    }
    let many: String = (0..17).map(|n| format!("Job-Attr-{n}: x\r\n")).collect();
    let reply = peer
        .call(
            "PUT",
            &format!("{queue}?ttl=10"),
            &format!("Enable-Job-Version: YES\r\n{many}"),
            b"x",
        )
        .await;
    assert_eq!(
        (reply.status, reply.json()),
        (400, json!({"error": "too many attributes, cannot exceed 16"}))
    );
}

/// A job ends without a trace: one that is ready, one that waits, one that is reserved.
pub(super) async fn time_to_live(peer: &Peer) {
    let queue = peer.queue("test-ttl");
    let ready = peer.publish(&format!("{queue}?ttl=1&tries=5"), "ready").await;
    let reserved = peer.publish(&format!("{queue}-reserved?ttl=6&tries=1"), "reserved").await;
    assert_eq!(peer.consume(&format!("{queue}-reserved?ttr=8")).await["job_id"], reserved);
    for (queue, id) in [(queue.clone(), ready), (format!("{queue}-reserved"), reserved)] {
        wait_until(&format!("{id} is over"), async || {
            (peer.get(&format!("{queue}/job/{id}")).await.status == 404).then_some(())
        })
        .await;
        // Also after the lease.
        assert_eq!(peer.get(&format!("{queue}?ttr=3&timeout=3")).await.status, 404);
        assert_eq!(peer.size(&format!("{queue}/deadletter/size")).await, 0);
    }
}
