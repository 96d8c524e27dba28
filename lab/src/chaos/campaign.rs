//! A campaign: a system under load, faults in the order of a plan, the wait for all outstanding
//! jobs, and the verdict.

mod drain;
mod recovery;
mod sample;

pub(crate) use self::drain::damage;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::config::RedisMode;
use dwell::dispatch::lease_of;
use dwell::store::error::StoreError;
use dwell_connectors::ConnectorError;
use dwell_testkit::servers::BrokerKind;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::chaos::checker::check;
use crate::chaos::checker::verdict::Verdict;
use crate::chaos::fault::FaultKind;
use crate::chaos::history::{End, FORMAT, Fault, History, Op, Phase, RunHeader, Unreadable};
use crate::chaos::inject;
use crate::chaos::load::{Load, LoadOptions, Places, REPLY_DESTINATION};
use crate::chaos::plan::{Pace, Plan, Step};
use crate::chaos::recorder::Recorder;
use crate::chaos::report::Report;
use crate::chaos::system::{self, System, SystemOptions};

/// The options of a campaign.
#[derive(Debug, Clone)]
pub struct Options {
    /// The system under test.
    pub system: SystemOptions,
    /// The seed of plan and load.
    pub seed: u64,
    /// The time during which faults are injected.
    pub duration: Duration,
    /// The least number of faults: a slow machine takes longer than the duration for them.
    pub least: usize,
    /// Jobs a second.
    pub rate: u32,
    /// The pace of the faults.
    pub pace: Pace,
    /// Only these kinds of faults; empty: all that apply.
    pub only: Vec<FaultKind>,
    /// The folder of the history and, after a failed run, of the logs.
    pub out: PathBuf,
    /// The command line that repeats this run.
    pub repeat: String,
    /// Prints progress.
    pub say: fn(&str),
}

impl Options {
    /// The name of the run in the names of its files.
    #[must_use]
    pub fn name(&self) -> String {
        let (broker, seed) = (format!("{}{}", self.system.broker.as_str(), if self.system.http { "-http" } else { "" }), self.seed);
        match self.system.redis {
            RedisMode::Single => format!("{broker}-{seed}"),
            other => format!("{broker}-{}-{seed}", redis_word(other)),
        }
    }
}

/// `redis.mode`, as in the settings.
#[must_use]
pub fn redis_word(mode: RedisMode) -> &'static str {
    match mode {
        RedisMode::Single => "single",
        RedisMode::Cluster => "cluster",
        RedisMode::Sentinel => "sentinel",
    }
}

/// The result of a campaign.
#[derive(Debug)]
pub struct Outcome {
    /// The verdict of the checker.
    pub verdict: Verdict,
    /// The report.
    pub report: Report,
    /// The file of the history.
    pub history: PathBuf,
}

/// The campaign failed, or cannot be judged.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "what its parts say")]
pub enum Error {
    #[error(transparent)]
    System(#[from] system::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    #[error("{0}")]
    Unexpected(String),
}

/// The targets that are created late, and one that never exists.
const LATE_TARGETS: [&str; 3] = ["chaos-late-0", "chaos-late-1", "chaos-late-2"];
const NEVER_TARGET: &str = "chaos-never";
/// The destinations of dead letters and rejected requests: the defaults of the instances.
const DEAD_DESTINATION: &str = "delay.dead";
const REJECTED_DESTINATION: &str = "delay.rejected";
/// The source of requests.
const REQUEST_DESTINATION: &str = "delay.in";
/// An in-flight window that a silent target can fill, and a `hold` for an unreachable Redis that
/// is shorter than a fault.
const EXTRA_SETTINGS: &str = "delivery.max_in_flight = 128\ningest.main.hold = \"3s\"";
/// The bound on lateness after all faults are healed: a lease, plus JetStream's `ack_wait` for a
/// reader that is gone, plus a margin.
const MAX_LATENESS_MS: i64 = 45_000;
/// The longest wait for the first arrival.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait for arrivals after a fault, and for an empty store at the end.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest time of a fault with its heal.
const STRIKE_TIMEOUT: Duration = Duration::from_secs(180);
/// The interval between two checks of a condition, and between two samples of an instance.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The store must stay empty for this time: a redelivery would arrive within it.
const MIN_EMPTY_DURATION: Duration = Duration::from_secs(2);

/// Destinations of the instances besides the targets of the system.
#[must_use]
pub fn destinations() -> Vec<String> {
    LATE_TARGETS.iter().chain(&[NEVER_TARGET, REPLY_DESTINATION]).map(|name| (*name).to_owned()).collect()
}

/// Runs a campaign.
///
/// # Errors
/// The system did not start, or the history cannot be written. Later errors are part of the
/// verdict.
pub async fn run(options: Options) -> Result<Outcome, Error> {
    let io = |what: &Path| {
        let what = what.display().to_string();
        move |error| Error::Io(what, error)
    };
    if let Some(kind) = options.only.iter().find(|kind| !kind.applies(&options.system)) {
        let (broker, redis) = (options.system.broker.as_str(), redis_word(options.system.redis));
        return Err(Error::Unexpected(format!(
            "{kind} is not possible over {broker} and a {redis} Redis with this durability, or without --http"
        )));
    }
    if options.system.redis != RedisMode::Single && !options.system.has_replica() {
        // Any of their faults may end in a failover.
        return Err(Error::Unexpected("a Cluster and sentinels lose acknowledged jobs below durability replica".to_owned()));
    }
    std::fs::create_dir_all(&options.out).map_err(io(&options.out))?;
    let file = options.out.join(format!("history-{}.jsonl", options.name()));
    let system_options = SystemOptions { also: destinations(), more: EXTRA_SETTINGS.to_owned(), ..options.system.clone() };
    let system = System::start(system_options).await?;
    (options.say)(&system.describe());
    let lease_ms = i64::try_from(lease_of(&system.settings().delivery).as_millis()).unwrap_or(i64::MAX);
    let recorder = Arc::new(Recorder::create(&file, &head(&options, lease_ms)).map_err(io(&file))?);
    system.record_in(&recorder);
    let maker = system.maker();
    maker.make(REPLY_DESTINATION).await?;
    let places = Places {
        targets: system.targets().to_vec(),
        late: LATE_TARGETS.iter().map(|name| (*name).to_owned()).collect(),
        never: NEVER_TARGET.to_owned(),
        urls: system
            .host()
            .map(|host| (0..3).map(|path| host.url(&format!("/chaos/{path}"))).chain(host.slow_urls("/chaos/slow")).collect())
            .unwrap_or_default(),
        replies: REPLY_DESTINATION.to_owned(),
    };
    let load = LoadOptions {
        seed: options.seed,
        rate: options.rate,
        broker: system.broker().clone(),
        maker,
        http: (0..options.system.instances).map(|instance| system.http(instance)).collect(),
        places,
        dead: DEAD_DESTINATION.to_owned(),
        rejected: REJECTED_DESTINATION.to_owned(),
        inbound: REQUEST_DESTINATION.to_owned(),
        reads_inbound: options.system.broker == BrokerKind::Kafka,
        host: system.host().cloned(),
    };
    let mut load = Load::start(load, &recorder);
    let campaign = Campaign { system: &system, recorder: &recorder, options: &options };
    let mut end = tokio::select! {
        end = campaign.timeline(&mut load) => end,
        never = campaign.sample() => never,
    };
    end.broken.extend(load.stop().await);
    end.exits = system.stop_instances().await;
    let logs = system.logs();
    if let Err(error) = system.stop_servers().await {
        end.broken.push(format!("the system did not end: {error}"));
    }
    recorder.record("campaign", Phase::Ok, Op::End(end));
    recorder.flush().map_err(io(&file))?;
    let history = History::read(&file)?;
    let verdict = check(&history);
    let report = Report::of(&history, &verdict);
    if !verdict.is_sound() {
        let folder = options.out.join(format!("logs-{}", options.name()));
        std::fs::create_dir_all(&folder).map_err(io(&folder))?;
        for (name, text) in logs {
            std::fs::write(folder.join(name), text).map_err(io(&folder))?;
        }
    }
    Ok(Outcome { verdict, report, history: file })
}

fn head(options: &Options, lease_ms: i64) -> RunHeader {
    RunHeader {
        format: FORMAT,
        seed: options.seed,
        commit: commit(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        broker: options.system.broker.as_str().to_owned(),
        instances: options.system.instances,
        durability: format!("{:?}", options.system.durability).to_lowercase(),
        redis: redis_word(options.system.redis).to_owned(),
        lease_ms,
        late_ms: MAX_LATENESS_MS + lease_ms,
        repeat: options.repeat.clone(),
    }
}

/// The commit of the current folder; empty if there is none.
fn commit() -> String {
    let said = Command::new("git").args(["describe", "--always", "--dirty", "--exclude=*"]).output();
    said.ok().filter(|said| said.status.success()).map_or_else(String::new, |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

struct Campaign<'a> {
    system: &'a System,
    recorder: &'a Recorder,
    options: &'a Options,
}

impl Campaign<'_> {
    async fn timeline(&self, load: &mut Load) -> End {
        let mut broken = Vec::new();
        if !self.until(WARM_UP_TIMEOUT, || self.recorder.arrivals() > 0).await {
            broken.push(format!("nothing arrived within {} s", WARM_UP_TIMEOUT.as_secs()));
        } else if let Err(error) = self.inject_faults().await {
            broken.push(error);
        }
        broken.extend(load.finish_sending().await.err());
        match self.drain().await {
            Ok(end) => End { broken, ..end },
            Err(error) => {
                broken.push(format!("the final state cannot be read: {error}"));
                End { broken, ..End::default() }
            }
        }
    }

    /// Injects one fault after another until the time is over and enough are injected.
    async fn inject_faults(&self) -> Result<(), String> {
        let kinds = if self.options.only.is_empty() { FaultKind::all() } else { &self.options.only };
        let kinds: Vec<FaultKind> = kinds.iter().copied().filter(|kind| kind.applies(self.system.options())).collect();
        let until = clock::now() + self.options.duration;
        let mut recovery = recovery::Recovery::default();
        for (injected, step) in Plan::new(self.options.seed, &kinds, self.options.pace).enumerate() {
            if clock::now() >= until && injected >= self.options.least {
                break;
            }
            // A fault that ends an instance must not take counts with it.
            self.sample_all().await;
            let healed_us = self.inject_one(&step).await?;
            let began = clock::now();
            // A job that fell due after the heal has arrived.
            if !self.until(RECOVERY_TIMEOUT, || self.recorder.newest_due_ms() * 1000 > healed_us).await {
                return Err(format!("nothing arrived within {} s after {} was healed", RECOVERY_TIMEOUT.as_secs(), step.kind));
            }
            let arrive_ms = began.elapsed().as_millis();
            let recovered = recovery.wait(self.system, self.recorder, healed_us).await;
            (self.options.say)(&format!("  jobs arrive {arrive_ms} ms after, {recovered} {} ms after", began.elapsed().as_millis()));
            clock::sleep(step.pause).await;
        }
        Ok(())
    }

    async fn inject_one(&self, step: &Step) -> Result<i64, String> {
        let entry = |began_us, healed_us, detail| Fault {
            kind: step.kind,
            began_us,
            healed_us,
            in_flight: 0,
            detail,
            clock_step_us: None,
            beside: None,
            leases: None,
            forgotten: None,
        };
        let now_us = clock::wall_us();
        let hold_us = i64::try_from(step.hold.as_micros()).unwrap_or(i64::MAX);
        self.recorder.record("faults", Phase::Invoke, Op::Fault(entry(now_us, now_us + hold_us, String::new())));
        let mut rng = StdRng::seed_from_u64(step.seed);
        let injected = clock::timeout(STRIKE_TIMEOUT, Box::pin(inject::inject(step.kind, self.system, &mut rng, step.hold))).await;
        let error = match injected {
            Some(Ok(injected)) => {
                let took_ms = (injected.healed_us - injected.began_us) / 1000;
                let (inject::Injected { leases, detail, forgotten, .. }, healed_us) = (&injected, injected.healed_us);
                (self.options.say)(&format!("{}: {detail}, {took_ms} ms, {} in flight, {} held", step.kind, leases.claimed, leases.held));
                if let Some(forgotten) = forgotten {
                    (self.options.say)(&format!("  another master for buckets {:?}", forgotten.buckets));
                }
                let fault = Fault::from(injected);
                self.recorder.record("faults", Phase::Ok, Op::Fault(fault));
                return Ok(healed_us);
            }
            Some(Err(error)) => error.to_string(),
            None => format!("it took more than {} s", STRIKE_TIMEOUT.as_secs()),
        };
        self.recorder.record("faults", Phase::Info, Op::Fault(entry(now_us, clock::wall_us(), error.clone())));
        Err(format!("{}: {error}", step.kind))
    }

    /// Samples each instance once a second, until dropped.
    async fn sample<T>(&self) -> T {
        loop {
            self.sample_all().await;
            clock::sleep(SAMPLE_INTERVAL).await;
        }
    }

    async fn sample_all(&self) {
        for instance in 0..self.options.system.instances {
            self.system.look_after(instance);
            if let Some(sample) = sample::sample(self.system, instance).await {
                self.recorder.record("campaign", Phase::Ok, Op::Sample(sample));
            }
        }
    }

    /// Waits for a condition; false after this time.
    async fn until(&self, limit: Duration, condition: impl Fn() -> bool) -> bool {
        let waiting = async {
            while !condition() {
                clock::sleep(CHECK_INTERVAL).await;
            }
        };
        clock::timeout(limit, waiting).await.is_some()
    }
}
