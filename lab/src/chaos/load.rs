//! The load: an open loop of requests at a fixed rate, and readers of all results. The load
//! connects straight to the broker and the instances, past the links with faults.
//!
//! - `draw`: the jobs and plans; `request`: how each is sent; `producer`: sends them; `http`: the
//!   admin API; `reader`: the results.
//! - `consumers`: the consumers that confirm; `extra`: the requests of a fault.

mod consumers;
mod draw;
pub(crate) mod extra;
mod http;
mod producer;
mod reader;
mod request;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::BrokerKind;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::consumers::confirm;
use self::draw::{Draw, Drawn, Plan};
use self::producer::Producer;
use self::reader::{Role, read, take};
use self::request::Request;
use crate::chaos::history::{Op, Schedule};
use crate::chaos::recorder::Recorder;
use crate::chaos::system::{LATE_TARGETS, Maker, REPLY_DESTINATION, System};

/// The source of requests, and the destinations of dead letters and rejected requests: the defaults
/// of the instances.
const REQUEST_DESTINATION: &str = "delay.in";
const DEAD_DESTINATION: &str = "delay.dead";
const REJECTED_DESTINATION: &str = "delay.rejected";
/// The interval at which the producer sends the next requests.
const SEND_INTERVAL: Duration = Duration::from_millis(10);
/// The time that a late target does not exist after the first job for it, ms.
const TARGET_ABSENCE_MS: i64 = 6000;
/// The interval between two late targets.
const LATE_TARGET_INTERVAL_MS: i64 = 20_000;

/// A load that runs until it is told to stop.
pub struct Load {
    stop: CancellationToken,
    sending: tokio::task::JoinHandle<()>,
    readers: JoinSet<()>,
}

impl Load {
    /// Starts readers and producer, which sends so many jobs a second.
    #[must_use]
    pub fn start(system: &System, (seed, rate): (u64, u32), recorder: &Arc<Recorder>) -> Load {
        let producer = || {
            let (broker, http) = (system.broker().clone(), system.api_addresses());
            Producer::new(broker, http, Arc::clone(recorder))
        };
        let mut readers = JoinSet::new();
        let (received, receiving) = tokio::sync::mpsc::unbounded_channel();
        readers.spawn(confirm(producer(), receiving));
        if let Some(host) = &system.host {
            host.listen(take(Arc::clone(recorder), received.clone()));
        }
        let mut topics = vec![
            (REPLY_DESTINATION, Role::Replies),
            (DEAD_DESTINATION, Role::Dead),
            (REJECTED_DESTINATION, Role::Rejected),
        ];
        // The target that never exists cannot be read.
        let targets = system.targets().iter().map(String::as_str).chain(LATE_TARGETS);
        topics.extend(targets.map(|topic| (topic, Role::Target)));
        // The queues of other brokers give a request to one reader.
        if system.options().broker == BrokerKind::Kafka {
            topics.push((REQUEST_DESTINATION, Role::Inbound));
        }
        for (topic, role) in topics {
            let consumers = (role == Role::Target).then(|| received.clone());
            let (broker, recorder) = (system.broker().clone(), Arc::clone(recorder));
            readers.spawn(read(broker, topic.to_owned(), role, recorder, consumers));
        }
        let stop = CancellationToken::new();
        let urls = system.host.as_ref().map(|host| {
            let paths = (0..3).map(|path| host.url(&format!("/chaos/{path}")));
            paths.chain(host.slow_urls("/chaos/slow")).collect()
        });
        let draw = Draw::new(seed, system.targets().to_vec(), urls.unwrap_or_default());
        let sending = send(draw, rate, producer(), system.maker.clone(), stop.clone());
        Load { stop, sending: tokio::spawn(sending), readers }
    }

    /// Stops sending, and returns once every request has its outcome. The readers continue.
    ///
    /// # Errors
    /// The producer panicked: its requests have no outcome.
    pub async fn finish_sending(&mut self) -> Result<(), String> {
        self.stop.cancel();
        let sent = (&mut self.sending).await;
        sent.map_err(|error| format!("the producer of the load ended: {error}"))
    }

    /// Stops the readers. Returns the errors of readers that had ended by themselves.
    pub async fn stop(mut self) -> Vec<String> {
        let mut ended = Vec::new();
        while let Some(reader) = self.readers.try_join_next() {
            let why = reader.err().map_or_else(String::new, |error| format!(": {error}"));
            ended.push(format!("a reader of the load ended{why}"));
        }
        self.readers.shutdown().await;
        ended
    }
}

/// A panic of a task is passed on.
fn whole(ended: Result<(), JoinError>) {
    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        std::panic::resume_unwind(panic);
    }
}

/// The request in the history with its result, and without the job.
fn with_result(mut op: Op, result: String) -> Op {
    match &mut op {
        Op::Schedule(Schedule { job, res, .. }) => (*job, *res) = (None, result),
        Op::Cancel(ask) | Op::Reschedule(ask) | Op::Fire(ask) | Op::Finish(ask) | Op::Fail(ask) => {
            ask.res = result;
        }
        _ => {}
    }
    op
}

/// The open loop: so many jobs a second.
async fn send(
    mut draw: Draw,
    rate: u32,
    mut producer: Producer,
    maker: Maker,
    stop: CancellationToken,
) {
    let mut turns: BTreeMap<(i64, String), Plan> = BTreeMap::new();
    let mut making = JoinSet::new();
    let began_ms = clock::wall_ms();
    let wanted =
        || u64::try_from(clock::wall_ms() - began_ms).unwrap_or(0) * u64::from(rate) / 1000;
    let (mut sent, mut made) = (0, 0);
    let mut stopping = false;
    while !stopping || !turns.is_empty() {
        clock::sleep(SEND_INTERVAL).await;
        stopping |= stop.is_cancelled();
        let since_ms = clock::wall_ms() - began_ms;
        // The late targets, each created at its time.
        let turn = usize::try_from(since_ms / LATE_TARGET_INTERVAL_MS).unwrap_or(usize::MAX);
        let late = LATE_TARGETS.get(turn).copied().filter(|_| made <= turn);
        if let Some(late) = late.filter(|_| since_ms % LATE_TARGET_INTERVAL_MS > TARGET_ABSENCE_MS)
        {
            made = turn + 1;
            making.spawn(make(maker.clone(), late));
        }
        let until = wanted();
        if !producer.ready().await {
            // Requests missed in a gap are dropped: sending them at once would be another load.
            sent = wanted();
        }
        let mut requests = Vec::new();
        while sent < until && !stopping {
            sent += 1;
            let Drawn { id, job, message, ask, door } =
                draw.next(clock::wall_ms(), producer.instances(), late);
            requests.push(Request::job(&id, job, message, door));
            turns.extend(ask.map(|plan| ((plan.at_ms, id), plan)));
        }
        let later = turns.split_off(&(clock::wall_ms(), String::new()));
        let now = std::mem::replace(&mut turns, later);
        requests.extend(now.iter().map(|((_, id), plan)| Request::control(id, plan)));
        producer.send(requests).await;
    }
    // Targets that jobs wait for are created now at the latest.
    for late in LATE_TARGETS.into_iter().skip(made) {
        making.spawn(make(maker.clone(), late));
    }
    producer.finish().await;
    making.join_all().await;
}

/// Creates a target, over restarts of the broker.
async fn make(maker: Maker, target: &str) {
    loop {
        match clock::timeout(Duration::from_secs(10), maker.make(target)).await {
            Some(Ok(())) => return,
            Some(Err(error)) => debug!(%error, "the target cannot be created yet"),
            None => debug!("the target was not created in time"),
        }
        clock::sleep(Duration::from_millis(200)).await;
    }
}
