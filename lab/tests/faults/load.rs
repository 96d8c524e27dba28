//! A small load: a job every few milliseconds, and readers of the arrivals.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dwell::clock;
use dwell_connectors::{Acks, BrokerConfig, Destination, Message};
use dwell_lab::chaos::fault::FaultKind;
use dwell_lab::chaos::history::{Arrival, FORMAT, Fault, Op, Phase, RunHeader};
use dwell_lab::chaos::inject::inject;
use dwell_lab::chaos::recorder::Recorder;
use dwell_lab::chaos::system::{Error, System};
use dwell_testkit::environment::traffic::{Consumer, Producer};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Far longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(90);
/// The interval between two jobs.
const SEND_INTERVAL: Duration = Duration::from_millis(15);
/// The destination of dead letters.
const DEAD: &str = "delay.dead";
/// The time that load goes on after a heal.
const LOAD_AFTER_HEAL: Duration = Duration::from_secs(1);

/// The due time (epoch ms), and whether the broker confirmed the request, by job.
type Asked = Arc<Mutex<BTreeMap<u64, (i64, bool)>>>;
/// The arrivals: time (epoch µs) and attempt, by job.
type Came = Arc<Mutex<HashMap<u64, Vec<(i64, i64)>>>>;

/// Load on a system, until dropped.
pub(crate) struct Load<'a> {
    system: &'a System,
    asked: Asked,
    came: Came,
    /// The number of the current fault.
    running: Arc<AtomicU64>,
    /// The requests of the faults themselves.
    recorder: Arc<Recorder>,
    _tasks: JoinSet<()>,
}

/// The impact of one fault.
pub(crate) struct Outcome {
    injected: Fault,
    /// From the heal to the first arrival.
    first: Duration,
    /// From the heal until all jobs due before it had arrived.
    all: Duration,
    /// Copies after the first of each job so far. (A redelivery to the reader is not a copy.)
    copies: usize,
    /// The counters of the instances.
    counted: BTreeMap<String, u64>,
}

impl Outcome {
    /// The increase of this counter during the fault (`refused`, `oom`, `unknown_outcome`).
    pub(crate) fn counted(&self, label: &str) -> u64 {
        self.counted.get(label).copied().unwrap_or(0)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, began_us, healed_us, in_flight, detail, .. } = &self.injected;
        write!(
            f,
            "| {kind} | held {} ms | first {} ms | all {} ms | in flight {in_flight} | copies {} | {} | {detail} |",
            (healed_us - began_us) / 1000,
            self.first.as_millis(),
            self.all.as_millis(),
            self.copies,
            self.counted
                .iter()
                .map(|(label, count)| format!("{label} {count}"))
                .collect::<Vec<_>>()
                .join(", "),
        )
    }
}

impl<'a> Load<'a> {
    pub(crate) async fn start(system: &'a System) -> Self {
        let (asked, came) = (Asked::default(), Came::default());
        let running = Arc::new(AtomicU64::new(1));
        let mut tasks = JoinSet::new();
        let recorder = Arc::new(Recorder::create(Path::new("/dev/null"), &head()).unwrap());
        system.record_in(&recorder);
        for target in system.targets().iter().map(String::as_str).chain([DEAD]) {
            tasks.spawn(read(
                system.broker().clone(),
                target.to_owned(),
                came.clone(),
                recorder.clone(),
            ));
        }
        tasks.spawn(ask(
            system.broker().clone(),
            system.targets().to_vec(),
            asked.clone(),
            running.clone(),
        ));
        let load = Load { system, asked, came, running, recorder, _tasks: tasks };
        load.until("load flows", || load.came.lock().len() > 20).await;
        load
    }

    /// Injects a fault, and waits until all jobs requested before its end have arrived.
    pub(crate) async fn inject(
        &self,
        kind: FaultKind,
        rng: &mut StdRng,
        hold: Duration,
    ) -> Outcome {
        self.endure(kind, async || inject(kind, self.system, rng, hold).await).await
    }

    /// Sets the clock of the instances back by an hour during this fault, which lasts longer.
    pub(crate) async fn set_back_during(&self, other: FaultKind, hold: Duration) -> Outcome {
        // The clock jumps forward first, and back at its heal.
        let seed = (0..).find(|seed| StdRng::seed_from_u64(*seed).random()).unwrap();
        let mut ahead = StdRng::seed_from_u64(seed);
        let mut rng = StdRng::seed_from_u64(1);
        self.endure(other, async || {
            let (jumped, injected) = tokio::join!(
                inject(FaultKind::ClockJump, self.system, &mut ahead, hold / 2),
                inject(other, self.system, &mut rng, hold),
            );
            jumped.and(injected)
        })
        .await
    }

    async fn endure(
        &self,
        kind: FaultKind,
        strike: impl AsyncFnOnce() -> Result<Fault, Error>,
    ) -> Outcome {
        self.running.store(1, Ordering::SeqCst);
        let before = self.came.lock().len();
        self.until(&format!("load flows before {kind}"), || self.came.lock().len() > before + 20)
            .await;
        let counted = self.counters().await;
        let injected = match strike().await {
            Ok(injected) => injected,
            Err(error) => self.fail(&format!("{kind}: {error}")),
        };
        let healed = injected.healed_us;
        self.until(&format!("the first after {kind}"), || {
            self.arrivals().into_iter().any(|at| at >= healed)
        })
        .await;
        let end = clock::now() + LOAD_AFTER_HEAL;
        clock::sleep_until(end).await;
        self.running.store(0, Ordering::SeqCst);
        let due = self.asked.lock().clone();
        self.until(&format!("all after {kind}"), || {
            let came = self.came.lock();
            let all = self
                .asked
                .lock()
                .iter()
                .all(|(number, (_, certain))| !certain || came.contains_key(number));
            all && self.recorder.missing().jobs.is_empty()
        })
        .await;
        let mut now = self.counters().await;
        // A restarted instance counts from zero.
        now.iter_mut().for_each(|(label, count)| {
            *count = count.saturating_sub(counted.get(label).copied().unwrap_or(0))
        });
        now.retain(|_, count| *count > 0);
        let arrivals = self.arrivals();
        let first = arrivals.iter().filter(|at| **at >= healed).min().map_or(0, |at| at - healed);
        let came = self.came.lock();
        let overdue = due.iter().filter(|(_, (due, certain))| *certain && *due * 1000 <= healed);
        let last = overdue
            .filter_map(|(number, _)| came.get(number)?.iter().map(|(at, _)| *at).min())
            .max()
            .unwrap_or(healed);
        // Due times are by Redis's clock, which equals the host's clock unless a fault made it
        // jump.
        let slack = kind.allows().early_us;
        let early = |number, copies: &[(i64, i64)]| {
            let (due, _) = due.get(number).copied().unwrap_or_default();
            copies.iter().any(|(at, _)| *at >= injected.began_us && *at < due * 1000 - slack)
        };
        let early: Vec<_> = came.iter().filter(|(number, copies)| early(number, copies)).collect();
        assert!(early.is_empty(), "{kind}: came early: {early:?}");
        let copies = came
            .values()
            .map(|copies| {
                copies.iter().map(|(_, attempt)| attempt).collect::<BTreeSet<_>>().len() - 1
            })
            .sum();
        let micros = |time: i64| Duration::from_micros(u64::try_from(time).unwrap_or(0));
        Outcome { injected, first: micros(first), all: micros(last - healed), copies, counted: now }
    }

    pub(crate) async fn end(self) {
        self.leave_logs();
        let (asked, came) = (self.asked.lock().len(), self.came.lock().len());
        println!("{asked} requested, {came} arrived");
    }

    /// The sums of the instances' counters, by label.
    async fn counters(&self) -> BTreeMap<String, u64> {
        const COUNTED_SERIES: [&str; 4] = [
            "dwell_publish_total{",
            "dwell_redis_errors_total{",
            "dwell_possible_duplicates_total{",
            "dwell_leases_lost_total",
        ];
        let mut counters = BTreeMap::new();
        for instance in 0..self.system.options().instances {
            let scrape =
                clock::timeout(Duration::from_secs(2), scrape(self.system.probes(instance))).await;
            let Some(Ok(scrape)) = scrape else { continue };
            for line in scrape.lines().filter(|line| {
                COUNTED_SERIES.iter().any(|name| line.starts_with(name))
                    && !line.contains("confirmed")
            }) {
                let Some((series, value)) = line.rsplit_once(' ') else { continue };
                let label = series.rsplit('"').nth(1).unwrap_or("lease_lost");
                *counters.entry(label.to_owned()).or_default() += value.parse::<u64>().unwrap_or(0);
            }
        }
        counters
    }

    fn arrivals(&self) -> Vec<i64> {
        self.came.lock().values().flatten().map(|(at, _)| *at).collect()
    }

    async fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let waited = clock::timeout(TIMEOUT, async {
            while !condition() {
                clock::sleep(Duration::from_millis(5)).await;
            }
        });
        if waited.await.is_none() {
            self.fail(&format!("timed out: {what}"));
        }
    }

    /// Writes the logs to the folder of `DWELL_CHAOS_LOGS`.
    fn leave_logs(&self) {
        let Some(folder) = std::env::var_os("DWELL_CHAOS_LOGS") else { return };
        for (name, text) in self.system.logs() {
            std::fs::write(std::path::Path::new(&folder).join(name), text).unwrap();
        }
    }

    fn fail(&self, what: &str) -> ! {
        self.leave_logs();
        let came = self.came.lock();
        let asked = self.asked.lock();
        let missing: Vec<_> = asked
            .iter()
            .filter(|(number, (_, certain))| *certain && !came.contains_key(number))
            .take(20)
            .collect();
        panic!("{what}; {} requested, {} arrived, missing {missing:?}", asked.len(), came.len());
    }
}

fn head() -> RunHeader {
    let (commit, version, broker, durability, repeat) = Default::default();
    let redis = "single".to_owned();
    RunHeader {
        format: FORMAT,
        seed: 0,
        commit,
        version,
        broker,
        instances: 0,
        durability,
        redis,
        lease_ms: 0,
        late_ms: 0,
        limited_per_s: None,
        repeat,
    }
}

/// A job requested by a fault: its body is its id.
fn of_a_fault(message: &Message, topic: &str) -> Arrival {
    let (id, digest, reason, action) = (
        String::from_utf8_lossy(&message.body).into_owned(),
        String::new(),
        String::new(),
        String::new(),
    );
    let topic = topic.to_owned();
    Arrival {
        id,
        topic,
        due_ms: None,
        attempt: None,
        occurrence: None,
        digest,
        place: None,
        redelivered: false,
        taken_ms: None,
        reason,
        action,
    }
}

async fn scrape(probes: SocketAddr) -> std::io::Result<String> {
    let mut link = TcpStream::connect(probes).await?;
    link.write_all(b"GET /metrics HTTP/1.1\r\nhost: dwell\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    link.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn ask(broker: BrokerConfig, targets: Vec<String>, asked: Asked, running: Arc<AtomicU64>) {
    let mut producer = None;
    let mut number = 0;
    loop {
        if running.load(Ordering::SeqCst) == 0 {
            clock::sleep(SEND_INTERVAL).await;
            continue;
        }
        number += 1;
        let due = clock::wall_ms() + 300 + i64::try_from(number % 10 * 50).unwrap();
        asked.lock().insert(number, (due, false));
        let target = &targets[usize::try_from(number).unwrap() % targets.len()];
        // Repeated until the broker confirms: Dwell recognises the id.
        loop {
            if producer.is_none() {
                producer = Producer::open(&broker).await.ok();
            }
            let Some(open) = &mut producer else {
                clock::sleep(SEND_INTERVAL).await;
                continue;
            };
            let message = Message::new(format!("{number}"))
                .with_header("delay-id", format!("job-{number}"))
                .with_header("delay-until", due.to_string())
                .with_header("delay-target", target);
            let sent = clock::timeout(Duration::from_secs(5), async {
                open.send(&Destination::new("delay.in"), [message]).await?;
                open.flush().await
            });
            match sent.await {
                Some(Ok(())) => break,
                _ => producer = None,
            }
        }
        asked.lock().insert(number, (due, true));
        clock::sleep(SEND_INTERVAL).await;
    }
}

async fn read(broker: BrokerConfig, target: String, came: Came, recorder: Arc<Recorder>) {
    loop {
        let (into, recorder, topic) = (came.clone(), recorder.clone(), target.clone());
        let seen = move |at_us, messages: Vec<Message>| {
            for message in messages {
                let number = std::str::from_utf8(&message.body).unwrap().parse::<u64>();
                let Some(number) = number.ok().filter(|_| topic != DEAD) else {
                    recorder.record("load", Phase::Ok, Op::Deliver(of_a_fault(&message, &topic)));
                    continue;
                };
                let attempt = message
                    .headers
                    .get("delayed-attempt")
                    .and_then(|value| value.written()?.parse().ok())
                    .unwrap_or(0);
                // The broker's time of receipt, if any: the reader may reconnect later.
                let at = message.timestamp_ms.map_or(at_us, |at_ms| at_ms * 1000);
                into.lock().entry(number).or_default().push((at, attempt));
            }
        };
        if let Ok(mut consumer) = Consumer::open(&broker, &target, Acks::Explicit, seen).await {
            while consumer.check().await.is_ok() {
                clock::sleep(SEND_INTERVAL).await;
            }
        }
        clock::sleep(SEND_INTERVAL).await;
    }
}
