//! The calls of clients of lmstfy, with Dwell in its place: the cases of its client's suite
//! (client/client_test.go) and of its handlers (server/handlers/queue_test.go), each under its name
//! there.
//!
//! - `peer`: a server that speaks its protocol.
//! - `client`, `dead_letters`, `handlers`: the cases; `words`: the refusals and their words; `own`:
//!   the additions of Dwell.
//!
//! Where `DWELL_LMSTFY` is the URL of an lmstfy (`http://TOKEN@127.0.0.1:7777`, the token of the
//! namespace `client-ns`), the cases run on that too. Where `DWELL_LMSTFY_TESTS` is a program of
//! lmstfy's own client tests that takes the port and the token of its server from `LMSTFY_PORT` and
//! `LMSTFY_TOKEN`, that runs on Dwell.

mod client;
mod dead_letters;
mod handlers;
mod own;
mod peer;
mod words;

use std::process::Stdio;

use super::listeners::Listeners;
use peer::Peer;

/// The queues of these cases, and a token for their namespace.
const SETTINGS: &str = "[queues.\"client-ns.*\"]\n[http.tokens.client]\ntoken = \"of-the-client\"\nmay = [\"schedule\", \"consume\", \
                        \"read\", \"act\"]\nqueues = [\"client-ns.*\"]\n";
const TOKEN: &str = "of-the-client";

/// The cases that hold on lmstfy and on Dwell.
async fn cases(peer: &Peer) {
    tokio::join!(
        client::publish(peer),
        client::republish(peer),
        client::batch_publish(peer),
        client::consume(peer),
        client::publish_with_attributes(peer),
        client::batch_consume(peer),
        client::ack(peer),
        client::consume_from_queues(peer),
        client::queue_size(peer),
        client::peek_queue(peer),
        client::peek_job(peer),
    );
    tokio::join!(
        dead_letters::peek_dead_letter(peer),
        dead_letters::respawn_dead_letter(peer),
        dead_letters::delete_dead_letter(peer),
        dead_letters::tries(peer),
        handlers::consume_multi(peer),
        handlers::delete(peer),
        handlers::destroy_queue(peer),
        handlers::publish_bulk(peer),
        handlers::publish_with_job_version(peer),
        handlers::time_to_live(peer),
        words::refused_publishes(peer),
        words::refused_consumes(peer),
        words::refused_names(peer),
        words::tokens(peer),
        words::unknown_calls(peer),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_of_lmstfy_hold() {
    let dwell = Listeners::start(SETTINGS).await;
    let peer = Peer::new(&dwell.lmstfy, TOKEN);
    Box::pin(cases(&peer)).await;
    own::undeclared_queues(&peer).await;
    own::scopes(&dwell).await;
    own::full_queues().await;
    own::sizes_without_a_token(&dwell, &peer).await;
    own::job_of_another_queue(&peer).await;
    own::clients_that_go_away(&peer).await;
    own::what_is_counted(&dwell, &peer).await;
    assert!(!dwell.log().contains(TOKEN), "no token is logged");
    own::consumers_of_an_instance_that_stops(dwell, &peer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_ends_at_its_ttl_in_any_state() {
    own::ttl_in_any_state().await;
}

/// The oracle: so that the cases say of lmstfy what is true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_are_those_of_lmstfy() {
    let Ok(url) = std::env::var("DWELL_LMSTFY") else {
        eprintln!("skipped: DWELL_LMSTFY names no lmstfy");
        return;
    };
    let (token, address) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('@'))
        .expect("http://TOKEN@HOST:PORT");
    let peer = Peer::new(&format!("http://{address}"), token);
    Box::pin(cases(&peer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tests_of_lmstfys_client_pass() {
    let Some(program) = std::env::var_os("DWELL_LMSTFY_TESTS") else {
        eprintln!("skipped: DWELL_LMSTFY_TESTS names no program of lmstfy's client tests");
        return;
    };
    let dwell = Listeners::start(SETTINGS).await;
    let port = dwell.lmstfy.rsplit_once(':').unwrap().1;
    let mut tests = tokio::process::Command::new(program);
    tests
        .arg("-test.v")
        .env("LMSTFY_PORT", port)
        .env("LMSTFY_TOKEN", TOKEN)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tests.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("--- PASS: TestLmstfyClient_RespawnDeadLetter"),
        "{said}"
    );
}
