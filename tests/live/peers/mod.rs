//! The cases of other schedulers' own suites, as far as they apply, each under the name that it has there. docs/explanation/peers.md says which hold, which do not, and why.
//!
//! - `bed`: a Kafka, a NATS, a Redis and a `dwell run` that takes each dialect on a topic of its own.
//! - `etf1`, `timebridge`, `sky_uk`: schedulers of Kafka; `nats_schedules`: those of NATS's server; `delay_queue`: what clients of ouqiang's push.
//! - `guides`: the pages that lead from them to Dwell, followed word by word; `guide`: how.
//! - `rabbitmq_plugin`: RabbitMQ's delayed-message plugin, on servers of its own.

mod bed;
mod delay_queue;
mod etf1;
mod guide;
mod guides;
mod nats_schedules;
mod rabbitmq_plugin;
mod sky_uk;
mod timebridge;

use bed::Bed;

/// One test, because the brokers take seconds to start; each case has topics or ids of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_of_other_schedulers_hold() {
    let bed = Bed::start().await;
    tokio::join!(
        etf1::default_kafka_runner(&bed),
        etf1::outdated_schedules(&bed),
        etf1::update_epoch(&bed),
        etf1::deleted_schedules(&bed),
        etf1::invalid_schedules(&bed),
        etf1::scheduled_again_with_what_was_delivered(&bed),
        etf1::many_schedules_of_one_id(&bed),
        timebridge::valid_headers(&bed),
        timebridge::times(&bed),
        timebridge::bad_headers(&bed),
        timebridge::without_key_and_empty(&bed),
        sky_uk::schedules_by_key(&bed),
        sky_uk::a_time_far_away(&bed),
        nats_schedules::scheduled_delayed_message(&bed),
        nats_schedules::refused_schedules(&bed),
        nats_schedules::of_one_target(&bed),
        delay_queue::pushed_jobs(&bed),
        delay_queue::what_push_refuses(&bed),
    );
    bed.end().await;
}
