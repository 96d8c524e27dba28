//! The load: an open loop of requests at a fixed rate, and readers of all results. The load
//! connects straight to the broker and the instances, past the links with faults.
//!
//! - `draw`: the jobs and plans; `bursts`: requests that are debounced; `recurring`: schedules.
//! - `request`: how each is sent; `producer`: sends them; `http`: the admin API; `reader`: the
//!   results.
//! - `consumers`: the consumers that confirm; `extra`: the requests of a fault.

mod bursts;
mod consumers;
mod draw;
pub(crate) mod extra;
mod http;
mod producer;
mod reader;
mod recurring;
mod request;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell_testkit::servers::BrokerKind;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::bursts::Bursts;
use self::consumers::confirm;
use self::draw::{Draw, Drawn, Plan};
use self::producer::Producer;
use self::reader::{Role, read, take};
use self::recurring::{DrawnSchedule, Schedules, is_schedule};
use self::request::Request;
use crate::chaos::history::{Op, Schedule, Tally};
use crate::chaos::queue::consumer::consume;
use crate::chaos::queue::scene::Scene;
use crate::chaos::recorder::Recorder;
use crate::chaos::system::{LATE_TARGETS, LIMITED_TARGET, Maker, REPLY_DESTINATION, System};

/// The source of requests, and the destinations of dead letters and rejected requests: the defaults
/// of the instances.
const REQUEST_DESTINATION: &str = "delay.in";
const DEAD_DESTINATION: &str = "delay.dead";
const REJECTED_DESTINATION: &str = "delay.rejected";
/// The interval at which the producer sends the next requests.
const SEND_INTERVAL: Duration = Duration::from_millis(10);
/// The consumers of the queue.
const QUEUE_CONSUMERS: u64 = 3;
/// The time that a late target does not exist after the first job for it, ms.
const TARGET_ABSENCE_MS: i64 = 6000;
/// The interval between two late targets.
const LATE_TARGET_INTERVAL_MS: i64 = 20_000;

/// A load that runs until it is told to stop.
pub struct Load {
    stop: CancellationToken,
    sending: tokio::task::JoinHandle<()>,
    readers: JoinSet<()>,
    /// The consumers of the queue.
    scene: Arc<Scene>,
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
        let targets = targets.chain([LIMITED_TARGET]);
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
        let targets = || system.targets().to_vec();
        let kinds = Kinds {
            draw: Draw::new(seed, targets(), urls.unwrap_or_default()),
            bursts: Bursts::new(seed, targets()),
            schedules: Schedules::new(seed, targets()),
        };
        let sending = send(kinds, rate, producer(), system.maker.clone(), stop.clone());
        let ports = system.api_addresses().iter().map(SocketAddr::port).collect();
        let scene = Arc::new(Scene::new(Arc::clone(recorder), ports));
        for number in 1..=QUEUE_CONSUMERS {
            readers.spawn(consume(Arc::clone(&scene), seed ^ number, false));
        }
        Load { stop, sending: tokio::spawn(sending), readers, scene }
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

    /// The counts of events at the consumers of the queue.
    pub(crate) fn tally(&self) -> Tally {
        *self.scene.tally.lock()
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
        Op::Cancel(ask)
        | Op::Reschedule(ask)
        | Op::Fire(ask)
        | Op::Pause(ask)
        | Op::Resume(ask)
        | Op::Finish(ask)
        | Op::Fail(ask) => ask.res = result,
        _ => {}
    }
    op
}

/// What the load consists of.
struct Kinds {
    draw: Draw,
    bursts: Bursts,
    schedules: Schedules,
}

/// The open loop: so many jobs a second, and bursts and schedules beside them.
async fn send(
    mut kinds: Kinds,
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
        if stopping {
            // What is left of the schedules ends with the campaign.
            turns.retain(|(_, id), _| !is_schedule(id));
        }
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
                kinds.draw.next(clock::wall_ms(), producer.instances(), late);
            requests.push(Request::job(&id, job, message, door));
            turns.extend(ask.map(|plan| ((plan.at_ms, id), plan)));
        }
        if !stopping {
            let (now_ms, instances) = (clock::wall_ms(), producer.instances());
            requests.extend(kinds.bursts.until(now_ms, began_ms, instances));
            while let Some(drawn) = kinds.schedules.until(now_ms, began_ms, instances) {
                let DrawnSchedule { id, request, plans } = drawn;
                requests.push(request);
                turns.extend(plans.into_iter().map(|plan| ((plan.at_ms, id.clone()), plan)));
            }
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
