//! The cases of dead letters: a job is dead once the lease of its last try is over.

use serde_json::json;

use super::peer::{Peer, data, take_ttl};
use crate::support::wait_until;

/// A job of one try whose lease was over; its id.
async fn dead_job(peer: &Peer, queue: &str, body: &str) -> String {
    let before = peer.size(&format!("{queue}/deadletter/size")).await;
    let id = peer.publish(&format!("{queue}?ttl=60&tries=1&delay=0"), body).await;
    assert_eq!(peer.consume(&format!("{queue}?ttr=1&timeout=0")).await["job_id"], id);
    peer.until_dead(queue, before + 1).await;
    id
}

pub(super) async fn peek_dead_letter(peer: &Peer) {
    let queue = peer.queue("test-peek-deadletter");
    let empty = json!({"namespace": "client-ns", "queue": queue, "deadletter_size": 0, "deadletter_head": ""});
    assert_eq!(peer.get(&format!("{queue}/deadletter")).await.json(), empty);
    let id = dead_job(peer, &queue, "hello1").await;
    dead_job(peer, &queue, "hello2").await;
    let reply = peer.get(&format!("{queue}/deadletter")).await;
    let wanted = json!({"namespace": "client-ns", "queue": queue, "deadletter_size": 2, "deadletter_head": id});
    assert_eq!((reply.status, reply.json()), (200, wanted));
    let job = peer.consume(&format!("{queue}/job/{id}")).await;
    assert_eq!(
        (data(&job).as_str(), &job["ttl"], &job["remain_tries"]),
        ("hello1", &json!(0), &json!(0)),
        "a dead job has no end"
    );
}

pub(super) async fn respawn_dead_letter(peer: &Peer) {
    let queue = peer.queue("test-respawn-deadletter");
    let id = dead_job(peer, &queue, "hello1").await;
    let respawn = |query: &str| {
        let path = format!("{queue}/deadletter{query}");
        async move { peer.call("PUT", &path, "", b"").await }
    };
    let reply = respawn("?limit=2&ttl=120").await;
    assert_eq!((reply.status, reply.json()), (200, json!({"msg": "respawned", "count": 1})));
    let mut job = peer.consume(&format!("{queue}?ttr=1&timeout=0")).await;
    take_ttl(&mut job, 120);
    assert_eq!(
        (&job["job_id"], data(&job).as_str(), &job["remain_tries"]),
        (&json!(id), "hello1", &json!(0)),
        "one try"
    );
    // Dead again; this time one of two, with the default limit.
    peer.until_dead(&queue, 1).await;
    let other = dead_job(peer, &queue, "hello2").await;
    assert_eq!(respawn("").await.json()["count"], 1);
    assert_eq!(
        peer.consume(&format!("{queue}?ttr=10&timeout=0")).await["job_id"],
        id,
        "the one that died first"
    );
    assert_eq!(respawn("?limit=100").await.json()["count"], 1);
    assert_eq!(peer.consume(&format!("{queue}?ttr=10&timeout=0")).await["job_id"], other);
    assert_eq!(respawn("?limit=100").await.json()["count"], 0);
}

pub(super) async fn delete_dead_letter(peer: &Peer) {
    let queue = peer.queue("test-delete-deadletter");
    let id = dead_job(peer, &queue, "hello1").await;
    let other = dead_job(peer, &queue, "hello2").await;
    // The one that died first, and no more than asked for.
    let reply = peer.call("DELETE", &format!("{queue}/deadletter?limit=1"), "", b"").await;
    assert_eq!(reply.status, 204);
    let left = peer.get(&format!("{queue}/deadletter")).await.json();
    assert_eq!((&left["deadletter_size"], &left["deadletter_head"]), (&json!(1), &json!(other)));
    let reply = peer.call("DELETE", &format!("{queue}/deadletter?limit=2"), "", b"").await;
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    for id in [id, other] {
        assert_eq!(peer.get(&format!("{queue}/job/{id}")).await.status, 404);
    }
    assert_eq!(peer.size(&format!("{queue}/deadletter/size")).await, 0);
    assert_eq!(peer.call("DELETE", &format!("{queue}/deadletter"), "", b"").await.status, 204);
}

/// A job of three tries comes again after each lease, and is dead after the third.
pub(super) async fn tries(peer: &Peer) {
    let queue = peer.queue("test-tries");
    let id = peer.publish(&format!("{queue}?ttl=0&tries=3&delay=0"), "again").await;
    for left in [2, 1, 0] {
        let job = wait_until("the job again", async || {
            let reply = peer.get(&format!("{queue}?ttr=1&timeout=1")).await;
            (reply.status == 200).then(|| reply.json())
        })
        .await;
        assert_eq!((&job["job_id"], &job["remain_tries"]), (&json!(id), &json!(left)));
    }
    peer.until_dead(&queue, 1).await;
}
