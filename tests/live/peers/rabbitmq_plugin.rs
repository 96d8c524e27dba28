//! The uses of RabbitMQ's delayed-message plugin, with Dwell in its place: the cases of the
//! plugin's own suite (test/plugin_SUITE.erl), and the other features that its users rely on.
//!
//! A delayed exchange `x` is a fanout that leads to the queue `delay.x`; its former bindings are at
//! `x.due`.

mod cycles;
mod expiry;
mod faults;
mod fixture;
mod routing;
mod topology;

use std::path::Path;

use fixture::Fixture;

/// One test, because RabbitMQ takes seven seconds to start; each story has an exchange of its own,
/// or all of one that another left empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_of_the_plugin_hold() {
    let mut fixture = Fixture::start().await;
    routing::routes_as_the_type_says(&fixture).await;
    routing::one_exchange_leads_to_another(&fixture).await;
    routing::the_order_is_that_of_the_delays(&fixture).await;
    routing::any_routing_key_is_taken_as_it_is(&fixture).await;
    routing::equal_messages_are_each_delivered(&fixture).await;
    routing::hidden_copies_stay_hidden(&fixture).await;
    cycles::a_message_may_come_back(&fixture).await;
    cycles::what_goes_round_for_ever_is_found(&fixture).await;
    cycles::an_exchange_that_leads_back_at_once_is_found_at_once(&fixture).await;
    expiry::the_time_to_live_begins_after_the_delay(&mut fixture).await;
    expiry::a_copy_that_expired_is_known(&mut fixture).await;
    faults::an_exchange_that_takes_no_messages_is_told(&fixture).await;
    expiry::an_expired_queue_that_is_missing_is_told(&fixture).await;
    faults::a_restart_of_the_broker_loses_nothing(&mut fixture).await;
    fixture.dwell.stop().await.unwrap();
    fixture.rabbit.kill().unwrap();
    fixture.redis.stop().await.unwrap();
}

/// The page says so.
#[test]
fn the_page_names_each_case_of_the_suite() {
    let page = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explanation/peers.md"),
    )
    .unwrap();
    for case in [
        "wrong_exchange_argument_type",
        "exchange_argument_type_not_self",
        "routing_topic",
        "routing_direct",
        "routing_fanout",
        "e2e_nodelay",
        "e2e_delay",
        "delay_order",
        "delayed_messages_count",
        "node_restart_before_delay_expires",
        "node_restart_after_delay_expires",
        "no_message_for_index",
        "string_delay_header",
        "fine_stats",
    ] {
        assert!(page.contains(case), "{case}");
    }
}
