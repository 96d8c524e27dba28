//! Pops that ask at the same time share calls.

use std::collections::HashSet;
use std::task::Poll;

use futures_util::future::join_all;
use futures_util::poll;

use super::*;
use crate::store::CallObserver;
use crate::store::error::Class;
use crate::store::jobs::pop::Portion;
use crate::store::scripts::Name;

const LONG: Duration = Duration::from_secs(60);

/// The number of calls of `pop`.
#[derive(Default)]
struct Calls(Mutex<usize>);

impl CallObserver for Calls {
    fn called(&self, script: Name, _: Duration) {
        *self.0.lock() += usize::from(script == Name::Pop);
    }

    fn failed(&self, _: Class) {}
}

/// A store with so many buckets whose calls of `pop` are counted.
async fn counted(buckets: u16) -> (Fixture, Arc<Calls>) {
    let (server, calls) =
        (RedisServer::start(RedisOptions::default()).await.unwrap(), Arc::new(Calls::default()));
    let settings = Redis { buckets, ..Redis::new(server.url()) };
    let store =
        Arc::new(Store::open(&settings, &["main".to_owned()], calls.clone()).await.unwrap());
    let consumers =
        Consumers::new(store.clone(), LateRules::default(), Arc::new(()), CancellationToken::new());
    (Fixture { server, store, consumers }, calls)
}

/// Stores so many due jobs, the first one the oldest.
async fn fill(fixture: &Fixture, count: i64) {
    let now_ms = crate::clock::wall_ms();
    let new_job = |at: i64| {
        NewJob::new(Job::for_queue(QUEUE, "x"), Due::At(now_ms - 60_000 + at)).id(format!(
            "job-{at}"
        )
        .parse()
        .unwrap())
    };
    let new_jobs: Vec<NewJob> = (0..count).map(new_job).collect();
    let scheduled = fixture.store.jobs.schedule(&new_jobs).await.unwrap();
    fixture.consumers.wake_all(scheduled.wake_ups).await;
}

fn ids(jobs: &[Popped]) -> Vec<&str> {
    jobs.iter().map(|job| job.id.as_str()).collect()
}

#[tokio::test]
async fn many_consumers_that_pop_one_job_each_need_few_calls() {
    let (fixture, calls) = counted(16).await;
    fill(&fixture, 2000).await;
    let popped = Mutex::new(HashSet::new());
    let consume = async || {
        loop {
            let jobs = fixture.pop(1, Duration::ZERO).await.sent();
            let Some(job) = jobs.into_iter().next() else { break };
            assert_eq!(job.state.attempt, 1, "{} came twice", job.id);
            popped.lock().insert(job.id);
        }
    };
    join_all((0..64).map(|_| consume())).await;
    let (count, calls) = (popped.lock().len(), *calls.0.lock());
    assert_eq!((count, fixture.counts().await), (2000, [0, 0, 2000, 0]));
    assert!(10 * calls <= 3 * 2000, "{calls} calls for 2000 jobs");
}

#[tokio::test]
async fn jobs_go_to_the_callers_in_their_order_each_with_its_own_lease() {
    let (fixture, calls) = counted(1).await;
    fill(&fixture, 20).await;
    // The first jobs are known from now on.
    fixture.take().await;
    *calls.0.lock() = 0;
    let asked = |at: u64| PopRequest {
        max: if at == 3 { 2 } else { 1 },
        ttr_ms: Some(1000 * (at + 10)),
        ..request(1, Duration::ZERO)
    };
    let consumers = &fixture.consumers;
    let pop = |at| {
        let asked = asked(at);
        async move { consumers.pop(&asked).await.unwrap().sent() }
    };
    let answers = join_all((0..6).map(pop)).await;
    let told: Vec<Vec<&str>> = answers.iter().map(|jobs| ids(jobs)).collect();
    assert_eq!(
        told,
        [
            vec!["job-1"],
            vec!["job-2"],
            vec!["job-3"],
            vec!["job-4", "job-5"],
            vec!["job-6"],
            vec!["job-7"]
        ]
    );
    assert_eq!(*calls.0.lock(), 2, "the first one waits for nobody, the others share a call");
    for (at, jobs) in (0..).zip(&answers) {
        assert!(jobs.iter().all(|job| job.lease.ttr_ms.div_ceil(1000) == at + 10), "{jobs:?}");
    }
    // Each lease is for its job alone.
    let (first, second) = (&answers[1][0], &answers[2][0]);
    let forged = Popped { lease: second.lease.clone(), ..first.clone() };
    assert_eq!(fixture.verdict(&forged, LeaseAction::Finish).await, LeaseVerdict::Stale);
    assert_eq!(fixture.verdict(first, LeaseAction::Finish).await, LeaseVerdict::Finished);
    assert_eq!(fixture.verdict(second, fail(Some(0))).await, LeaseVerdict::Failed);
    assert_eq!(fixture.counts().await, [0, 13, 6, 0]);
}

#[tokio::test]
async fn the_limits_of_a_consumer_hold_for_its_jobs_alone() {
    let (fixture, _) = counted(1).await;
    fill(&fixture, 9).await;
    let limits = PopLimits {
        ttr_ms: Some(5000),
        max_ttr_ms: 10_000,
        most: 2,
        most_bytes: 1 << 20,
        room: None,
    };
    let consumers = [
        PopLimits { room: Some(1), ..limits },
        PopLimits { most_bytes: 1, ..limits },
        limits,
        PopLimits { most: 1, ttr_ms: Some(1 << 40), ..limits },
    ];
    let pop = async || {
        let answer =
            fixture.store.jobs.pop_for([7; 8], 0, QUEUE, &consumers, Duration::ZERO).await.unwrap();
        let portions: Vec<usize> = answer.portions.iter().map(|portion| portion.jobs).collect();
        let spans: Vec<u32> =
            answer.jobs.iter().map(|job| job.lease.ttr_ms.div_ceil(1000)).collect();
        let ids: Vec<JobId> = answer.jobs.into_iter().map(|job| job.id).collect();
        (ids, portions, answer.portions[0], spans)
    };
    let (ids, portions, first, spans) = pop().await;
    assert_eq!((ids.len(), &portions[..], &spans[..]), (4, &[0, 1, 2, 1][..], &[5, 5, 5, 10][..]));
    assert_eq!(first, Portion { jobs: 0, is_cut: true });
    // What one of them gave back is not given to another.
    let back = &ids[1..2];
    assert_eq!(fixture.store.jobs.unpop([7; 8], Return::Due, 0, QUEUE, back).await.unwrap(), 1);
    let (rest, portions, ..) = pop().await;
    assert_eq!((rest.len(), portions), (3, vec![0, 1, 1, 1]));
    assert_eq!(fixture.store.jobs.unpop([7; 8], Return::Due, 0, QUEUE, &[]).await.unwrap(), 3);
    assert_eq!(fixture.counts().await, [0, 9, 0, 0]);
}

#[tokio::test]
async fn jobs_of_callers_that_go_away_during_their_call_are_popped_by_others() {
    let (fixture, _) = counted(2).await;
    let count = 60;
    fill(&fixture, count).await;
    let (mut handed_out, mut given_up, mut answered) = (HashSet::new(), 0, 0);
    let first = fixture.take().await;
    handed_out.insert(first.id);
    // Each time the callers go away after more steps of the runtime.
    for steps in 0..40 {
        let asked = request(1, Duration::ZERO);
        let mut pops: Vec<_> = (0..12).map(|_| Box::pin(fixture.consumers.pop(&asked))).collect();
        for pop in &mut pops {
            assert!(poll!(pop.as_mut()).is_pending());
        }
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        // The last one still looks at its answer, and waits for it in the last round.
        if let Some(pop) = pops.pop()
            && steps % 4 == 3
        {
            let answer = if steps == 39 { Poll::Ready(pop.await) } else { poll!(pop) };
            if let Poll::Ready(jobs) = answer {
                answered += 1;
                for job in jobs.unwrap().sent() {
                    assert!(handed_out.insert(job.id.clone()), "{} is handed out twice", job.id);
                }
            }
        }
        given_up += pops.len();
    }
    assert!(given_up > 400 && answered > 0);
    while handed_out.len() < usize::try_from(count).unwrap() {
        let jobs = fixture.pop(1, LONG).await.sent();
        assert_eq!(jobs.len(), 1, "{} of {count} jobs were handed out", handed_out.len());
        for job in jobs {
            assert!(handed_out.insert(job.id.clone()), "{} is handed out twice", job.id);
        }
    }
    assert!(fixture.pop(1, Duration::ZERO).await.is_empty());
}

#[tokio::test]
async fn jobs_past_their_end_do_not_hold_up_the_callers_beside_them() {
    let (fixture, calls) = counted(1).await;
    let now_ms = crate::clock::wall_ms();
    let new_job = |at: i64| {
        let is_over = at % 2 == 1;
        let job = Job { remove_at_ms: is_over.then_some(1), ..Job::for_queue(QUEUE, "x") };
        let id = format!("{}-{at}", if is_over { "over" } else { "live" });
        NewJob::new(job, Due::At(now_ms - 60_000 + at)).id(id.parse().unwrap())
    };
    let new_jobs: Vec<NewJob> = (0..40).map(new_job).collect();
    let scheduled = fixture.store.jobs.schedule(&new_jobs).await.unwrap();
    fixture.consumers.wake_all(scheduled.wake_ups).await;
    // The first jobs are known from now on.
    let first = fixture.take().await;
    *calls.0.lock() = 0;
    let asked = request(1, Duration::ZERO);
    let answers = join_all((0..8).map(|_| fixture.consumers.pop(&asked))).await;
    let mut handed_out = HashSet::from([first.id]);
    for jobs in answers {
        let jobs = jobs.unwrap().sent();
        assert!(jobs.len() == 1 && jobs[0].id.as_str().starts_with("live"), "{jobs:?}");
        handed_out.extend(jobs.into_iter().map(|job| job.id));
    }
    let calls = *calls.0.lock();
    assert!(handed_out.len() == 9 && calls <= 12, "{handed_out:?} in {calls} calls");
    let [_, _, reserved, dead] = fixture.counts().await;
    assert_eq!((reserved, dead), (9, 0), "the others are removed");
}

#[tokio::test]
async fn callers_that_stand_in_the_line_of_a_paused_queue_get_nothing() {
    let (fixture, calls) = counted(1).await;
    fill(&fixture, 20).await;
    // The first jobs are known from now on.
    fixture.take().await;
    fixture.store.admin.pause(QUEUE, 1).await.unwrap();
    *calls.0.lock() = 0;
    let pop_all = async || {
        let asked = request(1, Duration::ZERO);
        let answers = join_all((0..6).map(|_| fixture.consumers.pop(&asked))).await;
        answers.into_iter().map(|jobs| jobs.unwrap().sent().len()).sum::<usize>()
    };
    assert_eq!(pop_all().await, 0);
    let count = *calls.0.lock();
    assert!(count < 6, "the answer of a call holds for those in the line: {count}");
    fixture.consumers.resume(QUEUE).await.unwrap();
    assert_eq!((pop_all().await, fixture.counts().await), (6, [0, 13, 7, 0]));
}

#[tokio::test]
async fn an_error_reaches_each_caller() {
    let (fixture, _) = counted(1).await;
    fill(&fixture, 20).await;
    fixture.take().await;
    fixture.server.freeze().unwrap();
    let began = clock::now();
    let asked = request(1, Duration::ZERO);
    let answers = join_all((0..30).map(|_| fixture.consumers.pop(&asked))).await;
    let took = began.elapsed();
    fixture.server.thaw().unwrap();
    let classes: Vec<_> =
        answers.into_iter().map(|answer| answer.map(drop).map_err(|error| error.class)).collect();
    assert!(classes.iter().all(|class| *class == Err(Class::Timeout)), "{classes:?}");
    // A call has five seconds. Nobody waits for a second one that fails too.
    assert!(took < Duration::from_millis(9500), "{took:?}");
    // What the call popped nevertheless is given back.
    let mut rest = HashSet::new();
    while rest.len() < 19 {
        let jobs = fixture.pop(1, LONG).await.sent();
        assert_eq!(jobs.len(), 1);
        rest.extend(jobs.into_iter().map(|job| job.id));
    }
}
