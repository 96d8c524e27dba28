//! One contract over three brokers: the same stories from each broker, and to each, through one
//! `dwell run`.
//!
//! - `env`: the servers, the runtime, and the tools of a story.
//! - `matrix`: the nine routes; `stories`: retries, dead letters, consumer confirm; `refusals`: the
//!   rejected requests; `schedules`: recurring schedules; `clients`: other libraries.
//! - `audit`: the events of jobs.
//! - `group`: a Kafka group that loses instances; `cut_off`: an instance that loses Redis; `files`:
//!   the runnable files of config/; `migration`: from RabbitMQ's plugin, as its page says.

mod audit;
mod clients;
mod cut_off;
pub(crate) mod environment;
mod files;
mod group;
mod matrix;
pub(crate) mod migration;
mod outcomes;
mod refusals;
mod schedules;

use environment::Environment;

/// One test, because the three brokers take ten seconds to start; each story has names of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_three_brokers() {
    let env = Environment::start().await;
    matrix::each_job_arrives_once_in_time_and_equal(&env).await;
    tokio::join!(
        outcomes::retries_are_numbered_and_end_among_the_dead(&env),
        outcomes::a_consumer_ends_its_job(&env),
        outcomes::a_cancel_has_a_verdict(&env),
        refusals::each_mistake_is_rejected_with_its_code(&env),
        schedules::a_schedule_makes_its_occurrences(&env),
    );
    clients::other_libraries_speak_to_it(&env).await;
    // From here on the same brokers, each time with another `dwell run`.
    let mut env = env;
    audit::each_kind_of_event_arrives_once(&mut env).await;
    audit::a_broker_that_is_away_costs_events_alone(&mut env).await;
    files::each_file_runs_as_it_stands(&mut env).await;
    env.end().await;
}
