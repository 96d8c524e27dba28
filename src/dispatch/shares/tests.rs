//! The places of new, quick, slow and silent destinations beside one another.

use super::*;
use crate::clock;

const MS: Duration = Duration::from_millis(1);

fn to(name: &str) -> Destination {
    Destination::new(name)
}

fn enter(shares: &mut Shares, name: &str, now: Instant) -> ShareState {
    shares.enter(&to(name), 10, now, || 0)
}

/// Returns the number of messages that find a place.
fn out(shares: &mut Shares, name: &str, now: Instant) -> usize {
    (0..).take_while(|_| enter(shares, name, now) == ShareState::Taken).count()
}

fn leave(shares: &mut Shares, name: &str, times: usize, response: Response, now: Instant) {
    (0..times).for_each(|_| {
        shares.leave(&to(name), 10, response, now);
    });
}

const FAST_CONFIRM: Response = Response::Confirmed(MS);
const LATE_CONFIRM: Response = Response::Confirmed(Duration::from_secs(10));

#[test]
fn a_new_destination_has_half_while_it_is_alone_and_few_places_beside_others() {
    let (mut shares, now) = (Shares::new(1024, 1 << 30, 2), clock::now());
    assert_eq!(out(&mut shares, "silent", now), 512);
    assert_eq!(
        enter(&mut shares, "silent", now + 9 * SHARE_WAIT),
        ShareState::Soon,
        "its own share is full, not the window"
    );
    assert_eq!([out(&mut shares, "silent too", now), out(&mut shares, "quick", now)], [4, 4]);
    assert_eq!(enter(&mut shares, "quick", now), ShareState::Later);
    leave(&mut shares, "quick", 1, FAST_CONFIRM, now);
    assert_eq!(
        out(&mut shares, "quick", now) + 519,
        992,
        "all but the places for those that have none"
    );
    // Then it does not confirm either.
    leave(&mut shares, "quick", 1, Response::Unknown, now);
    assert_eq!([out(&mut shares, "quick", now), out(&mut shares, "other", now)], [0, 1]);
    // Any quick answer shows that places are not held.
    leave(&mut shares, "quick", 400, Response::Answered(MS), now);
    assert_eq!([out(&mut shares, "quick", now), out(&mut shares, "other", now)], [400, 0]);
}

#[test]
fn a_slow_destination_has_the_window_only_while_it_is_alone() {
    let (mut shares, now) = (Shares::new(1024, 1 << 30, 2), clock::now());
    assert_eq!(out(&mut shares, "slow", now), 512);
    leave(&mut shares, "slow", 1, LATE_CONFIRM, now);
    let leaves_room = |shares: &Shares, took| shares.leaves_room(&to("slow"), took, now);
    assert!(leaves_room(&shares, SHARE_WAIT + MS), "nobody else needs the room");
    assert_eq!(out(&mut shares, "slow", now), 896 - 511);
    // Beside a new destination the slow one has half of the places for slow ones.
    assert_eq!(enter(&mut shares, "new", now), ShareState::Taken);
    assert!(!leaves_room(&shares, SHARE_WAIT + MS) && leaves_room(&shares, SHARE_WAIT));
    leave(&mut shares, "slow", 1, LATE_CONFIRM, now);
    assert_eq!(out(&mut shares, "slow", now), 0);
    // The jobs that wait for its share come back for a quarter of it, not for one place.
    leave(&mut shares, "slow", 895 - 337, LATE_CONFIRM, now);
    assert!(!leaves_room(&shares, SHARE_WAIT + MS));
    leave(&mut shares, "slow", 1, LATE_CONFIRM, now);
    assert!(leaves_room(&shares, SHARE_WAIT + MS));
    assert_eq!(out(&mut shares, "slow", now) + 336, 896 / 2);
    leave(&mut shares, "new", 1, Response::Nothing, now);
    assert_eq!(out(&mut shares, "slow", now) + 448, 896);
}

#[test]
fn destinations_that_answer_within_half_a_second_share_the_whole_window() {
    let (mut shares, now) = (Shares::new(1024, 1 << 30, 1), clock::now());
    for name in ["a", "b"] {
        assert_eq!(enter(&mut shares, name, now), ShareState::Taken);
        leave(&mut shares, name, 1, Response::Confirmed(SHARE_WAIT), now);
    }
    assert_eq!([out(&mut shares, "a", now), out(&mut shares, "b", now)], [896, 96]);
    assert!(
        shares.leaves_room(&to("a"), SHARE_WAIT, now),
        "a confirm ends the pause of those that wait"
    );
}

#[test]
fn few_jobs_wait_for_a_destination_that_answers_later_than_they_may_wait() {
    let (mut shares, now) = (Shares::new(1024, 1 << 30, 1), clock::now());
    for (name, took) in [("late", 1900 * MS), ("prompt", SHARE_WAIT)] {
        assert_eq!(enter(&mut shares, name, now), ShareState::Taken);
        leave(&mut shares, name, 1, Response::Confirmed(took), now);
    }
    assert_eq!(out(&mut shares, "late", now), 896, "nobody else has messages in flight");
    assert_eq!(enter(&mut shares, "late", now), ShareState::Later, "but others may come");
    assert!(!shares.leaves_room(&to("late"), 1900 * MS, now), "a single place is not enough");
    assert_eq!(out(&mut shares, "prompt", now), 96);
    assert_eq!(enter(&mut shares, "prompt", now), ShareState::Soon);
    assert_eq!(
        enter(&mut shares, "prompt", now + SHARE_WAIT),
        ShareState::Later,
        "no outcome came for so long"
    );
    // A prompt answer ends that.
    leave(&mut shares, "prompt", 1, FAST_CONFIRM, now + SHARE_WAIT);
    assert_eq!(enter(&mut shares, "prompt", now + SHARE_WAIT), ShareState::Taken);
    assert_eq!(enter(&mut shares, "prompt", now + SHARE_WAIT), ShareState::Soon);
    leave(&mut shares, "late", 600, FAST_CONFIRM, now + SHARE_WAIT);
    assert_eq!(out(&mut shares, "late", now + SHARE_WAIT), 600);
    assert_eq!(enter(&mut shares, "late", now + SHARE_WAIT), ShareState::Soon);
}

#[test]
fn a_destination_that_stalls_leaves_room_for_new_ones_of_its_pattern_too() {
    let (mut shares, now) = (Shares::new(1024, 1 << 30, 2), clock::now());
    assert_eq!(enter(&mut shares, "stalls", now), ShareState::Taken);
    leave(&mut shares, "stalls", 1, FAST_CONFIRM, now);
    assert_eq!(out(&mut shares, "stalls", now), 896);
    let stalled = now + SILENCE_LIMIT;
    for n in 0..16 {
        assert_eq!(out(&mut shares, &format!("new-{n}"), stalled), 4);
    }
    assert_eq!(enter(&mut shares, "one more", stalled), ShareState::Later);
    leave(&mut shares, "new-0", 1, FAST_CONFIRM, stalled);
    assert_eq!(out(&mut shares, "new-0", stalled) + 896 + 63, 992);
}

#[test]
fn quick_destinations_that_stall_together_leave_room_for_one_that_has_nothing_in_flight() {
    let (mut shares, now) = (Shares::new(1024, 1 << 30, 1), clock::now());
    let names: Vec<String> = (0..8).map(|n| format!("stalls-{n}")).collect();
    for name in names.iter().map(String::as_str).chain(["healthy"]) {
        assert_eq!(enter(&mut shares, name, now), ShareState::Taken);
        leave(&mut shares, name, 1, FAST_CONFIRM, now);
    }
    let taken = (0..200 * 8)
        .filter(|n| enter(&mut shares, &names[n % 8], now) == ShareState::Taken)
        .count();
    assert_eq!(taken, 992);
    for at in [now, now + SILENCE_LIMIT, now + 7 * SILENCE_LIMIT] {
        assert_eq!(
            [0, 1].map(|_| enter(&mut shares, "healthy", at)),
            [ShareState::Taken, ShareState::Soon]
        );
        leave(&mut shares, "healthy", 1, FAST_CONFIRM, at);
        assert_eq!(enter(&mut shares, "new", at), ShareState::Taken);
        leave(&mut shares, "new", 1, Response::Unknown, at);
        assert_ne!(enter(&mut shares, &names[0], at), ShareState::Taken);
    }
}

#[test]
fn slow_destinations_leave_room_for_quick_and_for_new_ones() {
    for (count, rate) in [(8, 20), (40, 20), (500, 1)] {
        let (mut shares, mut now) = (Shares::new(1024, 1 << 30, 1), clock::now());
        let slow: Vec<String> = (0..count).map(|n| format!("slow-{n}")).collect();
        // Each was quick before. Then they answer after 10 s.
        for name in slow.iter().map(String::as_str).chain(["healthy"]) {
            assert_eq!(enter(&mut shares, name, now), ShareState::Taken);
            leave(&mut shares, name, 1, FAST_CONFIRM, now);
        }
        let mut held = std::collections::VecDeque::new();
        for second in 0..60_u64 {
            for name in &slow {
                for _ in 0..rate {
                    if enter(&mut shares, name, now) == ShareState::Taken {
                        held.push_back((second, name));
                    }
                }
                now += 1000 * MS / count;
                assert_eq!(
                    enter(&mut shares, "healthy", now),
                    ShareState::Taken,
                    "{second} s beside {count}"
                );
                leave(&mut shares, "healthy", 1, FAST_CONFIRM, now);
            }
            let new = format!("new-{second}");
            assert_eq!(
                enter(&mut shares, &new, now),
                ShareState::Taken,
                "{second} s beside {count}"
            );
            leave(&mut shares, &new, 1, FAST_CONFIRM, now);
            while held.front().is_some_and(|(since, _)| since + 10 <= second) {
                let (_, name) = held.pop_front().unwrap();
                leave(&mut shares, name, 1, LATE_CONFIRM, now);
            }
        }
        assert!(held.len() > 500, "{count} slow ones use {} places", held.len());
    }
}

#[test]
fn many_silent_destinations_leave_room_for_one_that_answers() {
    let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
    assert_eq!(out(&mut shares, "healthy", now), 32);
    leave(&mut shares, "healthy", 32, FAST_CONFIRM, now);
    let silent = |n: usize| format!("silent-{n}");
    let taken =
        (0..1000).take_while(|n| enter(&mut shares, &silent(*n), now) == ShareState::Taken).count();
    assert_eq!(taken, 56);
    assert_eq!(
        [now, now + SHARE_WAIT].map(|at| enter(&mut shares, "silent-99", at)),
        [ShareState::Later, ShareState::Full]
    );
    assert_eq!(enter(&mut shares, "healthy", now + SHARE_WAIT), ShareState::Taken);
    leave(&mut shares, "silent-0", 1, Response::Unknown, now);
    assert_eq!(enter(&mut shares, "silent-99", now + SHARE_WAIT), ShareState::Taken);
}

#[test]
fn silent_destinations_of_one_pattern_have_an_eighth() {
    let (mut shares, now) = (Shares::new(64, 1 << 20, 2), clock::now());
    let silent = |n: usize| format!("legacy.{n}");
    let healthy = |n: usize| Destination::new(format!("orders.{n}"));
    let taken = |shares: &mut Shares, of: std::ops::Range<usize>| {
        of.take_while(|n| enter(shares, &silent(*n), now) == ShareState::Taken).count()
    };
    assert_eq!(taken(&mut shares, 0..100), 56);
    (0..56).for_each(|n| leave(&mut shares, &silent(n), 1, Response::Unknown, now));
    assert_eq!(taken(&mut shares, 100..200), 8);
    for n in 0..100 {
        assert_eq!(shares.enter(&healthy(n), 10, now, || 1), ShareState::Taken);
        if n >= 20 {
            shares.leave(&healthy(n), 10, FAST_CONFIRM, now);
        }
    }
    // One of them confirms: the bound of the pattern is lifted.
    leave(&mut shares, &silent(100), 1, FAST_CONFIRM, now);
    assert_eq!(taken(&mut shares, 200..300), 56 - 20 - 7);
}

#[test]
fn a_share_is_one_of_bytes_too_and_counts_return_to_nothing() {
    let (mut shares, now) = (Shares::new(64, 1000, 2), clock::now());
    let large = to("large");
    assert_eq!(
        [300, 300].map(|bytes| shares.enter(&large, bytes, now, || 0)),
        [ShareState::Taken, ShareState::Soon]
    );
    shares.leave(&large, 300, Response::Unknown, now);
    assert_eq!(
        [5000, 1].map(|bytes| shares.enter(&large, bytes, now, || 0)),
        [ShareState::Taken, ShareState::Soon],
        "a large one goes alone"
    );
    shares.leave(&large, 5000, FAST_CONFIRM, now);
    assert_eq!(
        [300, 300].map(|bytes| shares.enter(&large, bytes, now, || 0)),
        [ShareState::Taken; 2]
    );
    shares.enter(&to("other"), 1, now + SILENCE_LIMIT, || 0);
    (0..2).for_each(|_| {
        shares.leave(&large, 300, Response::Nothing, now + SILENCE_LIMIT);
    });
    shares.leave(&to("other"), 1, Response::Nothing, now + SILENCE_LIMIT);
    shares.forget(now);
    assert_eq!(shares.targets.len(), 1);
    shares.forget(now + STATUS_TTL);
    assert_eq!((shares.targets.len(), shares.busy), (0, 0));
    assert_eq!([shares.total, shares.new, shares.slow], [Amount::default(); 3]);
    assert_eq!(shares.patterns[0].in_flight, Amount::default());
}
