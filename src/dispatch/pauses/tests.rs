//! Pauses of destinations that refuse, do not confirm, or have a full share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pause::MAX_SPREAD;
use super::*;
use crate::clock;

const QUICK_REFUSAL_TIME: Duration = Duration::from_millis(1);

#[test]
fn nothing_ends_a_pause_early_that_the_destination_asked_for() {
    let (mut pauses, to, now) = (Pauses::default(), Destination::new("throttled"), clock::now());
    let (wait, soon) = (Duration::from_secs(60), now + Duration::from_secs(30));
    let about = wait..wait + MAX_SPREAD;
    assert!(about.contains(&pauses.throttled(&to, wait, now)));
    assert!(
        about.contains(&pauses.throttled(&to, Duration::from_secs(5), now)),
        "the longest counts"
    );
    assert_eq!(
        (pauses.confirmed(&to, true, soon), pauses.answered(&to, 3, soon), pauses.reconnected()),
        (None, false, false)
    );
    assert!((4..9).all(|token| !pauses.unknown(&to, token, true, soon)));
    assert!(pauses.remaining(&to, soon).is_some_and(|left| left >= Duration::from_secs(30)));
    let after = now + wait;
    assert!(pauses.remaining(&to, after).is_none(), "then it is tried again");
    assert!(
        pauses.answered(&to, 10, after),
        "an answer then ends what the silence of others began"
    );
    assert!(!pauses.has(&to));

    // The probe of a silent destination ends after another message was throttled.
    assert!((20..30).filter(|token| pauses.unknown(&to, *token, false, now)).count() == 1);
    pauses.sent(&to, 30);
    pauses.throttled(&to, wait, now);
    pauses.unknown(&to, 30, false, now);
    assert!(pauses.remaining(&to, soon).is_some_and(|left| left >= Duration::from_secs(30)));

    // So does one that is confirmed.
    let to = Destination::new("throttled as it comes back");
    assert!((40..50).filter(|token| pauses.unknown(&to, *token, false, now)).count() == 1);
    pauses.sent(&to, 50);
    pauses.throttled(&to, wait, now);
    assert_eq!(pauses.confirmed(&to, true, soon), None);
    assert!(pauses.remaining(&to, after).is_none());
}

#[test]
fn a_destination_that_does_not_confirm_is_probed_by_one_job_at_a_time() {
    let (mut pauses, to, now) = (Pauses::default(), Destination::new("silent"), clock::now());
    assert_eq!([1, 2].map(|token| pauses.unknown(&to, token, false, now)), [false, false]);
    assert!(pauses.remaining(&to, now).is_none(), "two in a row are chance");
    assert!(pauses.unknown(&to, 3, false, now), "the third is logged");
    assert!(!pauses.unknown(&to, 4, false, now) && pauses.remaining(&to, now).is_some());
    let mut at = now;
    for token in 10..14 {
        at += MAX_PAUSE;
        assert!(pauses.remaining(&to, at).is_none());
        pauses.sent(&to, token);
        at += Duration::from_secs(15);
        assert!(
            pauses.remaining(&to, at).is_some() && !pauses.forget(at),
            "no other before its outcome"
        );
        // A late outcome of the first window changes nothing.
        assert!(!pauses.unknown(&to, 5, false, at) && pauses.remaining(&to, at).is_some());
        assert!(!pauses.unknown(&to, token, false, at) && pauses.remaining(&to, at).is_some());
    }
    assert_eq!(pauses.confirmed(&to, true, now), Some(true));
    assert!(
        pauses.remaining(&to, at).is_none() && !pauses.unknown(&to, 20, false, at),
        "it starts over"
    );
}

#[test]
fn a_new_connection_ends_pauses_from_a_lost_one_but_not_those_of_a_probe() {
    let (mut pauses, to, now) = (Pauses::default(), Destination::new("a"), clock::now());
    assert!((0..9).all(|token| !pauses.unknown(&to, token, true, now)), "nothing is logged");
    assert_eq!((pauses.count(), pauses.reconnected(), pauses.count()), (1, true, 0));
    assert!((0..9).all(|token| !pauses.unknown(&to, token, true, now)));
    pauses.sent(&to, 10);
    assert!(pauses.unknown(&to, 10, true, now + MAX_PAUSE));
    assert!(!pauses.reconnected());
    // A refusal, unless it is a probe's, may come from the lost connection; so may a full share
    // of the window.
    let (refuses, crowded) = (Destination::new("b"), Destination::new("c"));
    pauses.refused(&refuses, 20, QUICK_REFUSAL_TIME, now);
    pauses.crowded(&crowded, now);
    assert_eq!((pauses.count(), pauses.reconnected(), pauses.count()), (3, true, 1));
    pauses.refused(&refuses, 21, SLOW_REFUSAL_TIME, now);
    pauses.sent(&refuses, 22);
    pauses.refused(&refuses, 22, SLOW_REFUSAL_TIME, now + MAX_PAUSE);
    assert_eq!((pauses.reconnected(), pauses.count()), (false, 2));
    assert!(pauses.answered(&refuses, 23, now));
    // Any other answer ends the pause of a silent destination.
    assert!(pauses.answered(&to, 10, now) && pauses.count() == 0);
    pauses.refused(&to, 11, SLOW_REFUSAL_TIME, now);
    pauses.sent(&to, 12);
    assert!(
        pauses.remaining(&to, now + MAX_PAUSE).is_some(),
        "after a slow refusal one job at a time probes, too"
    );
    pauses.inconclusive(&to, 12);
    assert!(pauses.remaining(&to, now + MAX_PAUSE).is_none());
    // A quick refusal of another message may be of one that was never sent: the probe decides.
    pauses.sent(&to, 13);
    pauses.refused(&to, 14, QUICK_REFUSAL_TIME, now + MAX_PAUSE);
    assert!(pauses.remaining(&to, now + 3 * MAX_PAUSE).is_some());
    pauses.refused(&to, 13, QUICK_REFUSAL_TIME, now + 3 * MAX_PAUSE);
    assert!(!pauses.answered(&to, 15, now) && pauses.remaining(&to, now + 9 * MAX_PAUSE).is_none());
}

#[test]
fn a_destination_that_goes_on_refusing_is_paused_for_longer_up_to_the_bound() {
    let (mut pauses, to, mut now) = (Pauses::default(), Destination::new("full"), clock::now());
    let mut last = Duration::ZERO;
    for _ in 0..12 {
        last = pauses.refused(&to, 0, QUICK_REFUSAL_TIME, now);
        assert_eq!(
            pauses.refused(&to, 0, QUICK_REFUSAL_TIME, now),
            last,
            "more refusals of one window do not extend it"
        );
        assert!(pauses.remaining(&to, now).is_some());
        now += last;
    }
    assert!(last >= MAX_PAUSE / 2 && last <= MAX_PAUSE);
    assert!(pauses.remaining(&to, now).is_none(), "the pause is over: one may be published");
    assert!(pauses.remaining(&Destination::new("healthy"), now).is_none());
    assert_eq!(pauses.confirmed(&to, true, now), Some(false));
    assert_eq!(pauses.count(), 0);
}

#[test]
fn the_cost_of_a_pause_does_not_grow_with_the_jobs_that_wait() {
    for (waiting, per_second) in [(10, 0..=50), (20_000, 500..=2000)] {
        let (mut pauses, to, began) = (Pauses::default(), Destination::new("full"), clock::now());
        // When each job is claimed next; the one that is published is refused.
        let mut next: BinaryHeap<_> = (0..waiting).map(|_| Reverse(began)).collect();
        let (mut given_back, mut longest) = (0, Duration::ZERO);
        for second in 0..60 {
            let end = began + Duration::from_secs(second + 1);
            while next.peek().is_some_and(|Reverse(at)| *at < end) {
                let Some(Reverse(now)) = next.pop() else { break };
                let wait = pauses
                    .remaining(&to, now)
                    .unwrap_or_else(|| pauses.refused(&to, 0, QUICK_REFUSAL_TIME, now));
                next.push(Reverse(now + wait));
                if second >= 40 {
                    (given_back, longest) = (given_back + 1, longest.max(wait));
                }
            }
        }
        assert!(
            per_second.contains(&(given_back / 20)),
            "{waiting} waiting: {given_back} given back in 20 s"
        );
        assert!(waiting > 100 || longest <= MAX_PAUSE + MAX_PAUSE / 4, "{longest:?}");
    }
}

#[test]
fn what_others_give_back_slows_only_the_destinations_whose_share_is_full() {
    let (mut pauses, now) = (Pauses::default(), clock::now());
    let longest = |pauses: &mut Pauses, name: &str, now| {
        let to = Destination::new(name);
        (0..500).filter_map(|_| pauses.remaining(&to, now)).max()
    };
    for n in 0..2000 {
        pauses.refused(&Destination::new(format!("silent-{n}")), n, SLOW_REFUSAL_TIME, now);
        pauses.crowded(&Destination::new(format!("full-{n}")), now);
    }
    pauses.refused(
        &Destination::new("refused once"),
        2000,
        QUICK_REFUSAL_TIME,
        now + COUNT_INTERVAL,
    );
    let waits = longest(&mut pauses, "refused once", now + COUNT_INTERVAL);
    assert!(waits.is_some_and(|longest| longest < Duration::from_secs(1)), "{waits:?}");
    // Jobs of full destinations are claimed beside the jobs that find a place: one limit binds
    // all of them.
    pauses.crowded(&Destination::new("full"), now + COUNT_INTERVAL);
    let waits = longest(&mut pauses, "full", now + COUNT_INTERVAL);
    assert!(waits.is_some_and(|longest| longest > Duration::from_secs(5)), "{waits:?}");
    // The others give nothing back any more.
    let later = now + COUNT_INTERVAL + CROWDED_TTL;
    pauses.crowded(&Destination::new("full later"), later);
    let waits = longest(&mut pauses, "full later", later);
    assert!(waits.is_some_and(|longest| longest < Duration::from_secs(1)), "{waits:?}");
}

#[test]
fn a_confirm_ends_the_pause_of_a_full_share_once_there_is_room() {
    let (mut pauses, to, now) = (Pauses::default(), Destination::new("slow"), clock::now());
    pauses.crowded(&to, now);
    assert_eq!((pauses.confirmed(&to, false, now), pauses.has(&to)), (None, true));
    assert_eq!((pauses.confirmed(&to, true, now), pauses.has(&to)), (Some(false), false));
}

#[test]
fn the_next_pause_of_a_full_share_keeps_the_rate_of_its_jobs() {
    let (mut pauses, to, mut now) = (Pauses::default(), Destination::new("late"), clock::now());
    for _ in 0..4 {
        (0..4000).for_each(|_| {
            pauses.crowded(&to, now);
        });
        now += Duration::from_secs(1);
        assert_eq!(pauses.confirmed(&to, true, now), Some(false));
        assert!(!pauses.has(&to), "there is room: jobs may wait again");
    }
    let wait = (0..100).map(|_| pauses.crowded(&to, now)).max().unwrap();
    assert!(wait > Duration::from_secs(2), "{wait:?}");
    pauses.confirmed(&to, true, now);
    pauses.forget(now + PAUSE_TTL);
    let wait = (0..100).map(|_| pauses.crowded(&to, now + PAUSE_TTL)).max().unwrap();
    assert!(wait < Duration::from_secs(1), "it starts over: {wait:?}");
}

#[test]
fn the_jobs_of_a_full_share_are_not_counted_once_the_destination_refuses() {
    let (to, now) = (Destination::new("late"), clock::now());
    let asked = Duration::from_secs(5);
    let refuses: [fn(&mut Pauses, &Destination, Duration, Instant); 3] = [
        |pauses, to, _, now| {
            pauses.refused(to, 0, QUICK_REFUSAL_TIME, now);
        },
        |pauses, to, asked, now| {
            pauses.throttled(to, asked, now);
        },
        |pauses, to, _, now| {
            (0..MAX_UNKNOWN_OUTCOMES).for_each(|token| {
                pauses.unknown(to, token.into(), false, now);
            });
        },
    ];
    for (n, refuses) in refuses.into_iter().enumerate() {
        let mut pauses = Pauses::default();
        (0..10_000).for_each(|_| {
            pauses.crowded(&to, now);
        });
        refuses(&mut pauses, &to, asked, now);
        let wait = (0..100).filter_map(|_| pauses.remaining(&to, now)).max().unwrap();
        assert!(wait < asked + Duration::from_secs(1), "{n}: {wait:?}");
    }
}

#[test]
fn twice_as_many_jobs_come_back_as_a_destination_confirms_while_it_is_not_paused() {
    let (mut pauses, to, now) = (Pauses::default(), Destination::new("quick"), clock::now());
    pauses.crowded(&to, now);
    let ended = (0..4000).filter(|_| pauses.confirmed(&to, true, now).is_some()).count();
    assert_eq!(ended, 1, "the first confirm ends the pause");
    let later = now + Duration::from_secs(1);
    let wait = (0..4000).map(|_| pauses.crowded(&to, later)).max().unwrap();
    assert!(wait < Duration::from_secs(2), "{wait:?}");
}

#[test]
fn a_destination_that_nobody_publishes_to_any_more_is_forgotten() {
    let (mut pauses, now) = (Pauses::default(), clock::now());
    let (left, tried) = (Destination::new("left"), Destination::new("tried"));
    pauses.refused(&left, 0, QUICK_REFUSAL_TIME, now);
    pauses.refused(&tried, 0, QUICK_REFUSAL_TIME, now);
    assert!(!pauses.forget(now + MIN_PAUSE));
    pauses.refused(&tried, 0, QUICK_REFUSAL_TIME, now + PAUSE_TTL);
    assert!(pauses.forget(now + MIN_PAUSE + PAUSE_TTL));
    assert_eq!(pauses.count(), 1);
    assert!(pauses.remaining(&tried, now + PAUSE_TTL).is_some());
}
