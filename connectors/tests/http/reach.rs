//! Hosts that are not there, and hosts that may not be connected to.

use std::net::TcpListener;

use dwell_connectors::{BrokerConfig, Destination, Outcome, http};

use crate::app::{Answer, App};
use crate::{TIMEOUT, assert_failed, attempt, local, reach};

#[tokio::test]
async fn a_host_that_is_not_there_fails_the_attempt() {
    assert_failed(&attempt(local(), "http://127.0.0.1:1/").await, "the target cannot be reached: ");
    assert_failed(&attempt(local(), "http://127.0.0.1:1/").await, "refused");
    assert_failed(&attempt(local(), "https://127.0.0.1:1/").await, "refused");
    assert_failed(
        &attempt(local(), "http://does-not-exist.invalid/").await,
        "the target cannot be reached: ",
    );
}

#[tokio::test]
async fn this_machine_is_a_target_only_where_a_subnet_says_so() {
    let app = App::start().await;
    app.answer("/", Answer::status(200));
    let port = app.address().port();
    let places = ["127.0.0.1", "localhost", "127.1", "0x7f.0.0.1", "2130706433"]
        .map(|host| format!("http://{host}:{port}/"));
    let closed = || BrokerConfig::Http(http::Config::default());
    for place in &places {
        let is_name = place.contains("localhost");
        let why = closed().forbidden(&Destination::new(place));
        assert!(
            if is_name {
                why.is_none()
            } else {
                why.is_some_and(|why| why.contains("127.0.0.1 is a loopback address"))
            },
            "{place}"
        );
        assert_failed(
            &attempt(http::Config::default(), place).await,
            "add its subnet to `subnets` of the broker",
        );
        let reached = reach(http::Config::default(), &format!("{place}*")).await.unwrap_err();
        assert!(
            reached.message.contains("loopback") && reached.hint.contains("`subnets`"),
            "{reached}"
        );
    }
    assert_eq!(app.received("/").len(), 0);
    for place in &places {
        assert_eq!(
            BrokerConfig::Http(local()).forbidden(&Destination::new(place)),
            None,
            "{place}"
        );
        assert_eq!(attempt(local(), place).await, Outcome::Finished, "{place}");
        let reached = reach(local(), &format!("{place}*")).await.unwrap();
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

#[tokio::test]
async fn the_patterns_of_a_host_are_one_connection() {
    // The system takes the connections.
    let hosts = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = hosts.each_ref().map(|host| host.local_addr().unwrap());
    let patterns: Vec<String> =
        (0..40).map(|number| format!("http://{}/{number}/*", addresses[number % 2])).collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).chain(["no URL"]).collect();
    let reached = BrokerConfig::Http(local()).reach(&patterns).await.unwrap();
    assert_eq!(reached.len(), patterns.len());
    for (number, reached) in reached[..40].iter().enumerate() {
        let reached = reached.as_ref().unwrap();
        assert!(
            reached.contains(&format!("`http://{}` takes connections", addresses[number % 2])),
            "{reached}"
        );
    }
    assert!(reached[40].is_err());
    let connections = hosts.map(|host| {
        host.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| host.accept().ok()).count()
    });
    assert_eq!(connections, [1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_hang_are_asked_beside_each_other() {
    // Each takes a connection, and says nothing of TLS.
    let hosts: Vec<_> = (0..8).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let patterns: Vec<String> =
        hosts.iter().map(|host| format!("https://{}/*", host.local_addr().unwrap())).collect();
    let checking = tokio::spawn(async move {
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        BrokerConfig::Http(http::Config { timeout: "600s".to_owned(), ..local() })
            .reach(&patterns)
            .await
    });
    let asked = tokio::task::spawn_blocking(move || {
        hosts.iter().map(|host| host.accept().unwrap()).collect::<Vec<_>>()
    });
    tokio::time::timeout(TIMEOUT, asked).await.expect("each host is asked").unwrap();
    checking.abort();
}
