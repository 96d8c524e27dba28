//! The refusals, and their words.

use serde_json::json;

use super::peer::Peer;
use crate::peers::listeners::call;

pub(super) async fn refused_publishes(peer: &Peer) {
    let queue = peer.queue("test-refused");
    for (query, error) in [
        ("delay=x", "invalid delay"),
        ("delay=-1", "invalid delay"),
        ("ttl=4294967296", "invalid ttl"),
        ("delay=3&ttl=2", "ttl is shorter than delay"),
        ("tries=65536", "invalid tries"),
        ("tries=0", "tries shouldn't be zero"),
    ] {
        for path in [format!("{queue}?{query}"), format!("{queue}/bulk?{query}")] {
            let reply = peer.call("PUT", &path, "", b"[1]").await;
            assert_eq!((reply.status, reply.json()), (400, json!({ "error": error })), "{path}");
        }
    }
    let many = format!("[{}1]", "1,".repeat(64));
    for (body, error) in [
        ("{\"a\":1}", "request body should be an array of objects"),
        ("[1", "request body should be an array of objects"),
        ("[]", "no jobs"),
        (&many, "too many jobs"),
    ] {
        let reply = peer.call("PUT", &format!("{queue}/bulk"), "", body.as_bytes()).await;
        assert_eq!((reply.status, reply.json()), (400, json!({ "error": error })), "{body}");
    }
    let reply = peer.call("PUT", &queue, "", &vec![b'x'; (1 << 20) + 1]).await;
    assert_eq!((reply.status, reply.json()), (413, json!({"error": "body too large"})));
    assert_eq!(peer.size(&format!("{queue}/size")).await, 0);
    assert_eq!(peer.call("PUT", &queue, "", &vec![0; 1 << 20]).await.status, 201, "1 MiB");
}

pub(super) async fn refused_consumes(peer: &Peer) {
    let queue = peer.queue("test-refused-consume");
    for (query, error) in [
        ("ttr=-1", "invalid ttr"),
        ("timeout=x", "invalid timeout"),
        ("count=0", "invalid count"),
        ("count=101", "invalid count"),
        ("count=x", "invalid count"),
    ] {
        let reply = peer.get(&format!("{queue}?{query}")).await;
        assert_eq!((reply.status, reply.json()), (400, json!({ "error": error })), "{query}");
    }
    let reply = peer.get(",").await;
    assert_eq!((reply.status, reply.json()), (400, json!({"error": "invalid queue name(s)"})));
    for (method, query, error) in [
        ("PUT", "limit=0", "invalid limit"),
        ("PUT", "ttl=-1", "invalid ttl"),
        ("DELETE", "limit=0", "invalid limit"),
    ] {
        let reply = peer.call(method, &format!("{queue}/deadletter?{query}"), "", b"").await;
        assert_eq!(
            (reply.status, reply.json()),
            (400, json!({ "error": error })),
            "{method} {query}"
        );
    }
}

pub(super) async fn refused_names(peer: &Peer) {
    for queue in ["p.q", "_q", "p,q", "p%20q"] {
        let reply = peer.call("PUT", queue, "", b"x").await;
        assert_eq!(
            (reply.status, reply.json()),
            (400, json!({"error": "queue name contains forbidden characters"})),
            "{queue}"
        );
    }
    let long = "q".repeat(256);
    let reply = peer.call("PUT", &long, "", b"x").await;
    assert_eq!(
        (reply.status, reply.json()),
        (400, json!({"error": "namespace or queue name too long"}))
    );
    let headers = format!("x-token: {}\r\n", peer.token);
    let reply = call(&peer.server, "PUT /api/client.ns/q", &headers, b"x").await;
    assert_eq!(
        (reply.status, reply.json()),
        (400, json!({"error": "namespace name contains forbidden characters"}))
    );
}

pub(super) async fn tokens(peer: &Peer) {
    let (queue, token) = (peer.queue("test-tokens"), &peer.token);
    let path = format!("GET /api/client-ns/{queue}/peek");
    for (query, headers, status, error) in [
        (String::new(), String::new(), 401, "token not found"),
        (String::new(), "x-token: wrong\r\n".to_owned(), 401, "invalid token"),
        ("?token=wrong".to_owned(), String::new(), 401, "invalid token"),
        (String::new(), format!("x-token: other:{token}\r\n"), 404, "pool not found"),
        (format!("?token={token}"), String::new(), 404, "the queue is empty"),
        (String::new(), format!("x-token: default:{token}\r\n"), 404, "the queue is empty"),
    ] {
        let reply = call(&peer.server, &format!("{path}{query}"), &headers, b"").await;
        assert_eq!(
            (reply.status, reply.json()),
            (status, json!({ "error": error })),
            "{query} {headers}"
        );
    }
    // Sizes need no token.
    for end in ["size", "deadletter/size"] {
        let reply = call(&peer.server, &format!("GET /api/client-ns/{queue}/{end}"), "", b"").await;
        assert_eq!((reply.status, &reply.json()["size"]), (200, &json!(0)), "{end}");
    }
}

pub(super) async fn unknown_calls(peer: &Peer) {
    for line in [
        "POST /api/client-ns/q",
        "GET /api/client-ns/q/other",
        "GET /other",
        "DELETE /api/client-ns/q/size",
    ] {
        let reply = call(&peer.server, line, &format!("x-token: {}\r\n", peer.token), b"").await;
        assert_eq!(
            (reply.status, reply.json()),
            (404, json!({"error": "api not found"})),
            "{line}"
        );
    }
}
