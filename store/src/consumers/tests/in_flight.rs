//! Queues that bound how many jobs are out: a job waits until a place is free, and nothing else does.

use super::*;

/// A queue of which so many jobs may be out, and a queue `free` beside.
async fn limited(most: u32) -> Fixture {
    let fixture = Fixture::new().await;
    let limits = [("*".to_owned(), Some(most)), ("free".to_owned(), None)];
    fixture.store.keep_queue_in_flight(&limits).await.unwrap();
    fixture
}

/// The pops of another program.
async fn other(fixture: &Fixture) -> Consumers {
    let settings = Redis::new(fixture.server.url());
    let store = Store::open(&settings, &["main".to_owned()], Arc::new(Unobserved)).await.unwrap();
    let (rules, stop) = (LateRules::default(), CancellationToken::new());
    Consumers::new(Arc::new(store), rules, Arc::new(()), stop)
}

async fn finish(consumers: &Consumers, job: &Popped) -> LeaseVerdict {
    let (id, lease, action) = (job.id.clone(), job.lease.clone(), LeaseAction::Finish);
    let answers = consumers.acknowledge(&[Acknowledgement { id, lease, action }]).await;
    answers[0].as_ref().unwrap().verdict
}

/// Pops and finishes until nothing comes. Returns the ids, and the most jobs that were out at once
/// as far as `out` counts.
async fn work(consumers: &Consumers, out: &Mutex<(usize, usize)>) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        let jobs = consumers.pop(&request(3, Duration::from_secs(2))).await.unwrap().sent();
        if jobs.is_empty() {
            return done;
        }
        {
            let mut out = out.lock();
            out.0 += jobs.len();
            out.1 = out.1.max(out.0);
        }
        for job in jobs {
            assert_eq!(job.state.attempt, 1, "nothing is burned");
            // Before the place is given back.
            out.lock().0 -= 1;
            assert_eq!(finish(consumers, &job).await, LeaseVerdict::Finished);
            done.push(job.id.to_string());
        }
    }
}

#[tokio::test]
async fn two_programs_share_the_places_of_a_queue() {
    let fixture = limited(4).await;
    for n in 0..60 {
        fixture.add(&format!("job-{n}"), Due::In(0)).await;
    }
    let (other, out) = (other(&fixture).await, Mutex::new((0, 0)));
    let (mine, theirs, more) =
        tokio::join!(work(&fixture.consumers, &out), work(&other, &out), work(&other, &out));
    let mut ids = [mine, theirs, more].concat();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 60, "none is lost, none comes twice");
    let most = out.lock().1;
    assert!(most <= 4, "{most} were out");
    assert!(fixture.store.reader.limited().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_full_queue_hands_nothing_out_and_others_do_not_wait() {
    let fixture = limited(2).await;
    for id in ["first", "second", "third", "fourth"] {
        fixture.add(id, Due::In(0)).await;
    }
    let out = fixture.pop(100, Duration::ZERO).await.sent();
    assert_eq!(out.len(), 2, "as many as have places");
    assert!(fixture.pop(100, Duration::ZERO).await.is_empty());
    let other = other(&fixture).await;
    assert!(other.pop(&request(1, Duration::ZERO)).await.unwrap().is_empty());
    assert_eq!(fixture.counts().await, [0, 2, 2, 0], "the others are ready");
    let limited = fixture.store.reader.limited().await.unwrap();
    assert_eq!(limited.len(), 1, "{limited:?}");
    let named = (limited[0].set.as_str(), limited[0].pattern.as_str(), limited[0].waiting);
    assert_eq!(named, ("=orders.Close-1", "*", 2));

    let free = NewJob::new(Job::for_queue("free", "x".to_owned()), Due::In(0));
    fixture.schedule(free.id("free".parse().unwrap())).await;
    let queues = vec![QUEUE.to_owned(), "free".to_owned()];
    let asked = PopRequest { queues, ..request(10, Duration::ZERO) };
    let jobs = fixture.consumers.pop(&asked).await.unwrap().sent();
    assert_eq!(jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["free"]);
    let waiting: Vec<&str> = ["first", "second", "third", "fourth"]
        .into_iter()
        .filter(|id| out.iter().all(|job| job.id.as_str() != *id))
        .collect();
    assert_eq!(fixture.act(Action::Cancel, waiting[0]).await, Verdict::Cancelled);

    // Each end of a lease gives its place back.
    assert_eq!(fixture.verdict(&out[0], LeaseAction::Finish).await, LeaseVerdict::Finished);
    let next = fixture.take().await;
    assert_eq!(next.id.as_str(), waiting[1]);
    let release = LeaseAction::Release { wait_ms: 0 };
    assert_eq!(fixture.verdict(&next, release).await, LeaseVerdict::Released);
    let again = fixture.take().await;
    assert_eq!(fixture.verdict(&again, fail(None)).await, LeaseVerdict::Dead);
    assert_eq!(fixture.counts().await, [0, 0, 1, 1]);
}

#[tokio::test]
async fn a_pop_that_waits_is_woken_by_a_place_that_comes_free() {
    let fixture = limited(1).await;
    for id in ["first", "second", "third"] {
        fixture.add(id, Due::In(0)).await;
    }
    let first = fixture.take().await;
    let begun = clock::now();
    let (second, ()) = tokio::join!(fixture.pop(1, Duration::from_secs(20)), async {
        assert_eq!(finish(&fixture.consumers, &first).await, LeaseVerdict::Finished);
    });
    let second = second.sent().remove(0);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    // Another program gives the place back.
    let (other, begun) = (other(&fixture).await, clock::now());
    let (third, ()) = tokio::join!(fixture.pop(1, Duration::from_secs(20)), async {
        assert_eq!(finish(&other, &second).await, LeaseVerdict::Finished);
    });
    assert_eq!(third.sent().len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_place_of_a_lease_lasts_as_long_as_the_lease() {
    let fixture = limited(1).await;
    for id in ["first", "second"] {
        fixture.add(id, Due::In(0)).await;
    }
    let asked = PopRequest { ttr_ms: Some(3000), ..request(1, Duration::ZERO) };
    let first = fixture.consumers.pop(&asked).await.unwrap().sent().remove(0);
    let begun = clock::now();
    let touched = fixture.verdict(&first, LeaseAction::Touch { ttr_ms: 6000 }).await;
    assert_eq!(touched, LeaseVerdict::Touched);
    let jobs = fixture.pop(1, Duration::from_secs(20)).await.sent();
    let waited = begun.elapsed();
    assert_eq!(jobs.len(), 1);
    assert!((Duration::from_millis(5900)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn a_lease_that_is_prolonged_and_ended_in_one_call_has_no_place() {
    let fixture = limited(1).await;
    fixture.add("x", Due::In(0)).await;
    let job = fixture.take().await;
    let of = |action| Acknowledgement { id: job.id.clone(), lease: job.lease.clone(), action };
    let touch = || LeaseAction::Touch { ttr_ms: 60_000 };
    let all = [of(touch()), of(LeaseAction::Finish), of(touch())];
    fixture.consumers.acknowledge(&all).await.into_iter().for_each(|answer| {
        answer.unwrap();
    });
    let limit = fixture.store.places_of_queue(QUEUE).unwrap();
    let call = crate::store::places::PlaceCall::new(&limit);
    assert_eq!(fixture.store.places(&[call]).await.unwrap()[0].free, 1);
}

#[tokio::test]
async fn a_job_that_reached_nobody_gives_its_place_back() {
    let fixture = limited(1).await;
    fixture.add("x", Due::In(0)).await;
    drop(fixture.pop(1, Duration::ZERO).await);
    let jobs = fixture.pop(1, Duration::from_secs(20)).await.sent();
    assert_eq!(jobs.len(), 1);
}

#[tokio::test]
async fn the_place_of_a_job_that_was_ended_by_its_id_is_found() {
    let fixture = limited(1).await;
    for id in ["first", "second"] {
        fixture.add(id, Due::In(0)).await;
    }
    let first = fixture.take().await;
    // Whoever finishes it by its id does not know the limit.
    assert_eq!(fixture.act(Action::Finish, first.id.as_str()).await, Verdict::Finished);
    let jobs = fixture.pop(1, Duration::from_secs(20)).await.sent();
    assert_eq!(jobs.len(), 1, "the lease would last longer than the pop waits");
}

#[tokio::test]
async fn pops_that_do_not_wait_and_are_rare_find_the_place_of_a_job_that_was_ended_by_its_id() {
    let fixture = limited(1).await;
    for id in ["first", "second"] {
        fixture.add(id, Due::In(0)).await;
    }
    let first = fixture.take().await;
    assert_eq!(fixture.act(Action::Finish, first.id.as_str()).await, Verdict::Finished);
    let begun = clock::now();
    loop {
        // Nothing is known of the pop before: it was longer ago, or in another process.
        let (store, rules) = (fixture.store.clone(), LateRules::default());
        let rare = Consumers::new(store, rules, Arc::new(()), CancellationToken::new());
        if rare.pop(&request(1, Duration::ZERO)).await.unwrap().sent().len() == 1 {
            break;
        }
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(20), "the lease would last longer than {waited:?}");
    }
}

#[tokio::test]
async fn no_place_is_given_back_while_its_job_is_out() {
    let fixture = limited(2).await;
    for id in ["first", "second"] {
        fixture.add(id, Due::In(0)).await;
    }
    let out = fixture.pop(2, Duration::ZERO).await.sent();
    let limit = fixture.store.places_of_queue(QUEUE).unwrap();
    assert_eq!(fixture.store.verify_places(&limit).await.unwrap(), 0);
    fixture.act(Action::Finish, out[0].id.as_str()).await;
    assert_eq!(fixture.store.verify_places(&limit).await.unwrap(), 1);
    assert_eq!(fixture.store.verify_places(&limit).await.unwrap(), 0);
}

#[tokio::test]
async fn the_namespace_keeps_the_numbers_of_those_who_declare_them() {
    let fixture = limited(7).await;
    let other = Store::attach(&Redis::new(fixture.server.url())).await.unwrap();
    let most = |queue: &str| other.places_of_queue(queue).map(|limit| limit.most());
    assert_eq!((most(QUEUE), most("free")), (Some(7), None));
    assert!(other.limit_of_queue(QUEUE).is_none() && other.has_queue_limits());
    fixture.store.keep_queue_in_flight(&[("*".to_owned(), None)]).await.unwrap();
    assert!(fixture.store.places_of_queue(QUEUE).is_none());
    other.reread().await.unwrap();
    assert!(other.places_of_queue(QUEUE).is_none());
}

#[tokio::test]
async fn a_rate_and_a_number_of_places_apply_together() {
    let fixture = limited(2).await;
    let rate = crate::policy::limit::Rate::new(1, 3_600_000_000, Some(3));
    fixture.store.keep_queue_limits(&[("*".to_owned(), Some(rate))]).await.unwrap();
    for n in 0..5 {
        fixture.add(&format!("job-{n}"), Due::In(0)).await;
    }
    let out = fixture.pop(10, Duration::ZERO).await.sent();
    assert_eq!(out.len(), 2, "a job without a place takes no turn");
    for job in &out {
        assert_eq!(finish(&fixture.consumers, job).await, LeaseVerdict::Finished);
    }
    assert_eq!(fixture.pop(10, Duration::ZERO).await.sent().len(), 1, "the last turn");
    assert!(fixture.pop(10, Duration::ZERO).await.is_empty());
}

/// Waits until so many places of the queue are free.
async fn until_free(fixture: &Fixture, free: usize) {
    let limit = fixture.store.places_of_queue(QUEUE).unwrap();
    let begun = clock::now();
    loop {
        let call = crate::store::places::PlaceCall::new(&limit);
        // Before, Redis may refuse.
        let found = fixture.store.places(&[call]).await.ok().map(|answers| answers[0].free);
        if found == Some(free) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(40), "{found:?} are free");
    }
}

/// Redis refuses each change of the places.
async fn break_places(fixture: &Fixture) -> String {
    let limit = fixture.store.places_of_queue(QUEUE).unwrap();
    let key = fixture.store.keys().places(limit.name());
    fixture.server.order(&["SET", &key, "no set of places"]).await.unwrap();
    key
}

#[tokio::test]
async fn a_lease_is_prolonged_with_its_place_although_redis_refused_once() {
    let fixture = limited(3).await;
    fixture.add("x", Due::In(0)).await;
    let job = fixture.take().await;
    let key = break_places(&fixture).await;
    let touch = LeaseAction::Touch { ttr_ms: 60_000 };
    assert_eq!(fixture.verdict(&job, touch).await, LeaseVerdict::Touched);
    // With its places.
    fixture.server.order(&["DEL", &key]).await.unwrap();
    until_free(&fixture, 2).await;
}

#[tokio::test]
async fn the_places_of_a_call_without_an_answer_come_back_before_their_end() {
    use super::super::in_flight::TakenPlaces;
    use crate::store::places::PlaceCall;
    use crate::store::places::place::Place;
    let fixture = limited(3).await;
    let limit = fixture.store.places_of_queue(QUEUE).unwrap();
    let taken = (0..3).map(|number| (Place::of_call([7; 8], number), Duration::from_secs(60)));
    let call = PlaceCall { taken: taken.collect(), ..PlaceCall::new(&limit) };
    assert_eq!(fixture.store.places(&[call]).await.unwrap()[0].free, 0);
    let taken = TakenPlaces::new(limit, [7; 8], 3);
    fixture.consumers.give_back_later(QUEUE, taken);
    until_free(&fixture, 3).await;
}
