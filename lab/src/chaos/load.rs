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
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::consumers::confirm;
use self::draw::{Draw, Drawn, Plan, request};
use self::http::Answer;
use self::producer::{Producer, Sent, asked};
use self::reader::{Role, read, take};
use crate::chaos::history::{ControlRequest, Job, Op, Phase, Reply, Schedule};
use crate::chaos::recorder::Recorder;
use crate::chaos::system::{Host, Maker};

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

/// The options of the load.
#[derive(Clone)]
pub struct LoadOptions {
    /// The seed.
    pub seed: u64,
    /// Jobs a second.
    pub rate: u32,
    /// The broker.
    pub broker: BrokerConfig,
    /// Creates the late targets.
    pub maker: Maker,
    /// `/v1` of each instance.
    pub http: Vec<SocketAddr>,
    /// The destinations.
    pub places: Places,
    /// The destination of dead letters.
    pub dead: String,
    /// The destination of rejected requests.
    pub rejected: String,
    /// The source of requests, and whether it is read beside the ingest.
    pub inbound: String,
    /// See `inbound`.
    pub reads_inbound: bool,
    /// The host of the URLs.
    pub(crate) host: Option<Arc<Host>>,
}

/// A load that runs until it is told to stop.
pub struct Load {
    stop: CancellationToken,
    sending: tokio::task::JoinHandle<()>,
    readers: JoinSet<()>,
}

impl Load {
    /// Starts readers and producer.
    #[must_use]
    pub fn start(options: LoadOptions, recorder: &Arc<Recorder>) -> Load {
        let mut readers = JoinSet::new();
        let places = &options.places;
        let (received, receiving) = tokio::sync::mpsc::unbounded_channel();
        let (broker, http, replies) =
            (options.broker.clone(), options.http.clone(), places.replies.clone());
        readers.spawn(confirm(broker, http, replies, Arc::clone(recorder), receiving));
        if let Some(host) = &options.host {
            host.listen(take(Arc::clone(recorder), received.clone()));
        }
        let targets = places
            .targets
            .iter()
            .chain(&places.late)
            .chain([&places.never])
            .map(|topic| (topic, Role::Target));
        // The queues of other brokers give a request to one reader.
        let inbound = options.reads_inbound.then_some((&options.inbound, Role::Inbound));
        let others = [
            (&places.replies, Role::Replies),
            (&options.dead, Role::Dead),
            (&options.rejected, Role::Rejected),
        ];
        for (topic, role) in targets.chain(others).chain(inbound) {
            // The target never exists, so nothing can read it.
            if *topic != places.never {
                let consumers = (role == Role::Target).then(|| received.clone());
                readers.spawn(read(
                    options.broker.clone(),
                    topic.clone(),
                    role,
                    Arc::clone(recorder),
                    consumers,
                ));
            }
        }
        let stop = CancellationToken::new();
        let sending = tokio::spawn(send(options, Arc::clone(recorder), stop.clone()));
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
async fn send(options: LoadOptions, recorder: Arc<Recorder>, stop: CancellationToken) {
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
                    asking.spawn(by_http(
                        options.http[instance],
                        instance,
                        id,
                        plan,
                        Arc::clone(&recorder),
                    ));
                }
                None => {
                    recorder.record("producer", Phase::Invoke, asked(plan.action, ask(&id, &plan)));
                    let message = request(&id, &plan, &options.places.replies);
                    messages.push((
                        Sent::ControlRequest {
                            id,
                            action: plan.action,
                            due_ms: plan.due_ms,
                            number: None,
                        },
                        message,
                    ));
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

fn ask(id: &str, plan: &Plan) -> ControlRequest {
    ControlRequest {
        id: id.to_owned(),
        due_ms: plan.due_ms,
        res: String::new(),
        number: plan.seen.map(|seen| seen.number),
    }
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

async fn by_http(at: SocketAddr, instance: usize, id: String, plan: Plan, recorder: Arc<Recorder>) {
    let proc = format!("http-{instance}");
    recorder.record(&proc, Phase::Invoke, asked(plan.action, ask(&id, &plan)));
    match http::ask(at, &id, &plan).await {
        Answer::Verdict(res) => recorder.record(
            &proc,
            Phase::Ok,
            Op::Reply(Reply {
                action: plan.action.as_str().to_owned(),
                res,
                number: ask(&id, &plan).number,
                id,
            }),
        ),
        Answer::Never(res) => recorder.record(
            &proc,
            Phase::Fail,
            asked(plan.action, ControlRequest { res, ..ask(&id, &plan) }),
        ),
        Answer::Unknown(res) => recorder.record(
            &proc,
            Phase::Info,
            asked(plan.action, ControlRequest { res, ..ask(&id, &plan) }),
        ),
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
