//! A target that never answers: neither a confirm nor an error.

use std::collections::HashMap;
use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::{BrokerServer, RabbitServer};
use parking_lot::Mutex;
use rand::RngExt;

use super::{Done, Injection, Outcome, both};
use crate::chaos::history::{Job, Only};
use crate::chaos::load::extra::{Extra, job};
use crate::chaos::system::{Error, SILENT_TARGETS, jetstream, kafka, rabbitmqctl};

/// The number of jobs for the target, all due at once: several times the size of every window.
const SILENT_JOBS: usize = 1500;
/// One job in this many has a single attempt.
const SINGLE_ATTEMPT_RATIO: usize = 10;
/// The least time of silence: several publish timeouts.
const MIN_SILENCE: Duration = Duration::from_secs(25);

pub(super) async fn target_silent(Injection { system, rng, hold }: Injection<'_>) -> Outcome {
    let number = rng.random::<u32>();
    let target = SILENT_TARGETS.replace('*', &number.to_string());
    let mut aside = Extra::open(system).await?;
    // No other fault may affect the server meanwhile.
    let server = system.broker.server.lock().await;
    let heard = Mutex::new(HashMap::new());
    let silent = async {
        silence(&server, &target).await?;
        let now_ms = clock::wall_ms();
        let crowd = (0..SILENT_JOBS).map(|at| {
            let is_single = at % SINGLE_ATTEMPT_RATIO == 0;
            let retry_ms = is_single.then(Vec::new);
            (format!("s-{number}-{at}"), Job { retry_ms, ..job(&target, now_ms) })
        });
        aside.jobs(crowd.collect()).await;
        let from_us = clock::wall_us();
        clock::sleep(hold.max(MIN_SILENCE)).await;
        Ok(from_us)
    };
    let (silent, healed) = match &*server {
        // A subscriber without a stream prevents the server's answer that there are no responders.
        BrokerServer::Nats(nats) => {
            let listening = jetstream::listen(nats.port(), &target, &heard);
            tokio::select! {
                both = async { (silent.await, jetstream::make_target(nats.port(), &target).await) } => both,
                ended = listening => (Err(Error::io("the subscriber of the silent subject")(ended)), Ok(())),
            }
        }
        BrokerServer::Kafka(server) => (silent.await, kafka::lead(server, &target).await),
        BrokerServer::Amqp(server) => (silent.await, wake(server, &target).await),
    };
    let from_us = both(silent, healed)?;
    let heard = heard.into_inner();
    let heard = heard.values().max().map_or_else(String::new, |most| {
        let count = heard.values().sum::<u64>();
        format!("; a plain subscriber heard {count} messages, at most {most} of one job")
    });
    let detail = format!("{SILENT_JOBS} jobs for {target}{heard}");
    let done = Done::healed_beside(detail, from_us, Only::Target(target.clone()));
    aside.read(&target);
    aside.close().await;
    Ok(done)
}

async fn silence(server: &BrokerServer, target: &str) -> Result<(), Error> {
    match server {
        BrokerServer::Nats(_) => Ok(()),
        BrokerServer::Kafka(server) => kafka::make_leaderless(server, target).await,
        // One RabbitMQ node has no silent target. The closest case is a queue whose process is
        // suspended: the channel accepts its messages, which arrive after the process resumes.
        BrokerServer::Amqp(server) => {
            let name = name(target);
            let made = format!(
                "{{new, Q}} = rabbit_amqqueue:declare({name}, true, false, [], none, <<\"chaos\">>)"
            );
            eval(server, &format!("{made}, sys:suspend(amqqueue:get_pid(Q)).")).await
        }
    }
}

async fn wake(server: &RabbitServer, target: &str) -> Result<(), Error> {
    let found = format!("{{ok, Q}} = rabbit_amqqueue:lookup({})", name(target));
    eval(server, &format!("{found}, sys:resume(amqqueue:get_pid(Q)).")).await
}

/// Runs this Erlang in the server.
async fn eval(server: &RabbitServer, erlang: &str) -> Result<(), Error> {
    rabbitmqctl(server, &["eval", erlang]).await.map(drop)
}

/// The server's name of a queue.
fn name(queue: &str) -> String {
    format!("rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)")
}
