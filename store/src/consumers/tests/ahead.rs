//! Jobs that are popped a moment before they are due.

use super::*;
use crate::store::queue::claim::MAX_CLAIM_AHEAD;
use crate::store::queue::pop::PopAnswer;
use crate::store::record::Nonce;

const LONG: Duration = Duration::from_secs(60);
const LIMITS: PopLimits = PopLimits {
    ttr_ms: Some(60_000),
    max_ttr_ms: 60_000,
    most: 1,
    most_bytes: 1 << 20,
    room: None,
};

/// Adds a job and pops it before it is due. Returns the nonce and the answer of the pop.
async fn popped_early(fixture: &Fixture) -> (Nonce, PopAnswer) {
    loop {
        let id = rand::random::<u64>().to_string();
        let bucket = fixture.store.keys().bucket_of(&id);
        fixture.add(&id, Due::In(20)).await;
        let (nonce, answer) = loop {
            let nonce: Nonce = rand::random();
            let queue = &fixture.store.queue;
            let answer =
                queue.pop_for(nonce, bucket, QUEUE, &[LIMITS], MAX_CLAIM_AHEAD).await.unwrap();
            if !answer.jobs.is_empty() {
                break (nonce, answer);
            }
        };
        // Else the host stood still.
        if answer.wait_us > 0 {
            return (nonce, answer);
        }
    }
}

#[tokio::test]
async fn a_job_that_was_popped_early_and_given_back_is_due_when_it_was() {
    let fixture = Fixture::new().await;
    let (nonce, answer) = popped_early(&fixture).await;
    let job = &answer.jobs[0];
    assert_eq!(answer.now_us + answer.wait_us, 1000 * job.due_ms());
    assert_eq!((job.deadline_ms, job.lease.ttr_ms), (job.due_ms() + 60_000, 60_000));
    let bucket = fixture.store.keys().bucket_of(job.id.as_str());
    assert_eq!(fixture.store.queue.unpop(nonce, bucket, QUEUE, &[]).await.unwrap(), 1);
    let again = fixture.pop(1, LONG).await.sent();
    assert!(clock::wall_us() >= 1000 * job.due_ms());
    assert_eq!((again.len(), again[0].due_ms()), (1, job.due_ms()));
}

#[tokio::test]
async fn a_job_that_was_popped_early_and_reached_nobody_is_cancelled_for_sure() {
    let fixture = Fixture::new().await;
    let (nonce, answer) = popped_early(&fixture).await;
    let id = answer.jobs[0].id.as_str();
    let bucket = fixture.store.keys().bucket_of(id);
    assert_eq!(fixture.store.queue.unpop_early(nonce, bucket, QUEUE, &[]).await.unwrap(), 1);
    assert_eq!(fixture.act(Action::Cancel, id).await, Verdict::Cancelled);
}

#[tokio::test]
async fn the_cancel_of_a_job_that_is_handed_out_later_says_so() {
    let fixture = Fixture::new().await;
    loop {
        let (_, answer) = popped_early(&fixture).await;
        let job = &answer.jobs[0];
        let verdict = fixture.act(Action::Cancel, job.id.as_str()).await;
        if fixture.store.read_clock().await.unwrap() < 1000 * job.due_ms() {
            assert_eq!(verdict, Verdict::InFlight);
            break;
        }
    }
}

#[tokio::test]
async fn waiting_pops_get_no_job_before_its_time() {
    const POPS: u64 = 20;
    let fixture = Fixture::new().await;
    let waiting: Vec<_> = (0..POPS)
        .map(|_| {
            let consumers = fixture.consumers.clone();
            tokio::spawn(async move {
                let jobs = consumers.pop(&request(1, LONG)).await.unwrap().sent();
                (jobs, clock::wall_us())
            })
        })
        .collect();
    while fixture.consumers.waiting(QUEUE) < waiting.len() {
        tokio::task::yield_now().await;
    }
    for number in 0..POPS {
        fixture.add(&number.to_string(), Due::In(100 + 7 * number)).await;
    }
    for popped in waiting {
        let (jobs, at_us) = popped.await.unwrap();
        assert_eq!((jobs.len(), jobs[0].state.attempt), (1, 1));
        let due_us = 1000 * jobs[0].due_ms();
        assert!(at_us >= due_us, "{} µs early", due_us - at_us);
    }
    assert_eq!(fixture.counts().await, [0, 0, POPS, 0]);
}

#[tokio::test]
async fn a_job_that_is_due_before_the_due_time_of_its_schedule_has_its_whole_lease() {
    let fixture = Fixture::new().await;
    fixture.add("x", Due::In(0)).await;
    let job = fixture.take().await;
    assert_eq!(fixture.verdict(&job, fail(Some(3_600_000))).await, LeaseVerdict::Failed);
    let reschedule = Act { due: Some(FAR), ..Act::new(Action::Reschedule, "x".parse().unwrap()) };
    let verdict = fixture.store.queue.act(&reschedule, &[]).await.unwrap().verdict;
    assert_eq!(verdict, Verdict::Rescheduled);
    assert_eq!(fixture.act(Action::Fire, "x").await, Verdict::Firing);
    let bucket = fixture.store.keys().bucket_of("x");
    let (queue, nonce) = (&fixture.store.queue, rand::random());
    let limits = PopLimits { ttr_ms: Some(4), ..LIMITS };
    let answer = queue.pop_for(nonce, bucket, QUEUE, &[limits], MAX_CLAIM_AHEAD).await.unwrap();
    let job = &answer.jobs[0];
    assert!(1000 * job.due_ms() > answer.now_us, "the job was fired");
    assert_eq!((answer.wait_us, job.lease.ttr_ms), (0, 4));
}
