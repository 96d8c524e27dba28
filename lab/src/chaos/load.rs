//! The load: an open loop of requests at a fixed rate, and readers of all results. The load
//! connects straight to the broker and the instances, past the links with faults.
//!
//! - `draw`: the requests; `producer`: sends them; `http`: the admin API; `reader`: the results.
//! - `consumers`: the consumers that confirm; `extra`: the requests of a fault.

mod consumers;
mod draw;
pub(crate) mod extra;
mod http;
mod producer;
mod reader;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell_connectors::{BrokerConfig, Message};
use dwell_testkit::servers::BrokerKind;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::consumers::confirm;
use self::draw::{Draw, Drawn, Plan};
use self::http::Answer;
use self::producer::{Producer, Sent, ask, asked, control};
use self::reader::{Role, read, take};
use crate::chaos::history::{ControlRequest, Job, Op, Phase, Reply, Schedule};
use crate::chaos::recorder::Recorder;
use crate::chaos::system::{Maker, System};

/// The targets that are created late, and one that never exists.
const LATE_TARGETS: [&str; 3] = ["chaos-late-0", "chaos-late-1", "chaos-late-2"];
const NEVER_TARGET: &str = "chaos-never";
/// The source of requests, and the destinations of dead letters and rejected requests: the defaults
/// of the instances.
const REQUEST_DESTINATION: &str = "delay.in";
const DEAD_DESTINATION: &str = "delay.dead";
const REJECTED_DESTINATION: &str = "delay.rejected";
/// The destination of verdicts.
pub(crate) const REPLY_DESTINATION: &str = "chaos-replies";
/// The interval at which the producer sends the next requests.
const SEND_INTERVAL: Duration = Duration::from_millis(10);
/// The time that a late target does not exist after the first job for it, ms.
const TARGET_ABSENCE_MS: i64 = 6000;
/// The interval between two late targets.
const LATE_TARGET_INTERVAL_MS: i64 = 20_000;

/// Destinations of the load.
#[derive(Debug, Clone)]
pub struct Places {
    /// The targets of jobs.
    pub targets: Vec<String>,
    /// Targets that are created some time after the first job for them.
    pub late: Vec<String>,
    /// A target that never exists.
    pub never: String,
    /// URLs that are targets too.
    pub urls: Vec<String>,
    /// The destination of verdicts.
    pub replies: String,
}

impl Places {
    fn of(system: &System) -> Places {
        let urls = system.host().map(|host| {
            let paths = (0..3).map(|path| host.url(&format!("/chaos/{path}")));
            paths.chain(host.slow_urls("/chaos/slow")).collect()
        });
        Places {
            targets: system.targets().to_vec(),
            late: LATE_TARGETS.map(str::to_owned).into(),
            never: NEVER_TARGET.to_owned(),
            urls: urls.unwrap_or_default(),
            replies: REPLY_DESTINATION.to_owned(),
        }
    }
}

/// Destinations of the instances besides the targets of the system.
#[must_use]
pub fn destinations() -> Vec<String> {
    [&LATE_TARGETS[..], &[NEVER_TARGET, REPLY_DESTINATION]]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// The open loop of requests.
struct Sender {
    seed: u64,
    /// Jobs a second.
    rate: u32,
    broker: BrokerConfig,
    /// Creates the late targets.
    maker: Maker,
    /// `/v1` of each instance.
    http: Vec<SocketAddr>,
    places: Places,
}

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
        let (broker, maker, places) = (system.broker().clone(), system.maker(), Places::of(system));
        let http = system.api_addresses();
        let mut readers = JoinSet::new();
        let (received, receiving) = tokio::sync::mpsc::unbounded_channel();
        let replies = places.replies.clone();
        readers.spawn(confirm(
            broker.clone(),
            http.clone(),
            replies,
            Arc::clone(recorder),
            receiving,
        ));
        if let Some(host) = system.host() {
            host.listen(take(Arc::clone(recorder), received.clone()));
        }
        // The target that never exists cannot be read.
        let targets = places.targets.iter().chain(&places.late);
        // The queues of other brokers give a request to one reader.
        let reads_inbound = system.options().broker == BrokerKind::Kafka;
        let others = [
            (REPLY_DESTINATION, Role::Replies),
            (DEAD_DESTINATION, Role::Dead),
            (REJECTED_DESTINATION, Role::Rejected),
        ];
        for (topic, role) in targets
            .map(|topic| (&**topic, Role::Target))
            .chain(others)
            .chain(reads_inbound.then_some((REQUEST_DESTINATION, Role::Inbound)))
        {
            let consumers = (role == Role::Target).then(|| received.clone());
            let recorder = Arc::clone(recorder);
            readers.spawn(read(broker.clone(), topic.to_owned(), role, recorder, consumers));
        }
        let stop = CancellationToken::new();
        let sender = Sender { seed, rate, broker, maker, http, places };
        let sending = tokio::spawn(send(sender, Arc::clone(recorder), stop.clone()));
        Load { stop, sending, readers }
    }

    /// Stops sending, and returns once every request has its outcome. The readers continue.
    ///
    /// # Errors
    /// The producer panicked: its requests have no outcome.
    pub async fn finish_sending(&mut self) -> Result<(), String> {
        self.stop.cancel();
        (&mut self.sending)
            .await
            .map_err(|error| format!("the producer of the load ended: {error}"))
    }

    /// Stops the readers. Returns the errors of readers that had ended by themselves.
    pub async fn stop(mut self) -> Vec<String> {
        let mut ended = Vec::new();
        while let Some(reader) = self.readers.try_join_next() {
            let why = reader
                .err()
                .map_or_else(|| "nobody knows why".to_owned(), |error| error.to_string());
            ended.push(format!("a reader of the load ended: {why}"));
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

/// The open loop.
async fn send(options: Sender, recorder: Arc<Recorder>, stop: CancellationToken) {
    let mut draw = Draw::new(options.seed, options.places.clone());
    let mut producer = Producer::new(options.broker.clone(), Arc::clone(&recorder));
    let mut turns: BTreeMap<(i64, String), Plan> = BTreeMap::new();
    let (mut asking, mut making) = (JoinSet::new(), JoinSet::new());
    let began_ms = clock::wall_ms();
    let (mut sent, mut made) = (0, 0);
    let mut stopping = false;
    while !stopping || !turns.is_empty() {
        clock::sleep(SEND_INTERVAL).await;
        stopping |= stop.is_cancelled();
        let since_ms = clock::wall_ms() - began_ms;
        // The late targets, each created at its time.
        let turn = usize::try_from(since_ms / LATE_TARGET_INTERVAL_MS).unwrap_or(usize::MAX);
        let late = options.places.late.get(turn).filter(|_| made <= turn);
        if let Some(late) = late.filter(|_| since_ms % LATE_TARGET_INTERVAL_MS > TARGET_ABSENCE_MS)
        {
            made = turn + 1;
            making.spawn(make(options.maker.clone(), late.clone()));
        }
        let wanted = u64::try_from(since_ms).unwrap_or(0) * u64::from(options.rate) / 1000;
        if !producer.ready().await {
            // Requests missed in a gap are dropped: sending them at once would be another load.
            sent = u64::try_from(clock::wall_ms() - began_ms).unwrap_or(0)
                * u64::from(options.rate)
                / 1000;
        }
        let mut messages = Vec::new();
        while sent < wanted && !stopping {
            sent += 1;
            let Drawn { id, job, message, ask, door } =
                draw.next(clock::wall_ms(), options.http.len(), late.map(String::as_str));
            turns.extend(ask.map(|plan| ((plan.at_ms, id.clone()), plan)));
            if let Some(instance) = door {
                asking.spawn(schedule_by_http(
                    options.http[instance],
                    instance,
                    id,
                    job,
                    message,
                    Arc::clone(&recorder),
                ));
                continue;
            }
            recorder.record("producer", Phase::Invoke, Op::schedule(&id, Some(job)));
            messages.push((Sent::Job(id), message));
        }
        let now_ms = clock::wall_ms();
        let later = turns.split_off(&(now_ms, String::new()));
        for ((_, id), plan) in std::mem::replace(&mut turns, later) {
            match plan.door {
                Some(instance) => {
                    asking.spawn(by_http(&options.http, instance, id, plan, &recorder));
                }
                None => {
                    messages.push(control(&recorder, &id, &plan, &options.places.replies));
                }
            }
        }
        if !messages.is_empty() {
            producer.send(messages).await;
        }
        while let Some(asked) = asking.try_join_next() {
            whole(asked);
        }
    }
    // Targets that jobs wait for are created now at the latest.
    for late in options.places.late.iter().skip(made) {
        making.spawn(make(options.maker.clone(), late.clone()));
    }
    producer.finish().await;
    asking.join_all().await;
    making.join_all().await;
}

async fn schedule_by_http(
    at: SocketAddr,
    instance: usize,
    id: String,
    job: Job,
    message: Message,
    recorder: Arc<Recorder>,
) {
    let proc = format!("http-{instance}");
    let op = |job, res| Op::Schedule(Schedule { id: id.clone(), job, res });
    recorder.record(&proc, Phase::Invoke, op(Some(job.clone()), String::new()));
    let (phase, res) = match http::schedule(at, &id, &job, &message).await {
        Answer::Verdict(res) => (Phase::Ok, res),
        Answer::Never(res) => (Phase::Fail, res),
        Answer::Unknown(res) => (Phase::Info, res),
    };
    recorder.record(&proc, phase, op(None, res));
}

/// A control request over HTTP.
fn by_http(
    http: &[SocketAddr],
    instance: usize,
    id: String,
    plan: Plan,
    recorder: &Arc<Recorder>,
) -> impl Future<Output = ()> + Send + use<> {
    let (at, recorder) = (http[instance], Arc::clone(recorder));
    async move {
        let proc = format!("http-{instance}");
        let asking = ask(&id, &plan);
        recorder.record(&proc, Phase::Invoke, asked(plan.action, asking.clone()));
        let (phase, op) = match http::ask(at, &id, &plan).await {
            Answer::Verdict(res) => {
                let (number, action) = (asking.number, plan.action.as_str().to_owned());
                (Phase::Ok, Op::Reply(Reply { id, action, res, number }))
            }
            Answer::Never(res) => {
                (Phase::Fail, asked(plan.action, ControlRequest { res, ..asking }))
            }
            Answer::Unknown(res) => {
                (Phase::Info, asked(plan.action, ControlRequest { res, ..asking }))
            }
        };
        recorder.record(&proc, phase, op);
    }
}

/// Creates a target, over restarts of the broker.
async fn make(maker: Maker, target: String) {
    loop {
        match clock::timeout(Duration::from_secs(10), maker.make(&target)).await {
            Some(Ok(())) => return,
            Some(Err(error)) => debug!(%error, "the target cannot be created yet"),
            None => debug!("the target was not created in time"),
        }
        clock::sleep(Duration::from_millis(200)).await;
    }
}
