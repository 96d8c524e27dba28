//! Jobs that are popped a moment before they are due.

use super::*;
use crate::store::jobs::claim::MAX_CLAIM_AHEAD;
use crate::store::jobs::pop::PopAnswer;
use crate::store::places::PlaceCall;
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
    popped_early_with(fixture, &[3_600_000]).await
}

/// The same with a job of this retry array.
async fn popped_early_with(fixture: &Fixture, retry: &[u64]) -> (Nonce, PopAnswer) {
    loop {
        let id = rand::random::<u64>().to_string();
        let bucket = fixture.store.keys().bucket_of(&id);
        let job = Job { retry: Some(retry.to_vec()), ..Job::for_queue(QUEUE, id.clone()) };
        fixture.schedule(NewJob::new(job, Due::In(20)).id(id.parse().unwrap())).await;
        let (nonce, answer) = loop {
            let nonce: Nonce = rand::random();
            let queue = &fixture.store.jobs;
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

/// Acts on a job that was popped early and is not due yet. Returns the nonce of the pop, the job,
/// and what came of it.
async fn act_early<T>(
    fixture: &Fixture,
    retry: &[u64],
    act: impl AsyncFn(&Popped) -> T,
) -> (Nonce, Popped, T) {
    loop {
        let (nonce, mut answer) = popped_early_with(fixture, retry).await;
        let job = answer.jobs.remove(0);
        let done = act(&job).await;
        if fixture.store.read_clock().await.unwrap() < 1000 * job.due_ms() {
            return (nonce, job, done);
        }
    }
}

/// Waits until the job is due.
async fn until_due(fixture: &Fixture, job: &Popped) {
    while fixture.store.read_clock().await.unwrap() < 1000 * job.due_ms() {}
}

#[tokio::test]
async fn a_job_that_was_popped_early_and_given_back_is_due_when_it_was() {
    let fixture = Fixture::new().await;
    let (nonce, answer) = popped_early(&fixture).await;
    let job = &answer.jobs[0];
    assert_eq!(answer.now_us + answer.wait_us, 1000 * job.due_ms());
    assert_eq!((job.deadline_ms, job.lease.ttr_ms), (job.due_ms() + 60_000, 60_000));
    let bucket = fixture.store.keys().bucket_of(job.id.as_str());
    assert_eq!(fixture.store.jobs.unpop(nonce, Return::Due, bucket, QUEUE, &[]).await.unwrap(), 1);
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
    assert_eq!(
        fixture.store.jobs.unpop(nonce, Return::Early, bucket, QUEUE, &[]).await.unwrap(),
        1
    );
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
async fn the_place_of_a_job_that_is_handed_out_later_stays_taken() {
    let fixture = Fixture::new().await;
    fixture.store.keep_queue_in_flight(&[("*".to_owned(), Some(1000))]).await.unwrap();
    let limit = fixture.store.places_of_queue(QUEUE).unwrap();
    let finish_held = async |job: &Popped| {
        let place = fixture.store.place_of(job.lease.nonce, QUEUE, &job.id);
        let call = PlaceCall { taken: vec![(place, LONG)], ..PlaceCall::new(&limit) };
        let taken = fixture.store.places(&[call]).await.unwrap().remove(0);
        let read = fixture.store.reader.find(&job.id).await.unwrap().unwrap();
        fixture.store.jobs.finish_held(&read, Arc::new(())).await.unwrap();
        let after = fixture.store.places(&[PlaceCall::new(&limit)]).await.unwrap().remove(0);
        (taken.taken, taken.free, after.free)
    };
    let (_, _, (taken, free, after)) = act_early(&fixture, &[], finish_held).await;
    assert_eq!((taken, after), (vec![true], free));
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
    let verdict = fixture.store.jobs.act(&reschedule, &[]).await.unwrap().verdict;
    assert_eq!(verdict, Verdict::Rescheduled);
    assert_eq!(fixture.act(Action::Fire, "x").await, Verdict::Firing);
    let bucket = fixture.store.keys().bucket_of("x");
    let (queue, nonce) = (&fixture.store.jobs, rand::random());
    let limits = PopLimits { ttr_ms: Some(4), ..LIMITS };
    let answer = queue.pop_for(nonce, bucket, QUEUE, &[limits], MAX_CLAIM_AHEAD).await.unwrap();
    let job = &answer.jobs[0];
    assert!(1000 * job.due_ms() > answer.now_us, "the job was fired");
    assert_eq!((answer.wait_us, job.lease.ttr_ms), (0, 4));
}

#[tokio::test]
async fn nobody_ends_or_fails_a_job_that_is_handed_out_later() {
    let fixture = Fixture::new().await;
    let at_the_end = Vec::new();
    for (action, retry) in
        [(Action::Finish, vec![1]), (Action::Fail, vec![1]), (Action::Fail, at_the_end)]
    {
        let act = async |job: &Popped| fixture.act(action, job.id.as_str()).await;
        let (_, job, verdict) = act_early(&fixture, &retry, act).await;
        assert_eq!(verdict, Verdict::NotFound, "{action:?} {retry:?}");
        until_due(&fixture, &job).await;
        assert_eq!(fixture.verdict(&job, LeaseAction::Finish).await, LeaseVerdict::Finished);
    }
    let finish_held = async |job: &Popped| {
        let read = fixture.store.reader.find(&job.id).await.unwrap().unwrap();
        fixture.store.jobs.finish_held(&read, Arc::new(())).await.unwrap()
    };
    let (_, job, is_finished) = act_early(&fixture, &[], finish_held).await;
    assert!(!is_finished);
    until_due(&fixture, &job).await;
    assert_eq!(fixture.act(Action::Finish, job.id.as_str()).await, Verdict::Finished);
}

#[tokio::test]
async fn no_word_of_a_consumer_ends_the_lease_of_a_job_that_is_handed_out_later() {
    let fixture = Fixture::new().await;
    let release = LeaseAction::Release { wait_ms: 0 };
    for action in [LeaseAction::Finish, fail(Some(0)), fail(None), release] {
        let say = async |job: &Popped| fixture.verdict(job, action.clone()).await;
        let (_, job, verdict) = act_early(&fixture, &[1], say).await;
        assert_eq!(verdict, LeaseVerdict::NotFound, "{action:?}");
        until_due(&fixture, &job).await;
        assert_eq!(fixture.verdict(&job, LeaseAction::Finish).await, LeaseVerdict::Finished);
    }
    // Dwell itself drops what is over by its own end.
    let drops = async |job: &Popped| fixture.verdict(job, LeaseAction::Drop).await;
    let (_, _, verdict) = act_early(&fixture, &[1], drops).await;
    assert_eq!(verdict, LeaseVerdict::Dropped);
}

#[tokio::test]
async fn the_lease_of_a_job_that_was_replaced_before_it_was_handed_out_is_stale() {
    let fixture = Fixture::new().await;
    let replace = async |job: &Popped| {
        let new_job = NewJob::new(Job::for_queue(QUEUE, "new"), FAR).id(job.id.clone());
        fixture.schedule(new_job).await;
    };
    let (nonce, job, ()) = act_early(&fixture, &[1], replace).await;
    until_due(&fixture, &job).await;
    assert_eq!(fixture.verdict(&job, LeaseAction::Finish).await, LeaseVerdict::Stale);
    let bucket = fixture.store.keys().bucket_of(job.id.as_str());
    assert_eq!(
        fixture.store.jobs.unpop(nonce, Return::Early, bucket, QUEUE, &[]).await.unwrap(),
        0
    );
    let found = fixture.store.reader.find(&job.id).await.unwrap().unwrap();
    assert_eq!((found.state, &found.job().body[..]), (JobState::Scheduled, &b"new"[..]));
}

#[tokio::test]
async fn a_pause_takes_no_job_from_its_consumer_and_hands_out_none_that_came_back() {
    let fixture = Fixture::new().await;
    loop {
        let ((_, kept), (nonce, mut back)) =
            (popped_early(&fixture).await, popped_early(&fixture).await);
        fixture.store.admin.pause(QUEUE, 10).await.unwrap();
        let job = back.jobs.remove(0);
        if fixture.store.read_clock().await.unwrap() >= 1000 * job.due_ms() {
            fixture.store.admin.resume(QUEUE).await.unwrap();
            continue;
        }
        let bucket = fixture.store.keys().bucket_of(job.id.as_str());
        assert_eq!(
            fixture.store.jobs.unpop(nonce, Return::Early, bucket, QUEUE, &[]).await.unwrap(),
            1
        );
        until_due(&fixture, &job).await;
        assert!(fixture.pop(1, Duration::ZERO).await.is_empty());
        let kept = &kept.jobs[0];
        assert_eq!(fixture.verdict(kept, LeaseAction::Finish).await, LeaseVerdict::Finished);
        return;
    }
}

#[tokio::test]
async fn a_pop_that_goes_away_while_it_holds_a_job_leaves_it_to_the_next_one() {
    const TRIES: usize = 100;
    let fixture = Fixture::new().await;
    let pop = || {
        let consumers = fixture.consumers.clone();
        tokio::spawn(async move { consumers.pop(&request(1, LONG)).await.unwrap().sent() })
    };
    for number in 0..TRIES {
        let mut pops = Vec::new();
        while pops.len() < 2 {
            pops.push(pop());
            while fixture.consumers.waiting(QUEUE) < pops.len() {
                tokio::task::yield_now().await;
            }
        }
        let due_ms = fixture.store.read_clock().await.unwrap() / 1000 + 50;
        fixture.add(&number.to_string(), Due::At(due_ms)).await;
        // The first pop, which came first, gets the job.
        while fixture.counts().await[2] == 0 {}
        let (first, second) = (pops.remove(0), pops.remove(0));
        first.abort();
        let went_away = first.await.is_err();
        if !went_away {
            // The host stood still.
            second.abort();
            let _ = second.await;
            assert_eq!(fixture.act(Action::Finish, &number.to_string()).await, Verdict::Finished);
            continue;
        }
        let job = second.await.unwrap().remove(0);
        assert!(clock::wall_us() >= 1000 * due_ms);
        assert_eq!(job.due_ms(), due_ms);
        assert_eq!(fixture.verdict(&job, LeaseAction::Finish).await, LeaseVerdict::Finished);
        // Two, if the first one went away once the job was due.
        if job.state.attempt == 1 {
            return;
        }
    }
    panic!("no pop went away in time, or each was counted");
}

#[tokio::test]
async fn an_early_pop_takes_no_job_that_is_due_later_than_the_first() {
    loop {
        let fixture = Fixture::new().await;
        let keys = fixture.store.keys();
        let ids = (0_u32..).map(|number| number.to_string());
        let mut ids = ids.filter(|id| keys.bucket_of(id) == 0);
        let due_ms = fixture.store.read_clock().await.unwrap() / 1000 + 30;
        for later_ms in [0, 0, 2] {
            fixture.add(&ids.next().unwrap(), Due::At(due_ms + later_ms)).await;
        }
        let limits = [PopLimits { most: 10, ..LIMITS }];
        let answer = loop {
            let (queue, nonce) = (&fixture.store.jobs, rand::random());
            let answer = queue.pop_for(nonce, 0, QUEUE, &limits, MAX_CLAIM_AHEAD).await.unwrap();
            if !answer.jobs.is_empty() {
                break answer;
            }
        };
        // Else the host stood still.
        if answer.wait_us > 0 {
            let dues: Vec<i64> = answer.jobs.iter().map(Popped::due_ms).collect();
            assert_eq!(dues, [due_ms; 2]);
            assert_eq!((answer.next_ms, answer.more), (Some(due_ms + 2), false));
            assert_eq!(answer.now_us + answer.wait_us, 1000 * due_ms);
            return;
        }
    }
}
