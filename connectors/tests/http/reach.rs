//! Hosts that are not there, and hosts that may not be connected to.

use dwell_connectors::{BrokerConfig, Destination, Outcome, http};

use crate::app::{Answer, App};
use crate::{assert_failed, attempt, local};

#[tokio::test]
async fn a_host_that_is_not_there_fails_the_attempt() {
    assert_failed(&attempt(local(), "http://127.0.0.1:1/").await, "the target cannot be reached: ");
    assert_failed(&attempt(local(), "http://127.0.0.1:1/").await, "refused");
    assert_failed(&attempt(local(), "https://127.0.0.1:1/").await, "refused");
    assert_failed(&attempt(local(), "http://does-not-exist.invalid/").await, "the target cannot be reached: ");
}

#[tokio::test]
async fn this_machine_is_a_target_only_where_a_subnet_says_so() {
    let app = App::start().await;
    app.answer("/", Answer::status(200));
    let port = app.address().port();
    let places = ["127.0.0.1", "localhost", "127.1", "0x7f.0.0.1", "2130706433"].map(|host| format!("http://{host}:{port}/"));
    let closed = || BrokerConfig::Http(http::Config::default());
    for place in &places {
        let is_name = place.contains("localhost");
        let why = closed().forbidden(&Destination::new(place));
        assert!(if is_name { why.is_none() } else { why.is_some_and(|why| why.contains("127.0.0.1 is a loopback address")) }, "{place}");
        assert_failed(&attempt(http::Config::default(), place).await, "add its subnet to `subnets` of the broker");
        let reached = closed().reach(&format!("{place}*")).await.unwrap().unwrap_err();
        assert!(reached.message.contains("loopback") && reached.hint.contains("`subnets`"), "{reached}");
    }
    assert_eq!(app.received("/").len(), 0);
    for place in &places {
        assert_eq!(BrokerConfig::Http(local()).forbidden(&Destination::new(place)), None, "{place}");
        assert_eq!(attempt(local(), place).await, Outcome::Finished, "{place}");
        let reached = BrokerConfig::Http(local()).reach(&format!("{place}*")).await.unwrap().unwrap();
        assert!(reached.contains("takes connections (it is 127.0.0.1"), "{reached}");
    }
    assert_eq!(app.received("/").len(), places.len());
}

#[tokio::test]
async fn what_is_no_target_is_invalid_and_not_sent() {
    let app = App::start().await;
    app.answer("/", Answer::status(200));
    let (url, address) = (app.url("/"), app.address());
    let targets = [
        "".to_owned(),
        "/".to_owned(),
        url.replace("http", "ftp"),
        format!("{url}#x"),
        format!("http://user@{address}/"),
        format!("{url}a b"),
        format!("{url}..%2fadmin"),
        format!("http://localhost.:{}/", address.port()),
        format!("{url}{}", "x".repeat(9000)),
    ];
    for target in targets {
        let outcome = attempt(local(), &target).await;
        assert!(matches!(outcome, Outcome::Invalid(_)), "{target}: {outcome:?}");
    }
    assert_eq!(app.received("/").len(), 0);
}
