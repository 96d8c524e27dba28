//! Tests of durations, sizes and times: the accepted forms, the refused ones, and that no text
//! panics.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

#[test]
fn every_form_of_duration_is_read() {
    let cases = [
        ("0", 0),
        ("5000", 5_000),
        (" 5000 ", 5_000),
        ("9223372036854775807", i64::MAX as u64),
        ("250ms", 250),
        ("90s", 90 * SECOND),
        ("1h30m", 90 * MINUTE),
        ("30m1h", 90 * MINUTE),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("1w2d3h4m5s6ms", 9 * DAY + 3 * HOUR + 4 * MINUTE + 5_006),
        ("1.5h", 90 * MINUTE),
        ("0.0001s", 1),
        ("0s", 0),
        ("PT15M", 15 * MINUTE),
        ("P1D", DAY),
        ("pt1s", SECOND),
        ("P1W", 7 * DAY),
        ("P1DT12H", 36 * HOUR),
        ("PT1.5S", 1_500),
        ("PT1,5S", 1_500),
        ("PT0.0000001S", 1),
        ("P0D", 0),
    ];
    for (text, ms) in cases {
        assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
    }
}

#[test]
fn what_is_no_duration_is_refused_with_its_reason() {
    let cases = [
        ("", "not a duration"),
        ("soon", "not a duration"),
        ("1.5", "not a duration"),
        ("+5", "not a duration"),
        ("5 s", "not a duration"),
        ("5S", "not a duration"),
        ("5M", "not a duration"),
        ("h", "not a duration"),
        ("1.h", "not a duration"),
        (".5h", "not a duration"),
        ("1.2.3s", "not a duration"),
        ("1h30", "not a duration"),
        ("1.0000000001s", "not a duration"),
        ("P", "not a duration"),
        ("PT", "not a duration"),
        ("P1DT", "not a duration"),
        ("PT1M1H", "not a duration"),
        ("PT1M1M", "not a duration"),
        ("PT1.5M1S", "not a duration"),
        ("P1.5DT1S", "not a duration"),
        ("P1H", "not a duration"),
        ("PTM", "not a duration"),
        ("1h1h", "twice"),
        ("-1", "negative"),
        ("-5s", "negative"),
        ("-PT5M", "negative"),
        ("PT-5M", "negative"),
        ("P1M", "differ in length"),
        ("P1Y", "differ in length"),
        ("P1Y2M3D", "differ in length"),
        ("9223372036854775808", "longer"),
        ("18446744073709551616", "longer"),
        ("99999999999999999999999999999999s", "longer"),
        ("18446744073709551615w18446744073709551615d18446744073709551615h", "longer"),
        ("P18446744073709551615W", "longer"),
    ];
    for (text, reason) in cases {
        let error = parse_duration_ms(text).expect_err(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn lists_of_durations() {
    assert_eq!(parse_durations_ms("2m,10m, 1h"), Ok(vec![2 * MINUTE, 10 * MINUTE, HOUR]));
    assert_eq!(parse_durations_ms("500"), Ok(vec![500]));
    assert_eq!(parse_durations_ms(" none "), Ok(vec![]));
    for text in ["", " ", "2m,,3m", "2m,", "none,2m", "2m;3m"] {
        assert!(parse_durations_ms(text).is_err(), "{text}");
    }
}

#[test]
fn sizes() {
    let cases = [
        ("0", 0),
        ("1048576", 1 << 20),
        ("1MiB", 1 << 20),
        ("64KiB", 65_536),
        ("2GiB", 2 << 30),
        ("5 MB", 5_000_000),
        ("1kB", 1_000),
        ("7B", 7),
    ];
    for (text, bytes) in cases {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in
        ["", "MiB", "-1", "1.5MiB", "1mib", "1K", "1TiB", "18446744073709551616", "17179869184GiB"]
    {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn durations_and_sizes_are_shown_as_people_write_them() {
    let durations = [
        (0, "0s"),
        (1, "1ms"),
        (1_500, "1s500ms"),
        (90 * SECOND, "1m30s"),
        (90 * MINUTE, "1h30m"),
        (14 * DAY, "14d"),
        (366 * DAY, "366d"),
    ];
    for (ms, text) in durations {
        assert_eq!(show_duration_ms(ms), text);
    }
    for (bytes, text) in [
        (0, "0B"),
        (1_000, "1000B"),
        (1 << 20, "1MiB"),
        (64 << 20, "64MiB"),
        (65_536, "64KiB"),
        (3 << 30, "3GiB"),
    ] {
        assert_eq!(show_size(bytes), text);
    }
    assert_eq!(show_time_ms(1_769_860_800_000), "2026-01-31T12:00:00.000Z");
    assert_eq!(show_time_ms(i64::MAX), "9223372036854775807");
}

#[test]
fn every_form_of_time_is_read() {
    let noon = 1_769_860_800_000;
    let cases = [
        ("2026-01-31T12:00:00Z", noon),
        ("2026-01-31t12:00:00z", noon),
        ("2026-01-31 12:00:00Z", noon),
        ("2026-01-31T14:00:00+02:00", noon),
        ("2026-01-31T12:00:00-00:00", noon),
        ("2026-02-01T11:59:00+23:59", noon),
        ("2026-01-31T12:00:00.250Z", noon + 250),
        ("2026-01-31T12:00:00.000000001Z", noon + 1),
        ("1769860800000", noon),
        ("100000000000", 100_000_000_000),
        ("1969-12-31T23:59:59Z", -1_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
    ];
    for (text, ms) in cases {
        assert_eq!(parse_time_ms(text), Ok(ms), "{text}");
    }
}

#[test]
fn what_is_no_time_is_refused_with_its_reason() {
    let cases = [
        ("", "not a time"),
        ("tomorrow", "not a time"),
        ("2026-01-31", "not a time"),
        ("2026-13-31T12:00:00Z", "not a time"),
        ("2026-01-31T12:00Z", "not a time"),
        ("2026-01-31T12:00:00Z[UTC]", "not a time"),
        ("2026-01-31T12:00:00.Z", "not a time"),
        ("20260131T120000Z", "not a time"),
        ("2026-01-31T12:00:00+24:00", "not a time"),
        ("2026-01-31T12:00:00+25:59", "not a time"),
        ("2026-01-31T12:00:00-02:60", "not a time"),
        ("１２", "not a time"),
        ("2026-01-31T12:00:00", "offset"),
        ("1769860800", "seconds"),
        ("0", "seconds"),
        ("-1769860800000", "negative"),
        ("9223372036854775808", "too large"),
    ];
    for (text, reason) in cases {
        let error = parse_time_ms(text).expect_err(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn quoted_values_are_short_and_on_one_line() {
    assert_eq!(quote("a\r\nb"), "`a\\r\\nb`");
    assert!(quote(&"ü".repeat(1_000)).chars().count() <= 51);
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = (parse_duration_ms(&text), parse_durations_ms(&text), parse_size(&text), parse_time_ms(&text), quote(&text));
    }

    #[test]
    fn no_text_near_the_forms_panics(text in "[-+PpTt0-9.,:YMWDHSZzmshdwKiGBk \u{00e9}]{0,40}") {
        let _ = (parse_duration_ms(&text), parse_durations_ms(&text), parse_size(&text), parse_time_ms(&text));
    }

    #[test]
    fn durations_come_back(ms in 0..=i64::MAX.unsigned_abs()) {
        prop_assert_eq!(parse_duration_ms(&show_duration_ms(ms)), Ok(ms));
        prop_assert_eq!(parse_duration_ms(&ms.to_string()), Ok(ms));
    }

    #[test]
    fn sizes_come_back(bytes in any::<u64>(), shift in 0_u32..40) {
        let bytes = (bytes >> shift) << shift;
        prop_assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
    }

    #[test]
    fn times_come_back(ms in -62_135_596_800_000_i64..253_402_207_200_000) {
        prop_assert_eq!(parse_time_ms(&show_time_ms(ms)), Ok(ms));
    }

    #[test]
    fn a_sum_is_the_sum_of_its_units(w in 0_u64..1_000, d in 0_u64..1_000, h in 0_u64..1_000, m in 0_u64..1_000, s in 0_u64..1_000, ms in 0_u64..1_000) {
        let total = w * 7 * DAY + d * DAY + h * HOUR + m * MINUTE + s * SECOND + ms;
        prop_assert_eq!(parse_duration_ms(&format!("{w}w{d}d{h}h{m}m{s}s{ms}ms")), Ok(total));
        prop_assert_eq!(parse_duration_ms(&format!("P{w}W{d}DT{h}H{m}M{s}.{ms:03}S")), Ok(total));
    }

    #[test]
    fn no_fraction_ends_early(whole in 0_u64..1_000_000, nanos in 0_u64..1_000_000_000) {
        let asked_ns = u128::from(whole) * 1_000_000_000 + u128::from(nanos);
        let ms = u128::from(parse_duration_ms(&format!("{whole}.{nanos:09}s")).expect("a duration"));
        prop_assert!(ms * 1_000_000 >= asked_ns && ms * 1_000_000 < asked_ns + 1_000_000);
    }
}
