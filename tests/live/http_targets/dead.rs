//! Dead letters of HTTP targets.

use serde_json::json;

use super::fixture::{Fixture, broker};
use super::receiver::Receiver;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_stay_in_redis_unless_a_url_takes_them() {
    let (failing, letters) = tokio::join!(Receiver::always(500), Receiver::always(204));
    let dead = format!("dead = \"{}\"", letters.url("/letters?token=hush"));
    let more = broker("lettered", &[&failing], &dead);
    let fixture = Fixture::start(&[&failing], &more).await;
    for name in ["hook", "lettered"] {
        let job = json!({"id": format!("dies-{name}"), "broker": name, "for": "0s", "target": failing.url("/"), "retry": ["10ms"],
            "headers": {"x-tag": "kept"}, "body": "order 17"});
        fixture.schedule(job).await;
    }
    for name in ["hook", "lettered"] {
        let dead = fixture.until_state(&format!("dies-{name}"), "dead").await;
        assert_eq!(
            (&dead["dead_reason"], &dead["attempt"]),
            (&json!("retries_exhausted"), &json!(2)),
            "{dead}"
        );
    }
    let seen = letters.until(1).await;
    assert_eq!(seen.len(), 1, "of the broker that names a URL: {seen:?}");
    let letter = &seen[0];
    assert_eq!(
        (letter.uri.to_string().as_str(), &letter.body[..]),
        ("/letters?token=hush", &b"order 17"[..])
    );
    for (name, value) in [
        ("delayed-id", "dies-lettered"),
        ("delayed-dead-reason", "retries_exhausted"),
        ("delayed-last-error", "the target answered 500 Internal Server Error"),
        ("x-tag", "kept"),
    ] {
        assert_eq!(letter.text(name), value, "{name}: {letter:?}");
    }
    // Both can be requeued.
    for name in ["hook", "lettered"] {
        let (status, verdict) =
            fixture.call(&format!("POST /v1/jobs/dies-{name}/requeue"), &json!({})).await;
        assert_eq!((status, &verdict["verdict"]), (200, &json!("requeued")), "{verdict}");
    }
    assert!(!fixture.log().contains("hush"), "{}", fixture.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_nobody_takes_is_kept_in_redis() {
    let failing = Receiver::always(500).await;
    let dead = format!("dead = \"{}\"", failing.url("/letters"));
    let fixture = Fixture::start(&[], &broker("lettered", &[&failing], &dead)).await;
    fixture.schedule(json!({"id": "dies", "broker": "lettered", "for": "0s", "target": failing.url("/hooks"), "retry": []})).await;
    let job = fixture.until_state("dies", "dead").await;
    assert_eq!(job["dead_reason"], "retries_exhausted", "{job}");
    let paths: Vec<_> = failing.seen().iter().map(|seen| seen.uri.path().to_owned()).collect();
    assert_eq!(paths, ["/hooks", "/letters"]);
}
