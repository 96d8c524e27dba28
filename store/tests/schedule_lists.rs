//! Lists, counts and pauses of recurring schedules on a private Redis.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::Arc;

use dwell_core::Destination;
use dwell_schedule::{CatchUp, Expression};
use dwell_store::config::Redis;
use dwell_store::job::{Conflict, Job, JobId, Verdict};
use dwell_store::request::{KeptParts, NewSchedule, Origin, OwnQueues};
use dwell_store::schedule::{Overlap, Timing};
use dwell_store::store::jobs::batch::RequestRef;
use dwell_store::store::schedules::{ScheduleCounts, ScheduleFilter, ScheduleQuery};
use dwell_store::store::{Store, Unobserved};
use dwell_testkit::servers::{RedisOptions, RedisServer};

struct Fixture {
    _server: RedisServer,
    store: Store,
}

fn id(text: &str) -> JobId {
    text.parse().unwrap()
}

/// A schedule of each day, far from now for the time of a test.
fn daily(name: &str, job: Job) -> NewSchedule {
    NewSchedule {
        id: id(name),
        conflict: Conflict::Replace,
        own_queues: None,
        is_paused: false,
        from_settings: false,
        timing: Timing {
            text: "@every 1d".to_owned(),
            expression: Expression::parse("@every 1d").unwrap(),
            zone: None,
            start_ms: None,
            end_ms: None,
            count: None,
            catch_up: CatchUp::One,
            overlap: Overlap::Allow,
            spread_ms: 0,
        },
        job,
        keep: KeptParts::default(),
        origin: Origin::of_call(),
        reply_to: None,
    }
}

fn of_queue(name: &str, queue: &str) -> NewSchedule {
    daily(name, Job::for_queue(queue, "x"))
}

impl Fixture {
    async fn new() -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let settings = Redis::new(server.url());
        let store =
            Store::open(&settings, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap();
        Fixture { _server: server, store }
    }

    async fn put(&self, schedules: &[NewSchedule]) {
        let asked: Vec<RequestRef<'_>> = schedules.iter().map(RequestRef::NewSchedule).collect();
        for answer in self.store.jobs.apply(&asked, &[]).await.answers {
            assert_eq!(answer.unwrap().verdict, Verdict::Added);
        }
    }

    /// The ids of all pages of this many schedules.
    async fn ids(&self, filter: ScheduleFilter, limit: usize) -> Vec<String> {
        let mut query = ScheduleQuery { filter, limit, after: None };
        let mut ids = Vec::new();
        loop {
            let page = self.store.schedules.list(&query).await.unwrap();
            assert!(page.schedules.len() <= limit);
            ids.extend(page.schedules.into_iter().map(|found| found.id.as_str().to_owned()));
            match page.next {
                None => return ids,
                Some(next) => query.after = Some(next),
            }
        }
    }
}

#[tokio::test]
async fn a_list_is_in_the_order_of_ids_over_all_buckets_whatever_the_page() {
    let fixture = Fixture::new().await;
    let names: Vec<String> = (0..700).map(|number| format!("schedule-{number:03}")).collect();
    let schedules: Vec<NewSchedule> = names.iter().map(|name| of_queue(name, "q")).collect();
    fixture.put(&schedules).await;
    for limit in [1000, 700, 100, 33] {
        assert_eq!(fixture.ids(ScheduleFilter::default(), limit).await, names, "{limit}");
    }
    let part = ScheduleFilter { q: Some("e-69".to_owned()), ..ScheduleFilter::default() };
    assert_eq!(fixture.ids(part, 4).await, names[690..]);
    let none = ScheduleQuery { limit: 0, ..ScheduleQuery::default() };
    assert!(fixture.store.schedules.list(&none).await.unwrap().schedules.is_empty());
}

#[tokio::test]
async fn a_list_has_what_its_filter_wants() {
    let fixture = Fixture::new().await;
    let target = |address: &str| Job::new("main", Destination::new(address), "x");
    let settings = NewSchedule { from_settings: true, ..daily("c", target("orders.eu")) };
    fixture
        .put(&[of_queue("a", "mail.eu"), of_queue("b", "mail.us"), settings, of_queue("d", "sms")])
        .await;
    let all = ScheduleFilter::default;
    let own = OwnQueues::new(["mail.*"]);
    for (filter, expected) in [
        (all(), "abcd"),
        (ScheduleFilter { queue: Some("mail.*".to_owned()), ..all() }, "ab"),
        (ScheduleFilter { queue: Some("sms".to_owned()), ..all() }, "d"),
        (ScheduleFilter { target: Some("orders.eu".to_owned()), ..all() }, "c"),
        (ScheduleFilter { own_queues: Some(own.clone()), ..all() }, "ab"),
        (ScheduleFilter { missed_since_ms: Some(0), ..all() }, ""),
        (ScheduleFilter { paused: Some(true), ..all() }, ""),
        (ScheduleFilter { paused: Some(false), ..all() }, "abcd"),
    ] {
        assert_eq!(fixture.ids(filter.clone(), 3).await.concat(), expected, "{filter:?}");
    }
    let of_settings = fixture.store.schedules.of_settings().await.unwrap();
    assert_eq!(of_settings.into_iter().map(|found| found.id).collect::<Vec<_>>(), [id("c")]);
    // Those of others do not exist for the caller.
    let schedules = &fixture.store.schedules;
    assert_eq!(schedules.pause(&id("d"), None, Some(&own)).await.unwrap(), None);
    assert_eq!(schedules.pause(&id("c"), None, Some(&own)).await.unwrap(), None);
    assert!(schedules.pause(&id("a"), None, Some(&own)).await.unwrap().is_some());
}

#[tokio::test]
async fn many_are_paused_and_resumed_at_once_and_counted() {
    let fixture = Fixture::new().await;
    let schedules = &fixture.store.schedules;
    let all: Vec<NewSchedule> = (0..60)
        .map(|number| of_queue(&format!("{number:02}"), if number < 20 { "mail" } else { "sms" }))
        .collect();
    fixture.put(&all).await;
    let counts = async || schedules.counts().await.unwrap();
    assert_eq!(counts().await, ScheduleCounts { active: 60, paused: 0 });
    let now_ms = fixture.store.now_ms();
    let (day, hour) = (86_400_000, 3_600_000);
    let spans = [(now_ms, now_ms + hour), (now_ms + hour, now_ms + day + hour)];
    assert_eq!(schedules.upcoming_in(&spans).await.unwrap(), [0, 60]);

    let mail = ScheduleFilter { queue: Some("mail".to_owned()), ..ScheduleFilter::default() };
    assert_eq!(schedules.pause_many(&mail, Some("moving")).await.unwrap(), 20);
    assert_eq!(schedules.pause_many(&mail, Some("again")).await.unwrap(), 0);
    assert_eq!(counts().await, ScheduleCounts { active: 40, paused: 20 });
    assert_eq!(schedules.upcoming_between(spans[1].0, spans[1].1).await.unwrap(), 40);
    let paused = ScheduleFilter { paused: Some(true), ..ScheduleFilter::default() };
    assert_eq!(fixture.ids(paused.clone(), 7).await.len(), 20);
    let one = schedules.find(&id("07")).await.unwrap().unwrap();
    assert_eq!(one.progress.reason.as_deref(), Some("moving"));

    assert_eq!(schedules.resume_many(&ScheduleFilter::default()).await.unwrap(), 20);
    assert_eq!(fixture.ids(paused, 7).await.len(), 0);
    let one = schedules.find(&id("07")).await.unwrap().unwrap();
    assert_eq!((one.progress.is_paused, one.progress.reason), (false, None));
}
