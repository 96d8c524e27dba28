//! Queues with limits: jobs wait for their turns, and nothing else does.

use super::*;
use crate::policy::limit::Rate;
use crate::store::limits::{AskedTurns, Limit};

const SECOND: u64 = 1_000_000;

/// A queue with this rate, and a queue `free` beside.
async fn limited(rate: Rate) -> Fixture {
    let fixture = Fixture::new().await;
    let limits = [("*".to_owned(), Some(rate)), ("free".to_owned(), None)];
    fixture.store.keep_queue_limits(&limits).await.unwrap();
    fixture
}

/// Pops until nothing comes: when each job came, and its id.
async fn take_all(consumers: &Consumers) -> Vec<(Instant, String)> {
    let mut taken = Vec::new();
    loop {
        let jobs = consumers.pop(&request(4, Duration::from_secs(4))).await.unwrap().sent();
        if jobs.is_empty() {
            return taken;
        }
        for job in jobs {
            assert_eq!(job.state.attempt, 1, "nothing is burned");
            taken.push((clock::now(), job.id.to_string()));
        }
    }
}

#[tokio::test]
async fn two_programs_share_the_turns_of_a_queue() {
    let fixture = limited(Rate::new(20, SECOND, Some(2))).await;
    for n in 0..30 {
        fixture.add(&format!("job-{n}"), Due::In(0)).await;
    }
    let settings = Redis::new(fixture.server.url());
    let store = Store::open(&settings, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap();
    let (rules, stop) = (LateRules::default(), CancellationToken::new());
    let other = Consumers::new(Arc::new(store), rules, Arc::new(()), stop);
    let begun = clock::now();
    let (mine, theirs) = tokio::join!(take_all(&fixture.consumers), take_all(&other));
    let mut all = [mine, theirs].concat();
    all.sort_unstable();
    let mut ids: Vec<&str> = all.iter().map(|(_, id)| id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((all.len(), ids.len()), (30, 30), "none is lost, none comes twice");
    // Two turns at once, and 20 a second after. A turn may be used late, never early: those of both
    // programs count from the beginning.
    for (number, (time, _)) in (1_u32..).zip(&all) {
        let (turn, came) = (Duration::from_millis(50) * number.saturating_sub(2), *time - begun);
        assert!(came + Duration::from_millis(10) >= turn, "job {number} came {came:?} after");
    }
}

#[tokio::test]
async fn turns_without_a_job_are_given_back_and_other_queues_do_not_wait() {
    let fixture = limited(Rate::new(1, 3600 * SECOND, Some(2))).await;
    for id in ["first", "second"] {
        fixture.add(id, Due::In(0)).await;
        let jobs = fixture.pop(100, Duration::ZERO).await.sent();
        assert_eq!(jobs.len(), 1, "{id}");
    }
    fixture.add("third", Due::In(0)).await;
    assert!(fixture.pop(100, Duration::ZERO).await.is_empty());
    assert_eq!(fixture.counts().await, [0, 1, 2, 0], "it is ready");
    let limited = fixture.store.reader.limited().await.unwrap();
    assert_eq!(limited.len(), 1, "{limited:?}");
    let named = (limited[0].set.as_str(), limited[0].pattern.as_str(), limited[0].waiting);
    assert_eq!(named, ("=orders.Close-1", "*", 1));

    let free = NewJob::new(Job::for_queue("free", "x".to_owned()), Due::In(0));
    fixture.schedule(free.id("free".parse().unwrap())).await;
    let queues = vec![QUEUE.to_owned(), "free".to_owned()];
    let asked = PopRequest { queues, ..request(10, Duration::ZERO) };
    let jobs = fixture.consumers.pop(&asked).await.unwrap().sent();
    assert_eq!(jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["free"]);
    assert_eq!(fixture.act(Action::Cancel, "third").await, Verdict::Cancelled);
}

#[tokio::test]
async fn a_pop_that_waits_is_woken_by_the_next_turn() {
    let fixture = limited(Rate::new(1, 3 * SECOND, Some(1))).await;
    for id in ["first", "second"] {
        fixture.add(id, Due::In(0)).await;
    }
    let begun = clock::now();
    assert_eq!(fixture.pop(1, Duration::ZERO).await.sent().len(), 1);
    assert!(fixture.pop(1, Duration::ZERO).await.is_empty());
    assert_eq!(fixture.pop(1, Duration::from_secs(20)).await.sent().len(), 1);
    let waited = begun.elapsed();
    let (least, most) = (Duration::from_millis(2950), Duration::from_secs(15));
    assert!((least..most).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn the_namespace_keeps_the_limits_of_those_who_declare_them() {
    let fixture = limited(Rate::new(7, SECOND, None)).await;
    let settings = Redis::new(fixture.server.url());
    let other = Store::attach(&settings).await.unwrap();
    let rate = |queue: &str| other.limit_of_queue(queue).map(|limit| limit.rate());
    assert_eq!((rate(QUEUE), rate("free")), (Some(Rate::new(7, SECOND, None)), None));
    fixture.store.keep_queue_limits(&[("*".to_owned(), None)]).await.unwrap();
    assert!(fixture.store.limit_of_queue(QUEUE).is_none());
    other.reread().await.unwrap();
    assert!(other.limit_of_queue(QUEUE).is_none());
}

#[tokio::test]
async fn a_job_whose_turn_comes_too_late_takes_none() {
    let fixture = Fixture::new().await;
    let limit = Limit::of_targets("main", "a", Rate::new(1, 60 * SECOND, Some(1)));
    let take = async |waits_us: Vec<Option<i64>>| {
        let asked = [AskedTurns { limit: limit.clone(), waits_us }];
        fixture.store.take_turns(&asked).await.unwrap()
    };
    let first = take(vec![None, Some(90_000_000), Some(90_000_000), None]).await;
    let ahead: Vec<Option<i64>> =
        first.at_us.iter().map(|at_us| at_us.map(|us| us - first.now_us)).collect();
    assert_eq!(ahead, [Some(0), Some(60_000_000), None, Some(120_000_000)]);
    let next = take(vec![Some(10), None]).await;
    let after = first.now_us + 180_000_000;
    assert_eq!(next.at_us, [None, Some(after)], "the line is no longer than its turns");

    // Turns go back where they are the last of the line.
    let asked = [AskedTurns { limit: limit.clone(), waits_us: vec![Some(10), None] }];
    assert_eq!(fixture.store.untake_turns(&asked, &first).await.unwrap(), 0);
    assert_eq!(fixture.store.untake_turns(&asked, &next).await.unwrap(), 1);
    assert_eq!(take(vec![None]).await.at_us, [Some(after)]);
}

#[tokio::test]
async fn the_turns_go_back_with_the_clock() {
    let fixture = limited(Rate::new(1, SECOND, Some(1))).await;
    let mut raw = crate::raw_link::raw_link(fixture.server.url()).await;
    let (key, hour_us) = (fixture.store.keys().limits(), 3600 * 1_000_000);
    let now_us = fixture.store.read_clock().await.unwrap();
    let limit = Limit::of_targets("main", "a", Rate::new(1, SECOND, Some(1)));
    // The clock was an hour ahead, and 30 turns were taken then.
    let (since_ms, until_us) = ((now_us + hour_us) / 1000, now_us + hour_us + 30_000_000);
    let of_queue = fixture.store.limit_of_queue(QUEUE).unwrap();
    for limit in [&limit, &of_queue] {
        let field = format!("{until_us} {since_ms} {}", limit.rate());
        redis::cmd("HSET")
            .arg(&key)
            .arg(limit.name())
            .arg(field)
            .exec_async(&mut raw)
            .await
            .unwrap();
    }
    let asked = [AskedTurns { limit, waits_us: vec![None] }];
    let taken = fixture.store.take_turns(&asked).await.unwrap();
    let ahead_us = taken.at_us[0].unwrap() - taken.now_us;
    assert!((0..30_001_000).contains(&ahead_us), "{ahead_us}");
    let (turns, wait) = fixture.store.take_turns_now(&of_queue, 1).await.unwrap();
    assert!(turns == 0 && wait <= Duration::from_secs(1), "{turns} {wait:?}");
}

#[tokio::test]
async fn instances_with_other_rates_begin_no_line_anew_by_turns() {
    let fixture = Fixture::new().await;
    let limit = |span| Limit::of_targets("main", "a", Rate::new(1, span * SECOND, Some(1)));
    let (slow, fast) = (limit(60), limit(30));
    let take = async |limit: &Limit, turns| {
        let asked = [AskedTurns { limit: limit.clone(), waits_us: vec![None; turns] }];
        fixture.store.take_turns(&asked).await.unwrap()
    };
    let (first, other) = (take(&slow, 3).await, take(&fast, 1).await);
    assert_eq!(other.at_us, [Some(other.now_us + 30_000_000)], "a line of its own");
    assert_eq!(take(&slow, 1).await.at_us, [Some(first.now_us + 180_000_000)]);
    assert_eq!(take(&fast, 1).await.at_us, [Some(other.now_us + 60_000_000)]);
    let limited = fixture.store.limited().await.unwrap();
    assert_eq!(limited.len(), 1, "{limited:?}");
}
