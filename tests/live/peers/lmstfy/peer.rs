//! A server that speaks lmstfy's protocol, and the calls of a client.

use serde_json::Value;

use crate::peers::listeners::{Reply, call};
use crate::support::wait_until;

/// lmstfy, or Dwell in its place.
pub(super) struct Peer {
    pub(super) server: String,
    pub(super) token: String,
    /// Distinguishes the queues of this run: an lmstfy keeps its jobs.
    run: String,
}

impl Peer {
    pub(super) fn new(server: &str, token: &str) -> Peer {
        Peer {
            server: server.to_owned(),
            token: token.to_owned(),
            run: format!("{:06x}", rand::random::<u32>() >> 8),
        }
    }

    /// The name of a queue in this run.
    pub(super) fn queue(&self, name: &str) -> String {
        format!("{name}-{}", self.run)
    }

    /// A call with the token; `path` goes on after the namespace.
    pub(super) async fn call(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let headers = format!("x-token: {}\r\n{headers}", self.token);
        call(&self.server, &format!("{method} /api/client-ns/{path}"), &headers, body).await
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "", b"").await
    }

    /// Publishes; the id.
    #[track_caller]
    pub(super) fn publish(&self, path: &str, body: &str) -> impl Future<Output = String> + use<'_> {
        let (path, body) = (path.to_owned(), body.to_owned());
        async move {
            let reply = self.call("PUT", &path, "", body.as_bytes()).await;
            assert_eq!(
                (reply.status, reply.json()["msg"].as_str()),
                (201, Some("published")),
                "{path}: {reply:?}"
            );
            reply.json()["job_id"].as_str().unwrap().to_owned()
        }
    }

    /// Fetches one job; the answer.
    pub(super) async fn consume(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", String::from_utf8_lossy(&reply.body));
        assert!(
            reply.head.contains("\r\nx-request-id: ")
                && reply.head.contains("\r\ncontent-type: application/json"),
            "{reply:?}"
        );
        reply.json()
    }

    /// The number at the end of this path.
    pub(super) async fn size(&self, path: &str) -> u64 {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.json()["size"].as_u64().unwrap()
    }

    /// Waits until this queue has so many dead jobs.
    pub(super) async fn until_dead(&self, queue: &str, count: u64) {
        let path = format!("{queue}/deadletter/size");
        wait_until(&format!("{count} dead jobs in {queue}"), async || {
            (self.size(&path).await == count).then_some(())
        })
        .await;
    }
}

/// The body of a job.
pub(super) fn data(job: &Value) -> String {
    use base64::Engine;
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(job["data"].as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Takes the time that a job lives on out of it: not more than so many seconds, and not much less.
#[track_caller]
pub(super) fn take_ttl(job: &mut Value, most: u64) {
    let ttl = job.as_object_mut().unwrap().remove("ttl").unwrap();
    assert!(ttl.as_u64().is_some_and(|ttl| (most - 8..=most).contains(&ttl)), "{ttl} of {most}");
}
