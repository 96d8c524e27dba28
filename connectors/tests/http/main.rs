//! The HTTP connector on real servers: the suite that every sink passes, and tests of HTTP's
//! specifics.

#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "tests wait for servers that run no runtime")]

#[path = "../support/freeze.rs"]
mod freeze;

mod app;
mod balancer;
mod broken;
mod certificates;
mod early;
mod faults;
mod frames;
mod headers;
mod held;
mod hosts;
mod http2;
mod idle;
mod limits;
mod nginx;
mod outcomes;
mod raw;
mod reach;
mod signatures;
mod suite;
mod tls;

use std::time::Duration;

use dwell_connectors::{
    BrokerConfig, ConnectorError, Destination, Message, Outcome, Outcomes, Publication, Sink,
    Token, http,
};

/// The deadline of every wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Tests with hundreds of connections run one at a time: a process often has 1024 files at most.
static CROWD_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Settings that permit this machine's addresses. No test reaches the time limit.
fn local() -> http::Config {
    let subnets = serde_json::from_value(serde_json::json!(["127.0.0.0/8", "::1"])).unwrap();
    http::Config { subnets, timeout: "120s".to_owned(), ..http::Config::default() }
}

fn publication(token: Token, url: &str, message: Message) -> Publication {
    Publication {
        token,
        to: Destination::new(url),
        message,
        dedupe_id: format!("id-{token}"),
        deadline: None,
    }
}

fn numbered(url: &str, count: u64) -> Vec<Publication> {
    (1..=count).map(|number| publication(number, url, Message::new(number.to_string()))).collect()
}

async fn open(config: http::Config) -> (Box<dyn Sink>, Outcomes) {
    BrokerConfig::Http(config).sink(Duration::from_secs(120)).await.unwrap()
}

/// The outcomes of this many publications, by token.
async fn collect(outcomes: &mut Outcomes, count: usize) -> Vec<Outcome> {
    let mut all = Vec::new();
    while all.len() < count {
        let batch = tokio::time::timeout(TIMEOUT, outcomes.recv()).await;
        all.extend(
            batch
                .unwrap_or_else(|_| panic!("{} of {count} outcomes came", all.len()))
                .expect("outcomes go on"),
        );
    }
    all.sort_by_key(|(token, _)| *token);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Sends through a sink; returns the outcome of the only publication.
async fn send(sink: &dyn Sink, outcomes: &mut Outcomes, url: &str) -> Outcome {
    sink.publish(vec![publication(1, url, Message::new("x"))]).await;
    collect(outcomes, 1).await.remove(0)
}

/// The outcome of one attempt, by a sink of its own.
async fn attempt(config: http::Config, url: &str) -> Outcome {
    let (sink, mut outcomes) = open(config).await;
    send(&*sink, &mut outcomes, url).await
}

/// Whether the host of this pattern can be reached.
async fn reach(config: http::Config, pattern: &str) -> Result<String, ConnectorError> {
    BrokerConfig::Http(config).reach(&[pattern]).await.unwrap().remove(0)
}

/// Waits until the condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "waited {TIMEOUT:?} for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[track_caller]
fn assert_failed(outcome: &Outcome, word: &str) {
    assert!(
        matches!(outcome, Outcome::Failed(why) if why.contains(word)),
        "not failed with `{word}`: {outcome:?}"
    );
}

#[track_caller]
fn assert_unknown(outcome: &Outcome, word: &str) {
    assert!(
        matches!(outcome, Outcome::Unknown(why) if why.contains(word)),
        "not unknown with `{word}`: {outcome:?}"
    );
}

#[track_caller]
fn assert_refused(outcome: &Outcome, word: &str) {
    assert!(
        matches!(outcome, Outcome::Refused(why) if why.contains(word)),
        "not refused with `{word}`: {outcome:?}"
    );
}
