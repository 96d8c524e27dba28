//! The outcome of each answer of an application, straight and behind nginx.

use std::time::Duration;

use dwell_connectors::Outcome;

use crate::app::{Answer, App};
use crate::nginx::Nginx;
use crate::{assert_failed, assert_refused, attempt, local};

#[tokio::test]
async fn the_status_decides() {
    let app = App::start().await;
    let nginx = Nginx::start(app.address());
    let answers = [
        ("/200", Answer::status(200).body("{}")),
        ("/201", Answer::status(201)),
        ("/202", Answer::status(202).body("{\"failed\": true}")),
        ("/204", Answer::status(204)),
        ("/410", Answer::status(410).body("for ever")),
        ("/429", Answer::status(429).body("later")),
        ("/429-7", Answer::status(429).header("retry-after", "7")),
        ("/503", Answer::status(503)),
        ("/503-0", Answer::status(503).header("retry-after", "0")),
        ("/503-date", {
            let clock = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:37 GMT");
            Answer::status(503).header("date", clock.0).header("retry-after", clock.1)
        }),
        ("/500", Answer::status(500).header("retry-after", "7").body("a bug")),
        ("/401", Answer::status(401)),
    ];
    for (path, answer) in answers {
        app.answer(path, answer);
    }
    let config = nginx.trusted();
    for place in [app.url(""), nginx.url(""), nginx.tls_url("")] {
        let outcome = async |path: &str| attempt(config.clone(), &format!("{place}{path}")).await;
        for finished in ["/200", "/201", "/204"] {
            assert_eq!(outcome(finished).await, Outcome::Finished, "{place}{finished}");
        }
        assert_eq!(outcome("/202").await, Outcome::Confirmed, "{place}");
        assert_eq!(
            outcome("/410").await,
            Outcome::Invalid("the target answered 410 Gone: for ever".to_owned()),
            "{place}"
        );
        assert_refused(&outcome("/429").await, "the target answered 429 Too Many Requests: later");
        for (path, seconds) in [("/429-7", 7), ("/503-0", 1)] {
            let answer = outcome(path).await;
            assert!(
                matches!(answer, Outcome::Throttled { wait, .. } if wait == Duration::from_secs(seconds)),
                "{place}{path}: {answer:?}"
            );
        }
        // nginx writes a date of its own.
        if place.starts_with(&app.url("")) {
            let answer = outcome("/503-date").await;
            assert!(
                matches!(answer, Outcome::Throttled { wait, .. } if wait == Duration::from_secs(60)),
                "{answer:?}"
            );
        }
        assert_failed(&outcome("/503").await, "503 Service Unavailable");
        assert_failed(
            &outcome("/500").await,
            "the target answered 500 Internal Server Error: a bug",
        );
        assert_failed(&outcome("/401").await, "401 Unauthorized");
        assert_failed(&outcome("/nowhere").await, "404 Not Found: nothing is at http");
    }
    drop(app);
    assert_failed(&attempt(config, &nginx.url("/200")).await, "502 Bad Gateway");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let app = App::start().await;
    app.answer("/end", Answer::status(200));
    for status in [301, 302, 303, 307, 308] {
        app.answer(
            "/start",
            Answer::status(status).header("location", app.url("/end?token=secret")),
        );
        let outcome = attempt(local(), &app.url("/start")).await;
        assert_failed(&outcome, &format!("the target answered {status}"));
        assert_failed(&outcome, "redirects are not followed: name the new URL");
        assert!(!outcome.to_string().contains("secret"), "{outcome}");
    }
    assert_eq!((app.received("/start").len(), app.received("/end").len()), (5, 0));
}

#[tokio::test]
async fn the_last_error_has_a_start_of_the_body() {
    let app = App::start().await;
    app.answer("/", Answer::status(500).body("no".repeat(100_000)));
    let outcome = attempt(local(), &app.url("/")).await;
    let expected = format!("the target answered 500 Internal Server Error: {}", "no".repeat(2048));
    assert!(outcome == Outcome::Failed(expected), "{} bytes", outcome.to_string().len());
}
