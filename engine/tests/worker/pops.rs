//! The calls of a consumer of its own.

use dwell_engine::{ClaimedJob, LeaseVerdict, Pop};

use super::*;

#[tokio::test]
async fn a_fetched_job_is_finished_failed_released_or_prolonged() {
    let fixture = Fixture::new().await;
    let pop = async || {
        fixture
            .client
            .pop(&Pop::from_queue("empty").or_queue("q").max(5).ttr(CONDITION_TIMEOUT))
            .await
            .unwrap()
    };
    assert!(pop().await.is_empty());
    let id = fixture.add("q", NOW).await;
    let mut jobs = pop().await;
    let mut job = jobs.remove(0);
    assert_eq!((job.id(), job.attempt(), &job.job().body[..]), (&id, 1, &b"x"[..]));
    let deadline = job.deadline();
    let touched = job.touch(Some(2 * CONDITION_TIMEOUT)).await.unwrap();
    assert_eq!((touched.verdict, touched.until()), (LeaseVerdict::Touched, Some(job.deadline())));
    assert!(job.deadline() > deadline);
    assert_eq!(job.release(Duration::ZERO).await.unwrap().verdict, LeaseVerdict::Released);
    let job = pop().await.remove(0);
    // The array of the client, [0], was stored with the job.
    assert_eq!(job.fail("no").await.unwrap().verdict, LeaseVerdict::Failed);
    let job = pop().await.remove(0);
    assert_eq!((job.attempt(), job.due() <= job.deadline()), (3, true));
    // Another process ends the lease by its text.
    let lease = ClaimedJob::read(&job.lease().text()).unwrap();
    assert_eq!(
        fixture.client.finish_lease(&id, &lease).await.unwrap().verdict,
        LeaseVerdict::Finished
    );
    assert_eq!(job.finish().await.unwrap().verdict, LeaseVerdict::Fired);
    assert_eq!(job.retry_in(CONDITION_TIMEOUT, "late").await.unwrap().verdict, LeaseVerdict::Fired);
}

#[tokio::test]
async fn a_waiting_pop_hears_of_a_job_that_another_program_stores() {
    let fixture = Fixture::new().await;
    let (waiting, pop) = (fixture.client.clone(), Pop::from_queue("q").wait(CONDITION_TIMEOUT));
    let popped = tokio::spawn(async move { waiting.pop(&pop).await.unwrap() });
    let other = Client::connect(&fixture.config, &[]).await.unwrap();
    other.schedule(&NewJob::new(Job::for_queue("q", "x"), Due::In(20))).await.unwrap();
    assert_eq!(soon(popped).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_worker_handles_jobs_in_the_order_in_which_they_are_due() {
    let fixture = Fixture::new().await;
    let now_ms = dwell_store::clock::wall_ms();
    let jobs = (0..120).map(|number: i64| {
        NewJob::new(
            Job::for_queue("q", number.to_string()),
            Due::At(now_ms - 1_000_000 + 1000 * number),
        )
    });
    // Their ids are random: they are spread over the buckets.
    for job in jobs {
        fixture.client.schedule(&job).await.unwrap();
    }
    let (told, mut said) = unbounded_channel();
    let running = Running::start(fixture.worker().concurrency(1).queue("q", move |job, _| {
        let number: i64 = std::str::from_utf8(&job.body).unwrap().parse().unwrap();
        let told = told.send(number);
        async move { told.map(|()| Outcome::Finish) }
    }));
    let mut order = Vec::new();
    for _ in 0..120 {
        order.push(next(&mut said).await);
    }
    running.stop().await;
    let apart: i64 = (0..).zip(&order).map(|(at, number): (i64, _)| (at - number).pow(2)).sum();
    // Spearman's rank correlation of at least 0.95.
    assert!(apart <= (120 * (120 * 120 - 1)) / 6 / 20, "{order:?}");
}

#[tokio::test]
async fn a_name_that_is_none_is_refused() {
    let fixture = Fixture::new().await;
    let new_job = NewJob::new(Job::for_queue("a b", "x"), NOW);
    let errors = [
        fixture.client.schedule(&new_job).await.err(),
        fixture.client.pop(&Pop::from_queue("")).await.err(),
    ];
    for error in errors.map(Option::unwrap) {
        assert!(error.kind() == ErrorKind::Rejected && !error.hint.is_empty(), "{error}");
    }
}
