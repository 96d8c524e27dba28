//! Spawners on a private Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

mod failed_calls;

use std::collections::{BTreeMap, BTreeSet};

use dwell_core::Value;
use dwell_schedule::{CatchUp, Expression, occurrence_id, split_occurrence_id};
use dwell_testkit::servers::{RedisOptions, RedisServer};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::*;
use crate::clock;
use crate::config::Redis;
use crate::events::JobEvent;
use crate::job::{Action, Conflict, Due, Job, JobId, Verdict};
use crate::request::{Act, KeptParts, NewJob, NewSchedule, Origin};
use crate::schedule::{Overlap, Progress, StoredSchedule, Timing};
use crate::store::Unobserved;
use crate::store::jobs::batch::RequestRef;
use crate::store::schedules::change::Changed;

const QUEUE: &str = "reports";
const SECOND: i64 = 1_000;

/// An event of a schedule.
#[derive(Debug, Clone, PartialEq)]
enum ScheduleEvent {
    Made { schedule: String, id: String, is_caught_up: bool },
    Missed { schedule: String, count: u64, times: Vec<i64>, reason: &'static str },
}

#[derive(Default)]
struct Seen(Mutex<Vec<ScheduleEvent>>);

impl Observer for Seen {
    fn observe(&self, event: &JobEvent<'_>) {
        let told = match *event {
            JobEvent::OccurrenceMade { schedule, id, is_caught_up, .. } => ScheduleEvent::Made {
                schedule: schedule.to_string(),
                id: id.to_string(),
                is_caught_up,
            },
            JobEvent::OccurrencesMissed { schedule, count, times, reason, .. } => {
                ScheduleEvent::Missed {
                    schedule: schedule.to_string(),
                    count,
                    times: times.to_vec(),
                    reason,
                }
            }
            _ => return,
        };
        self.0.lock().push(told);
    }
}

impl Seen {
    /// Waits until this is true of all events.
    async fn until(&self, what: &str, is_so: impl Fn(&[ScheduleEvent]) -> bool) {
        let waiting = async {
            while !is_so(&self.0.lock()) {
                tokio::task::yield_now().await;
            }
        };
        assert!(clock::timeout(Duration::from_secs(60), waiting).await.is_some(), "{what}");
    }

    /// Waits until this many occurrences of the schedule are made.
    async fn until_made(&self, schedule: &str, count: usize) {
        let what = format!("{count} of {schedule}");
        self.until(&what, |told| made_of(told, schedule).len() >= count).await;
    }

    fn made_of(&self, schedule: &str) -> Vec<String> {
        made_of(&self.0.lock(), schedule)
    }

    /// Waits for a gap of this reason, and returns its times.
    async fn missed(&self, schedule: &str, reason: &str) -> Vec<i64> {
        self.until(reason, |told| missed_of(told, schedule, reason).is_some()).await;
        missed_of(&self.0.lock(), schedule, reason).unwrap()
    }
}

/// The ids of the occurrences that were made, in the order of the events.
fn made_of(told: &[ScheduleEvent], of: &str) -> Vec<String> {
    let id = |told: &ScheduleEvent| match told {
        ScheduleEvent::Made { schedule, id, .. } if schedule == of => Some(id.clone()),
        _ => None,
    };
    told.iter().filter_map(id).collect()
}

fn missed_of(told: &[ScheduleEvent], of: &str, why: &str) -> Option<Vec<i64>> {
    told.iter().find_map(|told| match told {
        ScheduleEvent::Missed { schedule, times, reason, .. }
            if schedule == of && *reason == why =>
        {
            Some(times.clone())
        }
        _ => None,
    })
}

struct Fixture {
    server: RedisServer,
    store: Arc<Store>,
    seen: Arc<Seen>,
}

async fn store(server: &RedisServer) -> Arc<Store> {
    let settings = Redis { buckets: 2, ..Redis::new(server.url()) };
    Arc::new(Store::open(&settings, &[], Arc::new(Unobserved)).await.unwrap())
}

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

/// A schedule of each second.
fn each_second(name: &str, edit: impl FnOnce(&mut Timing)) -> NewSchedule {
    let mut timing = Timing {
        text: "@every 1s".to_owned(),
        expression: Expression::parse("@every 1s").unwrap(),
        zone: None,
        start_ms: None,
        end_ms: None,
        count: None,
        catch_up: CatchUp::One,
        overlap: Overlap::Allow,
        spread_ms: 0,
    };
    edit(&mut timing);
    NewSchedule {
        id: id(name),
        conflict: Conflict::Replace,
        own_queues: None,
        is_paused: false,
        from_settings: false,
        timing,
        job: Job::for_queue(QUEUE, "x"),
        keep: KeptParts::default(),
        origin: Origin::of_call(),
        reply_to: None,
    }
}

async fn apply(store: &Store, asked: RequestRef<'_>) -> Verdict {
    store.jobs.apply(&[asked], &[]).await.answers.remove(0).unwrap().verdict
}

impl Fixture {
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let store = store(&server).await;
        Fixture { server, store, seen: Arc::default() }
    }

    async fn put(&self, new: &NewSchedule) {
        let answers = self.store.jobs.apply(&[RequestRef::NewSchedule(new)], &[]).await.answers;
        let verdicts: Vec<Verdict> =
            answers.into_iter().map(|answer| answer.unwrap().verdict).collect();
        assert_eq!(verdicts, [Verdict::Added]);
    }

    async fn get(&self, name: &str) -> StoredSchedule {
        self.store.schedules.find(&id(name)).await.unwrap().unwrap()
    }

    /// Starts a spawner of this store that alone makes up its fleet.
    fn spawner_of(&self, store: &Arc<Store>, stop: &CancellationToken) -> JoinHandle<()> {
        let options = SpawnOptions {
            serves: Arc::new(|set: DueSet<'_>| set.queue() == Some(QUEUE)),
            is_full: Arc::new(|_: &str| false),
            wake: Arc::new(|_: Vec<WakeUp>| ()),
            observer: self.seen.clone(),
        };
        let fleet = watch::channel(Fleet::alone("me ")).1;
        tokio::spawn(Spawner::new(store.clone(), options, fleet).run(stop.clone()))
    }

    fn spawner(&self) -> (CancellationToken, JoinHandle<()>) {
        let stop = CancellationToken::new();
        let running = self.spawner_of(&self.store, &stop);
        (stop, running)
    }

    /// Changes the progress of a schedule.
    async fn edit(&self, name: &str, edit: impl FnOnce(&mut Progress)) {
        let (id, schedules) = (id(name), &self.store.schedules);
        let bucket = self.store.keys().bucket_of(name);
        let read = schedules.read(bucket, &[id]).await.unwrap().pop().flatten().unwrap();
        let mut progress = read.schedule.progress.clone();
        progress.revision += 1;
        edit(&mut progress);
        let changes = [read.moved(Some(progress))];
        let changed = schedules.change(bucket, &changes).await.unwrap();
        assert!(matches!(changed[..], [Changed::Done { .. }]), "{changed:?}");
    }

    /// The numbers of these occurrences, each with whether it knows a next time.
    async fn numbers(&self, ids: &[String]) -> Vec<(i64, bool)> {
        let mut numbers = Vec::new();
        for name in ids {
            let stored = self.store.reader.find(&id(name)).await.unwrap().unwrap();
            let headers = &stored.job().headers;
            let Some(Value::I64(number)) = headers.get("delayed-occurrence") else {
                panic!("{name} has no number")
            };
            numbers.push((*number, headers.get("delayed-next").is_some()));
        }
        numbers
    }

    /// The ids of all jobs.
    async fn jobs(&self) -> Vec<String> {
        let (mut raw, keys) = (self.raw().await, self.store.keys());
        let mut ids = Vec::new();
        for bucket in 0..keys.buckets() {
            let mut command = redis::cmd("HKEYS");
            let of_bucket: Vec<String> =
                command.arg(keys.jobs(bucket)).query_async(&mut raw).await.unwrap();
            ids.extend(of_bucket);
        }
        ids
    }

    async fn raw(&self) -> redis::aio::MultiplexedConnection {
        crate::raw_link::raw_link(self.server.url()).await
    }
}

#[tokio::test]
async fn two_spawners_make_each_occurrence_once_and_number_them_without_gaps() {
    let fixture = Fixture::new().await;
    let names: Vec<String> = (0..40).map(|number| format!("schedule-{number}")).collect();
    for name in &names {
        fixture.put(&each_second(name, |_| ())).await;
    }
    let (stop, other) = (CancellationToken::new(), store(&fixture.server).await);
    // Each takes itself for the first of its fleet: both are at the same schedules.
    let running = [fixture.spawner_of(&fixture.store, &stop), fixture.spawner_of(&other, &stop)];
    for name in &names {
        fixture.seen.until_made(name, 3).await;
    }
    stop.cancel();
    for spawner in running {
        spawner.await.unwrap();
    }
    for name in &names {
        let made = fixture.seen.made_of(name);
        let times: BTreeSet<i64> =
            made.iter().map(|id| split_occurrence_id(id).unwrap().1).collect();
        assert_eq!(times.len(), made.len(), "{made:?}");
        let mut numbers = fixture.numbers(&made).await;
        numbers.sort_unstable();
        let expected: Vec<(i64, bool)> = (1..).take(made.len()).map(|n| (n, true)).collect();
        assert_eq!(numbers, expected, "{name}");
        let progress = fixture.get(name).await.progress;
        assert_eq!(progress.occurrence, made.len() as u64);
        assert_eq!(progress.last_ms, times.last().copied());
    }
}

#[tokio::test]
async fn a_spawner_that_is_killed_at_any_moment_leaves_no_gap_and_no_second_job() {
    let fixture = Fixture::new().await;
    let name = "killed";
    // A call makes five: the spawner is killed between the parts too.
    let job = Job::for_queue(QUEUE, "x".repeat(200_000));
    let every = each_second(name, |timing| timing.catch_up = CatchUp::All);
    fixture.put(&NewSchedule { job, ..every }).await;
    let first_ms = fixture.get(name).await.progress.next_ms.unwrap();
    let back_ms = 60 * SECOND;
    for number in 0..40 {
        // Always something is due: the spawner is killed while it works.
        let (_, running) = fixture.spawner();
        for _ in 0..number * 40 {
            tokio::task::yield_now().await;
        }
        running.abort();
        drop(running.await);
        if number == 0 {
            let edit = |progress: &mut Progress| {
                progress.grid_ms -= back_ms;
                progress.next_ms = Some(first_ms - back_ms);
            };
            fixture.edit(name, edit).await;
        }
    }
    let (stop, running) = fixture.spawner();
    let wait = async {
        while fixture.get(name).await.progress.next_ms.unwrap() <= first_ms {
            tokio::task::yield_now().await;
        }
    };
    assert!(clock::timeout(Duration::from_secs(60), wait).await.is_some(), "it goes on");
    stop.cancel();
    running.await.unwrap();
    let progress = fixture.get(name).await.progress;
    let last_ms = progress.last_ms.unwrap();
    assert_eq!(progress.missed, 0);
    let times = (0..).map(|n| first_ms - back_ms + n * SECOND).take_while(|ms| *ms <= last_ms);
    let ids: Vec<String> = times.map(|ms| occurrence_id(name, ms)).collect();
    let numbers: Vec<i64> = fixture.numbers(&ids).await.into_iter().map(|(n, _)| n).collect();
    assert_eq!(numbers, (1..).take(ids.len()).collect::<Vec<i64>>());
    assert_eq!(progress.occurrence, ids.len() as u64);
}

#[tokio::test]
async fn requests_beside_two_spawners_leave_no_gap_and_no_second_job() {
    let fixture = Fixture::new().await;
    let names: Vec<String> = (0..6).map(|number| format!("busy-{number}")).collect();
    for name in &names {
        fixture.put(&each_second(name, |_| ())).await;
    }
    let (stop, other) = (CancellationToken::new(), store(&fixture.server).await);
    let running = [fixture.spawner_of(&fixture.store, &stop), fixture.spawner_of(&other, &stop)];
    let requests = async {
        for round in 0_u32.. {
            for name in &names {
                match round % 8 {
                    0 => drop(other.schedules.pause(&id(name), None, None).await.unwrap()),
                    2 => drop(fixture.store.schedules.resume(&id(name), None).await.unwrap()),
                    4 => {
                        let job = Job::for_queue(QUEUE, round.to_string());
                        let new = NewSchedule { job, ..each_second(name, |_| ()) };
                        let verdict = apply(&other, RequestRef::NewSchedule(&new)).await;
                        assert_eq!(verdict, Verdict::Replaced);
                    }
                    6 if round % 64 == 6 => {
                        let fire = Act::new(Action::Fire, id(name));
                        let verdict = apply(&fixture.store, RequestRef::Act(&fire)).await;
                        assert_eq!(verdict, Verdict::Firing);
                    }
                    _ => tokio::task::yield_now().await,
                }
            }
            if names.iter().all(|name| fixture.seen.made_of(name).len() >= 3) {
                break;
            }
        }
    };
    assert!(clock::timeout(Duration::from_secs(60), requests).await.is_some(), "it goes on");
    stop.cancel();
    for spawner in running {
        spawner.await.unwrap();
    }
    let made = fixture.jobs().await;
    for name in &names {
        let of_name = |id: &&String| split_occurrence_id(id).is_some_and(|(of, _)| of == name);
        let ids: Vec<String> = made.iter().filter(of_name).cloned().collect();
        let numbers = fixture.numbers(&ids).await.into_iter().map(|(number, _)| number);
        let numbers: BTreeSet<i64> = numbers.collect();
        assert_eq!(numbers, (1..).take(ids.len()).collect::<BTreeSet<i64>>(), "{name}");
        assert_eq!(fixture.get(name).await.progress.occurrence, ids.len() as u64);
    }
}

#[tokio::test]
async fn many_that_are_due_at_once_are_made_once_each() {
    let fixture = Fixture::new().await;
    let (day_ms, due_ms) = (24 * 3600 * SECOND, fixture.store.now_ms() - 5 * SECOND);
    // More of each bucket than one look finds.
    let names: Vec<String> = (0..1500).map(|number| format!("many-{number}")).collect();
    let daily = |name: &String| {
        each_second(name, |timing| {
            timing.text = "@every 24h".to_owned();
            timing.expression = Expression::parse(&timing.text).unwrap();
            timing.count = Some(1);
        })
    };
    let new: Vec<NewSchedule> = names.iter().map(daily).collect();
    let asked: Vec<RequestRef<'_>> = new.iter().map(RequestRef::NewSchedule).collect();
    for answer in fixture.store.jobs.apply(&asked, &[]).await.answers {
        assert_eq!(answer.unwrap().verdict, Verdict::Added);
    }
    for name in &names {
        let is_due = |progress: &mut Progress| {
            (progress.grid_ms, progress.next_ms) = (due_ms - day_ms, Some(due_ms));
        };
        fixture.edit(name, is_due).await;
    }
    let (stop, running) = fixture.spawner();
    fixture.seen.until("all of them", |told| told.len() >= names.len()).await;
    stop.cancel();
    running.await.unwrap();
    let told: BTreeSet<String> = names.iter().flat_map(|name| fixture.seen.made_of(name)).collect();
    let expected: BTreeSet<String> = names.iter().map(|name| occurrence_id(name, due_ms)).collect();
    assert_eq!(told, expected);
    assert_eq!(fixture.jobs().await.into_iter().collect::<BTreeSet<String>>(), expected);
    assert_eq!(fixture.seen.0.lock().len(), names.len());
    assert_eq!(fixture.store.schedules.counts().await.unwrap().all(), 0);
}

#[tokio::test]
async fn a_long_catch_up_goes_on_while_others_are_left_alone() {
    let fixture = Fixture::new().await;
    let (keys, bucket) = (fixture.store.keys(), fixture.store.keys().bucket_of("long"));
    let mut names = (0..).map(|number| format!("foreign-{number}"));
    let foreign = names.find(|name| keys.bucket_of(name) == bucket).unwrap();
    let job = Job::for_queue("foreign", "x");
    fixture.put(&NewSchedule { job, ..each_second(&foreign, |_| ()) }).await;
    fixture.edit(&foreign, |progress| progress.next_ms = Some(0)).await;
    // A call makes five.
    let job = Job::for_queue(QUEUE, "x".repeat(200_000));
    let every = each_second("long", |timing| timing.catch_up = CatchUp::All);
    fixture.put(&NewSchedule { job, ..every }).await;
    let next_ms = fixture.get("long").await.progress.next_ms.unwrap();
    let back = |progress: &mut Progress| {
        progress.grid_ms -= 90 * SECOND;
        progress.next_ms = Some(next_ms - 90 * SECOND);
    };
    fixture.edit("long", back).await;
    let (stop, running) = fixture.spawner();
    // Less time than nine looks at all schedules take.
    fixture.seen.until_made("long", 80).await;
    stop.cancel();
    running.await.unwrap();
    assert!(fixture.seen.made_of(&foreign).is_empty());
}

#[tokio::test]
async fn a_gap_is_told_once_with_its_times() {
    let fixture = Fixture::new().await;
    fixture.put(&each_second("late", |_| ())).await;
    let next_ms = fixture.get("late").await.progress.next_ms.unwrap();
    let back = |progress: &mut Progress| {
        progress.grid_ms -= 20 * SECOND;
        progress.next_ms = Some(next_ms - 10 * SECOND);
    };
    fixture.edit("late", back).await;
    let (stop, running) = fixture.spawner();
    let times = fixture.seen.missed("late", "late").await;
    fixture.seen.until_made("late", 1).await;
    stop.cancel();
    running.await.unwrap();
    let first: Vec<i64> = (1..=5).map(|n| next_ms - (11 - n) * SECOND).collect();
    assert_eq!(times[..5], first);
    let told = fixture.seen.0.lock().clone();
    let ScheduleEvent::Missed { count, .. } = &told[1] else { panic!("{told:?}") };
    assert_eq!(*count, times.len() as u64);
    let newest = times.last().unwrap() + SECOND;
    assert!(
        matches!(&told[0], ScheduleEvent::Made { id, .. } if *id == occurrence_id("late", newest))
    );
    let progress = fixture.get("late").await.progress;
    assert!(progress.missed >= *count && progress.last_missed_ms >= times.last().copied());
}

#[tokio::test]
async fn an_occurrence_whose_id_another_job_has_is_missed_and_the_next_is_made() {
    let fixture = Fixture::new().await;
    fixture.put(&each_second("report", |_| ())).await;
    let next_ms = fixture.get("report").await.progress.next_ms.unwrap();
    // The time is near: take a later one, which a slow machine does not miss.
    let taken_ms = next_ms + 2 * SECOND;
    let foreign = occurrence_id("report", taken_ms);
    let job = NewJob::new(Job::for_queue("other", "foreign"), Due::At(4_000_000_000_000));
    fixture.store.jobs.schedule(&[job.id(id(&foreign))]).await.unwrap();
    let (stop, running) = fixture.spawner();
    assert_eq!(fixture.seen.missed("report", "conflict").await, [taken_ms]);
    let before = fixture.seen.made_of("report").len();
    fixture.seen.until_made("report", before + 1).await;
    stop.cancel();
    running.await.unwrap();
    let kept = fixture.store.reader.find(&id(&foreign)).await.unwrap().unwrap();
    assert_eq!(kept.job().queue(), Some("other"));
    let made = fixture.seen.made_of("report");
    let numbers = fixture.numbers(&made).await.into_iter().map(|(number, _)| number);
    assert_eq!(numbers.collect::<Vec<_>>(), (1..).take(made.len()).collect::<Vec<i64>>());
}

#[tokio::test]
async fn with_skip_nothing_is_made_while_the_occurrence_before_is_alive() {
    let fixture = Fixture::new().await;
    fixture.put(&each_second("slow", |timing| timing.overlap = Overlap::Skip)).await;
    let (stop, running) = fixture.spawner();
    fixture.seen.until_made("slow", 1).await;
    let skipped = fixture.seen.missed("slow", "overlap").await;
    let first = fixture.seen.made_of("slow");
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(skipped[0] > split_occurrence_id(&first[0]).unwrap().1);
    let cancel = Act::new(Action::Cancel, id(&first[0]));
    let answer = fixture.store.jobs.apply(&[RequestRef::Act(&cancel)], &[]).await.answers.pop();
    assert_eq!(answer.unwrap().unwrap().verdict, Verdict::Cancelled);
    fixture.seen.until_made("slow", 2).await;
    stop.cancel();
    running.await.unwrap();
    let second = fixture.seen.made_of("slow").split_off(1);
    assert_eq!(fixture.numbers(&second).await, [(2, true)]);
}

#[tokio::test]
async fn a_count_ends_the_schedule_with_an_occurrence_that_has_no_next() {
    let fixture = Fixture::new().await;
    fixture.put(&each_second("twice", |timing| timing.count = Some(2))).await;
    let (stop, running) = fixture.spawner();
    fixture.seen.until_made("twice", 2).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(fixture.store.schedules.find(&id("twice")).await.unwrap(), None);
    let made = fixture.seen.made_of("twice");
    assert_eq!(fixture.numbers(&made).await, [(1, true), (2, false)]);
    assert_eq!(fixture.store.schedules.counts().await.unwrap().all(), 0);
}

#[tokio::test]
async fn nothing_is_made_or_missed_while_a_schedule_is_paused() {
    let fixture = Fixture::new().await;
    let schedules = &fixture.store.schedules;
    for name in ["paused", "clock"] {
        fixture.put(&each_second(name, |_| ())).await;
    }
    let (stop, running) = fixture.spawner();
    fixture.seen.until_made("paused", 1).await;
    let paused = schedules.pause(&id("paused"), Some("release"), None).await.unwrap().unwrap();
    assert_eq!(paused.progress.reason.as_deref(), Some("release"));
    let again = schedules.pause(&id("paused"), Some("other"), None).await.unwrap().unwrap();
    assert_eq!(again, paused);
    let counts = schedules.counts().await.unwrap();
    assert_eq!((counts.active, counts.paused), (1, 1));
    let count = fixture.seen.made_of("clock").len();
    fixture.seen.until_made("clock", count + 3).await;
    assert_eq!(fixture.get("paused").await.progress, paused.progress);

    let before_ms = fixture.store.now_ms();
    let resumed = schedules.resume(&id("paused"), None).await.unwrap().unwrap();
    assert!(resumed.progress.next_ms.unwrap() > before_ms, "{resumed:?}");
    assert_eq!((resumed.progress.missed, resumed.progress.reason), (paused.progress.missed, None));
    let made = fixture.seen.made_of("paused").len();
    fixture.seen.until_made("paused", made + 1).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(schedules.pause(&id("nobody"), None, None).await.unwrap(), None);
}

#[tokio::test]
async fn what_was_due_before_a_pause_is_made_first() {
    let fixture = Fixture::new().await;
    fixture.store.schedules.observe(fixture.seen.clone());
    fixture.put(&each_second("due", |_| ())).await;
    let next_ms = fixture.get("due").await.progress.next_ms.unwrap();
    let back = |progress: &mut Progress| {
        progress.grid_ms -= 10 * SECOND;
        progress.next_ms = Some(next_ms - SECOND);
    };
    fixture.edit("due", back).await;
    let paused = fixture.store.schedules.pause(&id("due"), None, None).await.unwrap().unwrap();
    assert_eq!((paused.progress.occurrence, paused.progress.is_paused), (1, true));
    let last_ms = paused.progress.last_ms.unwrap();
    let made = fixture.numbers(&[occurrence_id("due", last_ms)]).await;
    assert_eq!(made, [(1, true)]);
    assert_eq!(fixture.seen.made_of("due"), [occurrence_id("due", last_ms)], "it is told");
    // A gap of a minute: the newest is made.
    schedules_gap(&fixture).await;
}

/// A schedule of each second that nobody made for a minute is paused: what is missed is told.
async fn schedules_gap(fixture: &Fixture) {
    fixture.put(&each_second("gap", |_| ())).await;
    let back = |progress: &mut Progress| {
        progress.grid_ms -= 60 * SECOND;
        progress.next_ms = progress.next_ms.map(|next_ms| next_ms - 50 * SECOND);
    };
    fixture.edit("gap", back).await;
    let paused = fixture.store.schedules.pause(&id("gap"), None, None).await.unwrap().unwrap();
    assert_eq!(fixture.seen.made_of("gap").len(), 1);
    let missed = fixture.seen.missed("gap", "late").await.len();
    assert_eq!(u64::try_from(missed).unwrap(), paused.progress.missed);
    assert!(missed >= 49, "{missed}");
}

#[tokio::test]
async fn what_cannot_be_read_or_is_not_served_holds_up_no_other() {
    let fixture = Fixture::new().await;
    let mut raw = fixture.raw().await;
    let keys = fixture.store.keys();
    let bucket = keys.bucket_of("served");
    // More than one look finds, and all before the one that is served.
    let of_bucket = (0..).map(|number| format!("before-{number}"));
    let ids: Vec<String> = of_bucket.filter(|id| keys.bucket_of(id) == bucket).take(1200).collect();
    let mut pipeline = redis::pipe();
    for name in &ids {
        pipeline.cmd("ZADD").arg(keys.schedule_times(bucket)).arg(1).arg(name);
    }
    pipeline.cmd("HSET").arg(keys.schedules(bucket)).arg(&ids[7]).arg("damage");
    pipeline.cmd("HSET").arg(keys.schedule_states(bucket)).arg(&ids[7]).arg("damage");
    let () = pipeline.query_async(&mut raw).await.unwrap();
    let foreign = NewSchedule { job: Job::for_queue("foreign", "x"), ..each_second("not", |_| ()) };
    fixture.put(&foreign).await;
    fixture.put(&each_second("served", |_| ())).await;
    let (stop, running) = fixture.spawner();
    fixture.seen.until_made("served", 3).await;
    stop.cancel();
    running.await.unwrap();
    assert!(fixture.seen.made_of("not").is_empty());
    let unserved = fixture.store.schedules.unserved(|set| set.queue() == Some(QUEUE)).await;
    assert_eq!(unserved.unwrap(), BTreeMap::from([("=foreign".to_owned(), 1)]));

    // A schedule is stranded once its time came and nobody made an occurrence.
    let stranded = async || {
        let is_served = |set: DueSet<'_>| set.queue() == Some(QUEUE);
        fixture.store.schedules.stranded(is_served).await.unwrap()
    };
    assert_eq!(stranded().await, BTreeMap::new());
    fixture.edit("not", |progress| progress.next_ms = Some(0)).await;
    assert_eq!(stranded().await, BTreeMap::from([("=foreign".to_owned(), 1)]));
}
