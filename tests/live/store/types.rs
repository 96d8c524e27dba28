//! A key with a wrong type: calls fail while it exists, and change nothing.

use dwell::store::queue::settle::Completion;

use super::fixture::{FAR, Fixture, LEASE, MAIN, PAST, held, id, request};

/// Every key that may be missing in a bucket with jobs: a key that exists is of its own type.
const MISSING: [&str; 11] = [
    "claim_deadlines",
    "claims",
    "settled",
    "held",
    "state",
    "completed",
    "completed_old",
    "applied",
    "applied_old",
    "dead",
    "queues",
];

#[tokio::test]
async fn a_claim_takes_nothing_while_a_key_is_of_another_type() {
    for name in MISSING {
        let fixture = Fixture::new().await;
        fixture.put(request("job", 1, PAST)).await;
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(fixture.store.queue.claim(0, MAIN, LEASE, 128, 1 << 20).await.is_err(), "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "due:main", "{name}");
        let lease = fixture.claim_one().await;
        assert_eq!((lease.id, lease.state.attempt), (id("job"), 1), "{name}");
    }
}

#[tokio::test]
async fn a_request_is_stored_whole_or_not_at_all_while_a_key_is_of_another_type() {
    for name in [
        "due:main",
        "claim_deadlines",
        "claims",
        "settled",
        "held",
        "completed",
        "completed_old",
        "applied",
        "applied_old",
        "dead",
        "queues",
    ] {
        let fixture = Fixture::new().await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(fixture.store.queue.schedule(&[request("job", 1, FAR)]).await.is_err(), "{name}");
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        // The broker delivers it again.
        fixture.put(request("job", 1, FAR)).await;
        assert_eq!(fixture.place("job").await, "due:main", "{name}");
    }
}

#[tokio::test]
async fn a_settle_ends_a_job_whole_or_not_at_all_while_a_key_is_of_another_type() {
    for name in ["held", "completed", "completed_old", "applied", "applied_old", "dead"] {
        let fixture = Fixture::new().await;
        fixture.put(request("job", 1, PAST)).await;
        let lease = fixture.claim_one().await;
        fixture.redis(&["SET", &fixture.key(name), "foreign"]).await;
        assert!(
            fixture.store.queue.complete(0, &[held(&lease)], Completion::Fired).await.is_err(),
            "{name}"
        );
        fixture.redis(&["DEL", &fixture.key(name)]).await;
        assert_eq!(fixture.place("job").await, "lease", "{name}");
        assert!(fixture.complete(&lease).await, "{name}");
        assert_eq!(fixture.place("job").await, "none", "{name}");
    }
}
