//! Recurring schedules under faults: instances are killed in turns and Redis fails over while
//! schedules fire. Each nominal time must be made once or counted as missed.
//!
//! - `system`: Redis and the instances; [`worker`]: a `Worker` in a process of its own; `consumer`:
//!   a consumer over HTTP.
//!
//! [`checker`](crate::checker::schedules) turns what was received into a verdict.

pub(crate) mod consumer;
mod system;
pub mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::job::{Job, JobId};
use dwell::store::Store;
use dwell::store::error::StoreError;
use dwell::store::schedules::ScheduleFilter;
use dwell::units::parse_duration_ms;
use dwell_engine::{Client, Recurring};
use dwell_testkit::environment::{Failure, Result};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio::task::JoinSet;

use self::system::{Instance, Instances, RedisSide};
use crate::checker::Wrongs;
use crate::checker::occurrences::claims;
use crate::checker::schedules::{Counts, FaultTime, check};

const QUEUE: &str = "lab.schedules";
/// The lease of a received occurrence, ms: the delay of what was lost with an instance.
const TTR_MS: u32 = 5000;
/// The waits after lost leases, ms: more than any campaign uses up.
const RETRY_MS: [u64; 60] = [100; 60];
/// Consumers over HTTP.
const CONSUMERS: usize = 8;
/// Schedules that are stored at a time.
const CONCURRENT_PUTS: usize = 64;
/// The first schedule fires so long after the start, ms, and later by this for each schedule.
const LEAD_MS: i64 = 2000;
const LEAD_PER_SCHEDULE_MS: i64 = 2;
/// A fault disturbs what is due from so long before it until so long after it, ms.
const DISTURBED_BEFORE_MS: i64 = 1000;
const DISTURBED_AFTER_MS: i64 = 3000;
/// The longest wait for Redis after a failover, and for the end of the last leases.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two looks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The options of a campaign.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How many schedules
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    pub schedules: i64,
    /// The interval of each schedule, at least 1s; their first times are spread over it
    #[arg(long, default_value = "10s", value_parser = span_ms)]
    pub every: i64,
    /// How long the schedules fire
    #[arg(long, default_value = "120s", value_parser = span_ms)]
    pub duration: i64,
    /// The interval between two kills, of the two instances in turns; each is started again within
    /// a quarter of this
    #[arg(long, default_value = "15s", value_parser = span_ms)]
    pub kill_every: i64,
    /// Redis has a replica and sentinels, which promote it in the middle; durability replica
    #[arg(long)]
    pub failover: bool,
    /// Workers of dwell-engine instead of `dwell run`
    #[arg(long)]
    pub worker: bool,
    /// The seed of the kills; by default a new one
    #[arg(long)]
    pub seed: Option<u64>,
}

/// The result of a campaign.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// The schedules.
    pub schedules: i64,
    /// The jobs that consumers received, and what was wrong with them.
    #[serde(flatten)]
    pub counts: Counts,
    /// Kills of instances.
    pub kills: usize,
    /// Failovers of Redis.
    pub failovers: usize,
    /// CPU of the instances for an occurrence, µs, with the starts after kills.
    pub dwell_us: f64,
    /// CPU of all servers of Redis for an occurrence, µs.
    pub redis_us: f64,
}

/// A span in ms that is not zero.
pub(crate) fn span_ms(text: &str) -> Result<i64, String> {
    let ms = i64::try_from(parse_duration_ms(text)?).map_err(|error| error.to_string())?;
    if ms == 0 { Err("write more than 0, such as 10s".to_owned()) } else { Ok(ms) }
}

/// Runs a campaign; `say` prints progress.
///
/// # Errors
/// The servers failed.
pub async fn run(options: &Options, seed: u64, say: fn(&str)) -> Result<Summary> {
    let redis = Box::pin(RedisSide::start(options.failover)).await?;
    let settings = redis.way(PathBuf::new()).settings();
    let client = Client::connect(&settings, &[]).await?;
    let store = Store::attach(&settings).await?;
    let mut instances = Box::pin(Instances::start(&redis, options.worker)).await?;
    let received = Arc::new(Mutex::new(Vec::new()));
    let (mut consumers, ports) = (JoinSet::new(), instances.ports());
    // Workers receive what they make.
    for number in 0..CONSUMERS {
        if !ports.is_empty() {
            consumers.spawn(consumer::consume(QUEUE, ports.clone(), number, received.clone()));
        }
    }
    let begin_ms = put_all(&client, options).await?;
    say(&format!("{} schedules are stored", options.schedules));

    clock::sleep(until(begin_ms)).await;
    let before_s = [instances.cpu_s(), redis.cpu_s()];
    let mut faults = Faults { all: Vec::new(), kills: 0, failovers: 0, say };
    Box::pin(faults.strike(options, begin_ms, seed, &redis, &mut instances.all)).await?;
    let filter = ScheduleFilter::default();
    let why = Some("the campaign is over");
    answered(async || store.schedules.pause_many(&filter, why).await).await?;
    drain(&store).await?;
    let used_s = [instances.cpu_s() - before_s[0], redis.cpu_s() - before_s[1]];

    let claims = answered(async || claims(&store).await).await?;
    consumers.abort_all();
    let of_workers = instances.stop().await?;
    let receipts = [std::mem::take(&mut *received.lock()), of_workers].concat();
    let mut counts = check(&claims, &receipts, &faults.all, faults.failovers > 0);
    if claims.len() as u64 != options.schedules.unsigned_abs() {
        let what = format!("{} of {} schedules are left", claims.len(), options.schedules);
        counts.wrongs.broken(what);
    }
    let [dwell_us, redis_us] = used_s.map(|used| used * 1e6 / counts.occurrences.max(1) as f64);
    let Faults { kills, failovers, .. } = faults;
    let schedules = options.schedules;
    Ok(Summary { seed, schedules, counts, kills, failovers, dwell_us, redis_us })
}

/// The time until then, epoch ms.
fn until(at_ms: i64) -> Duration {
    clock::micros((at_ms - clock::wall_ms()) * 1000)
}

/// Stores the schedules. Returns when the first one fires, epoch ms: the others follow evenly within
/// the interval.
async fn put_all(client: &Client, options: &Options) -> Result<i64> {
    let count = options.schedules;
    let begin_ms = clock::wall_ms() + LEAD_MS + LEAD_PER_SCHEDULE_MS * count;
    let every = &format!("@every {}", options.every);
    let put = move |number: i64| async move {
        let mut job = Job::for_queue(QUEUE, "");
        (job.ttr_ms, job.retry) = (TTR_MS, Some(RETRY_MS.to_vec()));
        let id = JobId::new(format!("lab-{number}"))?;
        let start_ms = begin_ms + options.every * number / count;
        let recurring = Recurring::new(id, every, job)?.start(clock::time_of(start_ms));
        client.put_schedule(&recurring).await?;
        Ok::<_, Failure>(())
    };
    let mut puts = stream::iter((0..count).map(put)).buffer_unordered(CONCURRENT_PUTS);
    while let Some(stored) = puts.next().await {
        stored?;
    }
    if clock::wall_ms() >= begin_ms {
        let took = "storing the schedules took until after their first time";
        return Err(format!("{took}: try fewer --schedules").into());
    }
    Ok(begin_ms)
}

/// The faults so far.
struct Faults {
    all: Vec<FaultTime>,
    kills: usize,
    failovers: usize,
    say: fn(&str),
}

impl Faults {
    /// Kills instances in turns until the end, and fails over in the middle.
    async fn strike(
        &mut self,
        options: &Options,
        begin_ms: i64,
        seed: u64,
        redis: &RedisSide,
        instances: &mut [Instance],
    ) -> Result<()> {
        let mut random = StdRng::seed_from_u64(seed);
        let (middle_ms, end_ms) = (begin_ms + options.duration / 2, begin_ms + options.duration);
        let (mut at_ms, every_ms) = (begin_ms + options.kill_every, options.kill_every);
        let mut turn = random.random_range(0..instances.len());
        while at_ms < end_ms {
            clock::sleep(until(at_ms)).await;
            let from_ms = clock::wall_ms();
            turn = (turn + 1) % instances.len();
            instances[turn].kill().await?;
            clock::sleep(until(from_ms + random.random_range(0..=every_ms / 4))).await;
            instances[turn].start().await?;
            self.kills += 1;
            self.note(&format!("instance {turn} was killed and is back"), from_ms);
            if options.failover && self.failovers == 0 && at_ms >= middle_ms {
                clock::sleep(until(at_ms + every_ms / 2)).await;
                self.fail_over(redis).await?;
            }
            at_ms += every_ms;
        }
        if options.failover && self.failovers == 0 {
            clock::sleep(until(middle_ms)).await;
            self.fail_over(redis).await?;
        }
        clock::sleep(until(end_ms)).await;
        Ok(())
    }

    async fn fail_over(&mut self, redis: &RedisSide) -> Result<()> {
        let from_ms = clock::wall_ms();
        Box::pin(redis.fail_over()).await?;
        self.failovers += 1;
        self.note("redis failed over", from_ms);
        Ok(())
    }

    /// Notes a fault that is over.
    fn note(&mut self, what: &str, from_ms: i64) {
        let now_ms = clock::wall_ms();
        self.all.push(from_ms - DISTURBED_BEFORE_MS..=now_ms + DISTURBED_AFTER_MS);
        (self.say)(&format!("{what} after {} ms", now_ms - from_ms));
    }
}

/// The answer of the store, which a failover may delay.
async fn answered<T>(mut call: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T> {
    let began = clock::now();
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => clock::sleep(CHECK_INTERVAL).await,
        }
    }
}

/// Waits until the queue is empty. A job that moves may be in no count: two looks must agree.
async fn drain(store: &Store) -> Result<()> {
    let (queues, began, mut empty) = ([QUEUE.to_owned()], clock::now(), 0);
    while empty < 2 {
        let counts = answered(async || store.reader.queue_counts(&queues).await).await?;
        let left: u64 =
            counts.iter().map(|count| count.scheduled + count.ready + count.reserved).sum();
        empty = if left == 0 { empty + 1 } else { 0 };
        if left > 0 && began.elapsed() > PATIENCE {
            return Err(format!("{left} occurrences are left after {PATIENCE:?}").into());
        }
        clock::sleep(CHECK_INTERVAL).await;
    }
    Ok(())
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Summary { seed, schedules, counts, kills, failovers, dwell_us, redis_us } = self;
        let Counts { occurrences, missed, redelivered, forgotten, .. } = counts;
        let Counts { twice, lost, early, late, late_overall, wrongs, .. } = counts;
        let Wrongs { wrongs, wrong } = wrongs;
        writeln!(
            f,
            "{schedules} schedules, {kills} kills of instances, {failovers} failovers, seed {seed}"
        )?;
        writeln!(
            f,
            "{occurrences} occurrences, {missed} missed, {redelivered} handed out again, {forgotten} again after a failover"
        )?;
        writeln!(f, "{twice} twice, {lost} lost, {early} early; {wrongs} promises broken")?;
        writeln!(f, "late, but for the seconds around faults: {late}")?;
        writeln!(f, "late, of all: {late_overall}")?;
        write!(f, "CPU of an occurrence: dwell {dwell_us:.0} µs, redis {redis_us:.0} µs")?;
        wrong.iter().try_for_each(|wrong| write!(f, "\n  {wrong}"))
    }
}
