//! The cases of other schedulers' own suites, as far as they apply, each under the name that it has
//! there. docs/explanation/peers.md says which hold, which do not, and why.
//!
//! - `fixture`: a Kafka, a NATS, a Redis and a `dwell run` that takes each dialect on a topic of
//!   its own.
//! - `etf1`, `timebridge`, `sky_uk`: schedulers of Kafka; `nats_schedules`: those of NATS's server;
//!   `delay_queue`: the jobs that clients of ouqiang's push to a topic.
//! - `due_header`: a framework's own header with the due time, such as Celery's `eta`.
//! - `lmstfy`, `delay_queue_server`: the calls of clients of lmstfy and of ouqiang's delay-queue,
//!   on the `listeners` of `[compat]`; `waiting`: their consumers that wait.
//! - `guides`, `queue_guides`, `url_guides`: the pages that lead from them to Dwell, and those
//!   about URLs, followed word by word; `guide`: how.
//! - `rabbitmq_plugin`: RabbitMQ's delayed-message plugin, on servers of its own.

mod delay_queue;
mod delay_queue_server;
mod due_header;
mod etf1;
mod fixture;
mod guide;
mod guides;
pub(crate) mod listeners;
mod lmstfy;
mod nats_schedules;
mod queue_guides;
mod rabbitmq_plugin;
mod sky_uk;
mod timebridge;
#[cfg(feature = "http")]
mod url_guides;
mod waiting;

use fixture::Fixture;

/// One test, because the brokers take seconds to start; each case has topics or ids of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_of_other_schedulers_hold() {
    let fixture = Fixture::start().await;
    tokio::join!(
        etf1::default_kafka_runner(&fixture),
        etf1::outdated_schedules(&fixture),
        etf1::update_epoch(&fixture),
        etf1::deleted_schedules(&fixture),
        etf1::invalid_schedules(&fixture),
        etf1::scheduled_again_with_what_was_delivered(&fixture),
        etf1::many_schedules_of_one_id(&fixture),
        timebridge::valid_headers(&fixture),
        timebridge::times(&fixture),
        timebridge::bad_headers(&fixture),
        timebridge::without_key_and_empty(&fixture),
        sky_uk::schedules_by_key(&fixture),
        sky_uk::a_time_far_away(&fixture),
        nats_schedules::scheduled_delayed_message(&fixture),
        nats_schedules::refused_schedules(&fixture),
        nats_schedules::of_one_target(&fixture),
        delay_queue::pushed_jobs(&fixture),
        delay_queue::what_push_refuses(&fixture),
        due_header::times(&fixture),
    );
    fixture.end().await;
}
