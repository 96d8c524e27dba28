//! The places of limits on a private Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

use dwell_testkit::servers::{RedisOptions, RedisServer};

use super::*;
use crate::config::Redis;
use crate::job::{Action, Due, Job, Verdict};
use crate::policy::limit::{Turn, mark_of};
use crate::request::{Act, NewJob};
use crate::store::jobs::settle::{Completion, Release};
use crate::store::{Store, Unobserved};

const MINUTE: Duration = Duration::from_secs(60);

struct Fixture {
    server: RedisServer,
    store: Store,
    limit: PlaceLimit,
}

impl Fixture {
    async fn new(most: u32) -> Fixture {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let settings = Redis { buckets: 1, ..Redis::new(server.url()) };
        let brokers = ["main".to_owned()];
        let store = Store::open(&settings, &brokers, Arc::new(Unobserved)).await.unwrap();
        Fixture { server, store, limit: PlaceLimit::of_targets("main", "a", most) }
    }

    async fn call(&self, call: PlaceCall) -> PlaceAnswer {
        self.store.places(&[call]).await.unwrap().remove(0)
    }

    /// Takes places under these numbers.
    async fn take(&self, numbers: std::ops::Range<u32>, span: Duration) -> Vec<bool> {
        let taken = numbers.map(|number| (Place::of_call([1; 8], number), span)).collect();
        self.call(PlaceCall { taken, ..PlaceCall::new(&self.limit) }).await.taken
    }

    async fn free(&self) -> usize {
        self.call(PlaceCall::new(&self.limit)).await.free
    }

    async fn add(&self, id: &str) {
        let job = Job::new("main", dwell_core::Destination::new("a"), "x");
        let new_job = NewJob::new(job, Due::In(0)).id(id.parse().unwrap());
        self.store.jobs.schedule(&[new_job]).await.unwrap();
    }
}

#[tokio::test]
async fn places_are_taken_up_to_the_limit_and_a_repeat_takes_the_same() {
    let fixture = Fixture::new(3).await;
    assert_eq!(fixture.take(0..2, MINUTE).await, [true, true]);
    assert_eq!(fixture.take(0..4, MINUTE).await, [true, true, true, false]);
    assert_eq!((fixture.take(0..3, MINUTE).await, fixture.free().await), (vec![true; 3], 0));
    let back = vec![Place::of_call([1; 8], 1), Place::of_call([1; 8], 7)];
    let taken = vec![(Place::of_call([2; 8], 0), MINUTE), (Place::of_call([2; 8], 1), MINUTE)];
    let call = PlaceCall { back, taken, ..PlaceCall::new(&fixture.limit) };
    let answer = fixture.call(call).await;
    assert_eq!((answer.taken, answer.free), (vec![true, false], 0));
    assert!(answer.next_end.is_some_and(|end| end <= MINUTE && end > MINUTE / 2));
    // What is out counts, whether there is room or not.
    let kept = vec![(Place::of_call([3; 8], 0), MINUTE)];
    fixture.call(PlaceCall { kept, ..PlaceCall::new(&fixture.limit) }).await;
    fixture
        .call(PlaceCall { back: vec![Place::of_call([3; 8], 0)], ..PlaceCall::new(&fixture.limit) })
        .await;
    assert_eq!((fixture.free().await, fixture.take(4..5, MINUTE).await), (0, vec![false]));
}

#[tokio::test]
async fn a_place_comes_back_at_its_end_and_not_before() {
    let fixture = Fixture::new(1).await;
    let begun = clock::now();
    assert_eq!(fixture.take(0..1, Duration::from_millis(300)).await, [true]);
    while fixture.take(1..2, MINUTE).await != [true] {
        assert!(begun.elapsed() < MINUTE);
    }
    assert!(begun.elapsed() >= Duration::from_millis(299), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_full_redis_takes_places_and_has_jobs_be_due() {
    let fixture = Fixture::new(1).await;
    fixture.add("waits").await;
    let queue = &fixture.store.jobs;
    let mut job = queue.claim(0, "main", MINUTE, 10, 1 << 20).await.unwrap().jobs.remove(0).token();
    let now_us = fixture.store.read_clock().await.unwrap();
    let turn = Turn::new(now_us + 60_000_000, now_us, mark_of("main a"));
    job.state.turn = turn;
    let release = Release { job, pause_ms: 60_000, unpublished: true };
    queue.release(0, "main", &[release]).await.unwrap();
    fixture.server.order(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    fixture.server.order(&["SET", "x", "x"]).await.unwrap_err();
    assert_eq!(fixture.take(0..2, MINUTE).await, [true, false]);
    let back = vec![Place::of_call([1; 8], 0)];
    let answer = fixture.call(PlaceCall { back, ..PlaceCall::new(&fixture.limit) }).await;
    assert_eq!(answer.free, 1);
    let waiting: [(JobId, Turn); 1] = [("waits".parse().unwrap(), turn)];
    assert_eq!(fixture.store.hasten(0, "main", &waiting).await.unwrap(), 1);
}

#[tokio::test]
async fn processes_tell_who_waits_and_which_number_they_know() {
    let fixture = Fixture::new(3).await;
    let tell = async |teller: &str, most, waiting| {
        let limit = PlaceLimit::of_targets("main", "a", most);
        let teller = teller.to_owned();
        fixture.call(PlaceCall { teller, waiting, ..PlaceCall::new(&limit) }).await;
    };
    let told = async || {
        let limited = fixture.store.limited().await.unwrap();
        limited.into_iter().map(|one| (one.set, one.pattern, one.waiting)).collect::<Vec<_>>()
    };
    tell("one", 3, Waiting::Count(5)).await;
    tell("two", 3, Waiting::Count(2)).await;
    assert_eq!(told().await, [("main".to_owned(), "a".to_owned(), 7)]);
    let limits = [fixture.limit.clone()];
    assert!(fixture.store.other_places(&limits).await.unwrap().is_empty());
    tell("two", 4, Waiting::Count(0)).await;
    assert_eq!(fixture.store.other_places(&limits).await.unwrap(), ["main a"]);
    tell("one", 3, Waiting::Count(0)).await;
    assert!(told().await.is_empty());
}

#[tokio::test]
async fn a_claimed_job_is_out_until_it_is_settled() {
    let fixture = Fixture::new(5).await;
    for id in ["a", "b", "c"] {
        fixture.add(id).await;
    }
    let queue = &fixture.store.jobs;
    let claim = queue.claim(0, "main", MINUTE, 10, 1 << 20).await.unwrap();
    let place = |at: usize| {
        let job = &claim.jobs[at];
        let of_claim = (job.token.lease.nonce, job.token.position);
        Place::of_claim(0, of_claim, job.state.attempt, &job.id)
    };
    let taken = (0..3).map(|at| (place(at), MINUTE)).collect();
    let call = PlaceCall { taken, ..PlaceCall::new(&fixture.limit) };
    assert_eq!(fixture.call(call).await.taken, [true; 3]);
    let verify = async || fixture.store.verify_places(&fixture.limit).await.unwrap();
    assert_eq!(verify().await, 0);
    queue.complete(0, &[claim.jobs[0].token()], Completion::Fired).await.unwrap();
    queue.hold(0, &[(claim.jobs[1].token(), 60_000)]).await.unwrap();
    assert_eq!((verify().await, fixture.free().await), (1, 3), "a held job is out");
    let finish = Act::new(Action::Finish, claim.jobs[1].id.clone());
    assert_eq!(queue.act(&finish, &[]).await.unwrap().verdict, Verdict::Finished);
    let release = Release { job: claim.jobs[2].token(), pause_ms: 0, unpublished: true };
    queue.release(0, "main", &[release]).await.unwrap();
    assert_eq!((verify().await, fixture.free().await), (2, 5));
}

#[tokio::test]
async fn a_job_that_waits_is_hastened_unless_it_was_changed() {
    let fixture = Fixture::new(1).await;
    let ids = ["waits", "moved", "other"];
    for id in ids {
        fixture.add(id).await;
    }
    let queue = &fixture.store.jobs;
    let claim = queue.claim(0, "main", MINUTE, 10, 1 << 20).await.unwrap();
    assert_eq!(claim.jobs.len(), 3);
    let turn = Turn::new(claim.now_us + 60_000_000, claim.now_us, mark_of("main a"));
    let releases: Vec<Release> = claim
        .jobs
        .iter()
        .map(|job| {
            let mut job = job.token();
            job.state.turn = turn;
            Release { job, pause_ms: 60_000, unpublished: true }
        })
        .collect();
    queue.release(0, "main", &releases).await.unwrap();
    let mut moved = Act::new(Action::Reschedule, "moved".parse().unwrap());
    moved.due = Some(Due::In(60_000));
    assert_eq!(queue.act(&moved, &[]).await.unwrap().verdict, Verdict::Rescheduled);
    let other_turn = Turn::new(claim.now_us + 60_000_000, claim.now_us, mark_of("main b"));
    let jobs: Vec<(JobId, Turn)> =
        ids.map(|id| (id.parse().unwrap(), if id == "other" { other_turn } else { turn })).to_vec();
    assert_eq!(fixture.store.hasten(0, "main", &jobs).await.unwrap(), 1);
    assert_eq!(fixture.store.hasten(0, "main", &jobs).await.unwrap(), 0, "it is due");
    let claim = queue.claim(0, "main", MINUTE, 10, 1 << 20).await.unwrap();
    let claimed: Vec<&str> = claim.jobs.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(claimed, ["waits"]);
}

#[test]
fn a_field_says_how_many_jobs_wait_and_since_when() {
    let now_us = 1_000_000_000;
    let read = |field: &str, told_us: i64, rest: &str| {
        Told::read(field, &format!("{} {rest}", told_us + TOLD_US), now_us)
    };
    let told = |waiting| Told {
        name: "main a b.*".to_owned(),
        most: 10,
        waiting,
        since_ms: if waiting == 0 { 0 } else { 900 },
    };
    let field = "main a b.*\0in_flight 0a";
    assert_eq!(read(field, now_us, "900 10 3"), Some(told(3)));
    assert_eq!(read(field, now_us, "0 10 0"), Some(told(0)));
    let late = read(field, now_us - LIVE_US - 1, "900 10 3").unwrap();
    assert_eq!((late.waiting, late.most), (0, 10), "nobody says so any more");
    for (field, told_us, rest) in [
        ("main a b.*", now_us, "900 10 3"),
        ("main a b.*\x001/1/1", now_us, "900 10 3"),
        (field, now_us - TOLD_US - 1, "900 10 3"),
        (field, now_us, "900 10"),
        (field, now_us, "900 -1 3"),
        (field, now_us, ""),
    ] {
        assert_eq!(read(field, told_us, rest), None, "{field}: {rest}");
    }
}
