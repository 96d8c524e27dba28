//! The cases of lmstfy's client but those of dead letters.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::peer::{Peer, data, take_ttl};

pub(super) async fn publish(peer: &Peer) {
    let id = peer
        .publish(&format!("{}?ttl=0&tries=1&delay=0", peer.queue("test-publish")), "hello")
        .await;
    assert_eq!(id.len(), 26, "{id}");
}

pub(super) async fn republish(peer: &Peer) {
    let queue = peer.queue("test-republish");
    let first = peer.publish(&format!("{queue}?ttl=0&tries=1&delay=0"), "hello").await;
    let job = peer.consume(&format!("{queue}?ttr=5&timeout=1&freeze_tries=false")).await;
    assert_eq!((job["job_id"].as_str(), data(&job).as_str()), (Some(first.as_str()), "hello"));
    let second =
        peer.publish(&format!("{queue}/job/{first}?ttl=10&tries=1&delay=0"), "hello").await;
    assert_ne!(first, second);
    let mut job = peer.consume(&format!("{queue}?ttr=5&timeout=1")).await;
    take_ttl(&mut job, 10);
    assert_eq!((job["job_id"].as_str(), data(&job).as_str()), (Some(second.as_str()), "hello"));
    assert_eq!(
        peer.get(&format!("{queue}/job/{first}")).await.status,
        404,
        "the first one is over"
    );
}

pub(super) async fn batch_publish(peer: &Peer) {
    let queue = peer.queue("test-batchpublish");
    let bodies = [r#""hello msg""#, "123456", r#"{"msg":"success"}"#, r#"["foo","bar"]"#, "true"];
    let reply = peer
        .call(
            "PUT",
            &format!("{queue}/bulk?ttl=10&tries=1&delay=0"),
            "",
            format!("[{}]", bodies.join(",")).as_bytes(),
        )
        .await;
    assert_eq!((reply.status, &reply.json()["msg"]), (201, &json!("published")));
    let ids: Vec<Value> = reply.json()["job_ids"].as_array().unwrap().clone();
    assert_eq!(ids.len(), bodies.len());
    for _ in 0..bodies.len() {
        let job = peer.consume(&format!("{queue}?ttr=5&timeout=1")).await;
        let at = ids.iter().position(|id| *id == job["job_id"]).unwrap();
        assert_eq!(data(&job), bodies[at]);
    }
}

pub(super) async fn consume(peer: &Peer) {
    let queue = peer.queue("test-consume");
    let id = peer.publish(&format!("{queue}?ttl=0&tries=1&delay=0"), "hello").await;
    let mut job = peer.consume(&format!("{queue}?ttr=10&timeout=0")).await;
    let elapsed = job.as_object_mut().unwrap().remove("elapsed_ms").unwrap();
    assert!(elapsed.as_i64().unwrap() < 30_000, "{elapsed}");
    let wanted = json!({"msg": "new job", "namespace": "client-ns", "queue": queue, "job_id": id, "data": "aGVsbG8=", "ttl": 0,
        "remain_tries": 0, "attributes": null});
    assert_eq!(job, wanted);
}

pub(super) async fn publish_with_attributes(peer: &Peer) {
    let queue = peer.queue("test-publish-attributes");
    let headers = "enable-job-version: YES\r\nJob-Attr-HELLO: world\r\nJob-Attr-FOO: bar\r\n";
    let reply =
        peer.call("PUT", &format!("{queue}?ttl=10&tries=10&delay=0"), headers, b"hello").await;
    let job = peer.consume(&format!("{queue}?ttr=10&timeout=3")).await;
    assert_eq!((&job["job_id"], data(&job).as_str()), (&reply.json()["job_id"], "hello"));
    assert_eq!(
        (&job["attributes"], &job["remain_tries"]),
        (&json!({"hello": "world", "foo": "bar"}), &json!(9))
    );
}

pub(super) async fn batch_consume(peer: &Peer) {
    let queue = peer.queue("test-batchconsume");
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(peer.publish(&format!("{queue}?ttl=0&tries=1&delay=0"), "hello").await);
    }
    let path = format!("{queue}?ttr=3&count=3&timeout=1");
    for count in [3, 1] {
        let jobs = peer.consume(&path).await;
        let jobs = jobs.as_array().unwrap();
        assert_eq!(jobs.len(), count);
        for job in jobs {
            assert_eq!((data(job).as_str(), &job["msg"]), ("hello", &json!("new job")));
            ids.retain(|id| job["job_id"] != *id);
        }
    }
    assert!(ids.is_empty(), "{ids:?}");
    let begun = Instant::now();
    let reply = peer.get(&path).await;
    assert_eq!((reply.status, reply.json()), (404, json!({"msg": "no job available"})));
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

pub(super) async fn ack(peer: &Peer) {
    let queue = peer.queue("test-ack");
    let id = peer.publish(&format!("{queue}?ttl=0&tries=1&delay=0"), "hello").await;
    peer.consume(&format!("{queue}?ttr=10&timeout=0")).await;
    let reply =
        peer.call("DELETE", &format!("{}/job/{id}", peer.queue("test-finish")), "", b"").await;
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    assert_eq!(
        peer.get(&format!("{queue}/job/{id}")).await.status,
        200,
        "it belongs to another queue"
    );
    for _ in 0..2 {
        assert_eq!(peer.call("DELETE", &format!("{queue}/job/{id}"), "", b"").await.status, 204);
        let reply = peer.get(&format!("{queue}/job/{id}")).await;
        assert_eq!((reply.status, reply.json()), (404, json!({"error": "job not found"})));
    }
}

pub(super) async fn consume_from_queues(peer: &Peer) {
    let (first, second) = (peer.queue("test-multi-consume1"), peer.queue("test-multi-consume2"));
    peer.publish(&format!("{first}?ttl=0&tries=1"), "hello1").await;
    let id = peer.publish(&format!("{second}?ttl=0&tries=1"), "hello2").await;
    let job = peer.consume(&format!("{second},{first}?ttr=10&timeout=1")).await;
    assert_eq!(
        (&job["queue"], &job["job_id"], data(&job).as_str()),
        (&json!(second), &json!(id), "hello2")
    );
    // A batch goes on with the next queue.
    peer.publish(&format!("{second}?ttl=0&tries=1"), "hello3").await;
    let jobs = peer.consume(&format!("{second},{first}?ttr=10&count=5")).await;
    let bodies: Vec<String> = jobs.as_array().unwrap().iter().map(data).collect();
    assert_eq!(bodies, ["hello3", "hello1"]);
}

pub(super) async fn queue_size(peer: &Peer) {
    let queue = peer.queue("test-queue-size");
    for _ in 0..2 {
        peer.publish(&format!("{queue}?ttl=0&tries=1"), "hello").await;
    }
    let reply = peer.get(&format!("{queue}/size")).await;
    assert_eq!(
        (reply.status, reply.json()),
        (200, json!({"namespace": "client-ns", "queue": queue, "size": 2}))
    );
    assert_eq!(peer.size(&format!("{}/size", peer.queue("test-no-queue"))).await, 0);
}

pub(super) async fn peek_queue(peer: &Peer) {
    let queue = peer.queue("test-peek-queue");
    let reply = peer.get(&format!("{queue}/peek")).await;
    assert_eq!((reply.status, reply.json()), (404, json!({"error": "the queue is empty"})));
    let id = peer.publish(&format!("{queue}?ttl=100&tries=3"), "hello1").await;
    peer.publish(&format!("{queue}?ttl=0&tries=1"), "hello2").await;
    let mut job = peer.consume(&format!("{queue}/peek")).await;
    job.as_object_mut().unwrap().remove("elapsed_ms").unwrap();
    take_ttl(&mut job, 100);
    let wanted = json!({"namespace": "client-ns", "queue": queue, "job_id": id, "data": "aGVsbG8x", "remain_tries": 3, "attributes": null});
    assert_eq!((job, peer.size(&format!("{queue}/size")).await), (wanted, 2));
}

pub(super) async fn peek_job(peer: &Peer) {
    let queue = peer.queue("test-peek-job");
    let id = peer.publish(&format!("{queue}?ttl=0&tries=1"), "hello1").await;
    peer.publish(&format!("{queue}?ttl=0&tries=1"), "hello2").await;
    assert_eq!(data(&peer.consume(&format!("{queue}/job/{id}")).await), "hello1");
}
