//! Batches and their turns, without Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

type Numbers = Batcher<&'static str, u32, u32>;

const BOUNDS: Bounds = Bounds { batches: 1, requests: 10, bytes: 100, is_withdrawn: true };

fn batcher(batches: usize) -> Numbers {
    Batcher::new(Bounds { batches, ..BOUNDS })
}

fn add(batcher: &Numbers, call: u32) -> (oneshot::Receiver<u32>, Option<Turn<u32, u32>>) {
    batcher.add("a", call, Size { requests: 1, bytes: 1 })
}

#[test]
fn calls_that_come_while_one_is_out_share_the_next_batch() {
    let batcher = batcher(1);
    let (mut first, turn) = add(&batcher, 1);
    let mut turn = turn.unwrap();
    let batch = turn.next_batch().unwrap();
    assert_eq!(batch.calls, [1], "a call waits for no company");
    let mut others: Vec<_> = (2..=4)
        .map(|call| {
            let (answer, turn) = add(&batcher, call);
            assert!(turn.is_none(), "one batch at a time");
            answer
        })
        .collect();
    batch.callers.answer_all([10]);
    assert_eq!(first.try_recv(), Ok(10));
    let batch = turn.next_batch().unwrap();
    assert_eq!(batch.calls, [2, 3, 4]);
    batch.callers.answer_all([20, 30, 40]);
    let answers: Vec<u32> = others.iter_mut().map(|answer| answer.try_recv().unwrap()).collect();
    assert_eq!(answers, [20, 30, 40]);
    assert!(turn.next_batch().is_none());
    assert!(turn.next_batch().is_none(), "a turn is over once");
    assert!(add(&batcher, 5).1.is_some(), "the turn is free");
}

#[test]
fn a_call_whose_caller_went_away_is_not_sent() {
    let batcher = batcher(1);
    let (gone, turn) = add(&batcher, 1);
    let (stays, goes) = (add(&batcher, 2).0, add(&batcher, 3).0);
    drop(gone);
    let mut turn = turn.unwrap();
    let batch = turn.next_batch().unwrap();
    assert_eq!(batch.calls, [2, 3], "one caller went away before the batch was sent");
    drop(goes);
    assert_eq!([0, 1].map(|at| batch.callers.is_waiting(at)), [true, false]);
    // The answer of the one that went away has no place to go.
    batch.callers.answer_all([20, 30]);
    drop(stays);
    let (gone, none) = add(&batcher, 4);
    assert!(none.is_none());
    drop(gone);
    assert!(turn.next_batch().is_none());
}

#[test]
fn a_call_that_is_never_withdrawn_is_sent_without_its_caller() {
    let batcher = Batcher::new(Bounds { is_withdrawn: false, ..BOUNDS });
    let (gone, turn) = add(&batcher, 1);
    let mut stays = add(&batcher, 2).0;
    drop(gone);
    let batch = turn.unwrap().next_batch().unwrap();
    assert_eq!(batch.calls, [1, 2]);
    batch.callers.answer_all([10, 20]);
    assert_eq!(stays.try_recv(), Ok(20));
}

#[test]
fn a_caller_has_its_answer_before_the_others() {
    let batcher = batcher(1);
    let (mut first, turn) = add(&batcher, 1);
    let mut second = add(&batcher, 2).0;
    let mut batch = turn.unwrap().next_batch().unwrap();
    batch.callers.answer(0, 10);
    assert_eq!(first.try_recv(), Ok(10));
    assert_eq!([0, 1].map(|at| batch.callers.is_waiting(at)), [false, true]);
    batch.callers.answer_all([11, 20]);
    assert_eq!(second.try_recv(), Ok(20));
}

#[test]
fn a_batch_is_bounded_by_requests_and_by_bytes() {
    let batcher = batcher(1);
    let sizes = [(11, 1), (4, 1), (6, 1), (1, 60), (1, 41), (1, 200), (1, 1)];
    let mut turns = Vec::new();
    let answers: Vec<_> = (0..)
        .zip(sizes)
        .map(|(call, (requests, bytes))| {
            let (answer, turn) = batcher.add("a", call, Size { requests, bytes });
            turns.extend(turn);
            answer
        })
        .collect();
    let mut turn = turns.pop().unwrap();
    let batches: Vec<Vec<u32>> =
        std::iter::from_fn(|| turn.next_batch().map(|batch| batch.calls)).collect();
    assert_eq!(batches, [vec![0], vec![1, 2], vec![3], vec![4], vec![5], vec![6]]);
    drop(answers);
}

#[test]
fn a_lane_that_hangs_holds_up_no_call_of_another() {
    let batcher = batcher(2);
    let add = |key| batcher.add(key, 1, Size { requests: 1, bytes: 1 });
    let mut hanging: Vec<_> = (0..2)
        .map(|_| {
            let (answer, turn) = add("hangs");
            let mut turn = turn.unwrap();
            (turn.next_batch().unwrap(), turn, answer)
        })
        .collect();
    let (_waits, none) = add("hangs");
    assert!(none.is_none(), "every turn is taken");
    let (_answer, turn) = add("answers");
    assert_eq!(turn.unwrap().next_batch().unwrap().calls, [1]);
    let (_, turn, _) = &mut hanging[0];
    assert_eq!(turn.next_batch().unwrap().calls, [1]);
}

#[test]
fn later_calls_need_not_wait_for_a_batch_that_takes_long() {
    let batcher = batcher(1);
    let (_slow, turn) = add(&batcher, 1);
    let mut turn = turn.unwrap();
    let _slow_batch = turn.next_batch().unwrap();
    let _waits = add(&batcher, 2);
    let mut next = turn.pass_on().unwrap();
    assert!(turn.pass_on().is_none(), "a turn is passed on once");
    assert!(turn.next_batch().is_none());
    drop(turn);
    assert!(add(&batcher, 3).1.is_none(), "the other turn goes on");
    assert_eq!(next.next_batch().unwrap().calls, [2]);
    assert!(next.pass_on().is_none(), "no call waits: the one before went away");
    let (_answer, turn) = add(&batcher, 4);
    assert_eq!(turn.unwrap().next_batch().unwrap().calls, [4]);
}

#[test]
fn a_turn_that_nobody_ends_fails_the_calls_that_wait() {
    let batcher = batcher(1);
    let (mut answer, turn) = add(&batcher, 1);
    drop(turn);
    assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    assert!(add(&batcher, 2).1.is_some(), "the turn is free");
}

#[tokio::test]
async fn a_batch_that_panics_fails_no_call_that_waits() {
    let batcher = batcher(1);
    let (mut first, turn) = add(&batcher, 1);
    let mut turn = turn.unwrap();
    let Batch { calls, callers } = turn.next_batch().unwrap();
    let mut waits = add(&batcher, 2).0;
    let answers = caught(async {
        tokio::task::yield_now().await;
        assert!(calls.is_empty(), "this batch panics");
        [10]
    });
    assert_eq!(answers.await, None);
    callers.answer_all([0]);
    assert_eq!(first.try_recv(), Ok(0));
    let Batch { calls, callers } = turn.next_batch().unwrap();
    assert_eq!(calls, [2], "the turn goes on");
    callers.answer_all(caught(async { [20] }).await.unwrap());
    assert_eq!(waits.try_recv(), Ok(20));
}

#[test]
fn a_lane_that_is_over_leaves_nothing_behind() {
    let batcher = batcher(1);
    for key in ["a", "b", "c"] {
        drop(batcher.add(key, 1, Size { requests: 1, bytes: 1 }));
    }
    assert_eq!(batcher.lanes.lock().len(), 1);
}
