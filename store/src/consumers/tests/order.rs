//! The order in which the jobs of all buckets are handed out.

use super::*;

/// Stores a job of this number, due so many ms ago, in a bucket that fits.
async fn store(
    fixture: &Fixture,
    jobs: impl IntoIterator<Item = (u64, i64)>,
    fits: impl Fn(u16) -> bool,
) {
    let now_ms = crate::clock::wall_ms();
    let new_job = |(number, ago_ms): (u64, i64)| {
        let names = (0..).map(|salt| format!("{number}-{salt}"));
        let id = names.into_iter().find(|id| fits(fixture.store.keys().bucket_of(id))).unwrap();
        NewJob::new(Job::for_queue(QUEUE, number.to_string()), Due::At(now_ms - ago_ms))
            .id(id.parse().unwrap())
    };
    let schedules: Vec<NewJob> = jobs.into_iter().map(new_job).collect();
    let scheduled = fixture.store.jobs.schedule(&schedules).await.unwrap();
    fixture.consumers.wake_all(scheduled.wake_ups).await;
}

fn number(job: &Popped) -> u64 {
    std::str::from_utf8(&job.record.job.body).unwrap().parse().unwrap()
}

/// The rank correlation of these numbers with their ascending order, by Spearman: 1 for the same
/// order, 0 for none.
#[allow(clippy::cast_precision_loss, reason = "a few hundred jobs")]
fn rank_correlation(order: &[u64]) -> f64 {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    let rank = |number: &u64| sorted.binary_search(number).unwrap() as f64;
    let apart: f64 =
        order.iter().enumerate().map(|(at, number)| (at as f64 - rank(number)).powi(2)).sum();
    let count = order.len() as f64;
    1.0 - 6.0 * apart / (count * (count * count - 1.0))
}

#[tokio::test]
async fn a_drain_by_single_pops_goes_by_due_time_over_all_buckets() {
    let fixture = Fixture::new().await;
    store(
        &fixture,
        (0..400).map(|number| (number, 500_000 - 1000 * i64::try_from(number).unwrap())),
        |_| true,
    )
    .await;
    let mut order = Vec::new();
    while order.len() < 400 {
        order.push(number(&fixture.take().await));
    }
    let correlation = rank_correlation(&order);
    assert!(correlation >= 0.95, "{correlation:.3}: {:?}", &order[..40]);
}

#[tokio::test]
async fn a_drain_by_pops_beside_each_other_goes_by_due_time_too() {
    let fixture = Fixture::new().await;
    store(
        &fixture,
        (0..800).map(|number| (number, 900_000 - 1000 * i64::try_from(number).unwrap())),
        |_| true,
    )
    .await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let drain = async || {
        while order.lock().len() < 800 {
            let jobs = fixture.pop(2, Duration::ZERO).await.sent();
            order.lock().extend(jobs.iter().map(number));
        }
    };
    futures_util::future::join_all((0..16).map(|_| drain())).await;
    let correlation = rank_correlation(&order.lock());
    assert!(correlation >= 0.95, "{correlation:.3}: {:?}", &order.lock()[..40]);
}

#[tokio::test]
async fn no_job_waits_behind_the_younger_jobs_of_a_busy_bucket() {
    let fixture = Fixture::new().await;
    let busy = 3;
    store(&fixture, (1000..1400).map(|number| (number, 60_000)), |bucket| bucket == busy).await;
    // The first pop meets the backlog, whatever bucket it begins with.
    let first = fixture.take().await;
    assert!(number(&first) >= 1000);
    store(&fixture, (0..30).map(|number| (number, 120_000)), |bucket| bucket != busy).await;
    let mut order = Vec::new();
    for more in 0..60 {
        order.push(number(&fixture.take().await));
        store(&fixture, [(2000 + more, 30_000)], |bucket| bucket == busy).await;
    }
    let last = order.iter().rposition(|number| *number < 30).unwrap_or(usize::MAX);
    assert!(last < 32, "the older jobs of other buckets came until {last}: {order:?}");
}

#[tokio::test]
async fn a_list_of_queues_takes_from_the_oldest_bucket_of_each() {
    let fixture = Fixture::new().await;
    store(
        &fixture,
        (0..100).map(|number| (number, 200_000 - 1000 * i64::try_from(number).unwrap())),
        |_| true,
    )
    .await;
    let asked = PopRequest {
        queues: vec!["nothing".to_owned(), QUEUE.to_owned()],
        ..request(1, Duration::ZERO)
    };
    let mut order = Vec::new();
    while order.len() < 100 {
        order.extend(fixture.consumers.pop(&asked).await.unwrap().sent().iter().map(number));
    }
    let correlation = rank_correlation(&order);
    assert!(correlation >= 0.95, "{correlation:.3}: {order:?}");
}

#[tokio::test]
async fn a_pop_that_waits_gets_the_oldest_job_of_all_buckets() {
    let fixture = Fixture::new().await;
    let mut order = Vec::new();
    for round in 0..12 {
        fixture.store.admin.pause(QUEUE, 1).await.unwrap();
        let waiting = tokio::spawn({
            let consumers = fixture.consumers.clone();
            async move { consumers.pop(&request(1, Duration::from_secs(60))).await.unwrap().sent() }
        });
        while fixture.consumers.waiting(QUEUE) == 0 {
            tokio::task::yield_now().await;
        }
        if round == 0 {
            store(
                &fixture,
                (0..64).map(|number| (number, 100_000 - 1000 * i64::try_from(number).unwrap())),
                |_| true,
            )
            .await;
        }
        fixture.store.admin.resume(QUEUE).await.unwrap();
        fixture.consumers.look_again();
        order.extend(waiting.await.unwrap().iter().map(number));
    }
    assert_eq!(order, (0..12).collect::<Vec<u64>>());
}
