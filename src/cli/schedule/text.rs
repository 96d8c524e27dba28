//! A recurring schedule for people.

use crate::cli::table::{clean, local, relative};
use crate::units::{show_duration_ms, show_size};
use crate::view;

/// A schedule, a line for each of its fields.
pub(super) fn shown(schedule: &view::Schedule, now_ms: i64) -> String {
    let time = |ms: i64| at(ms, now_ms);
    let state = match (schedule.paused, &schedule.reason) {
        (true, Some(reason)) => format!("paused: {reason}"),
        (true, None) => "paused".to_owned(),
        (false, _) => "active".to_owned(),
    };
    let mut rows = vec![("id", schedule.id.clone()), ("schedule", schedule.schedule.clone())];
    let optional = [
        ("time zone", schedule.time_zone.clone()),
        ("start", schedule.start.clone()),
        ("end", schedule.end.clone()),
        ("count", schedule.count.map(|count| count.to_string())),
        ("state", Some(state)),
        ("catch up", Some(schedule.catch_up.to_owned())),
        ("overlap", Some(schedule.overlap.to_owned())),
        ("spread", schedule.spread_ms.map(show_duration_ms)),
        ("occurrences", Some(schedule.occurrence.to_string())),
        ("last", schedule.last_ms.map(time)),
        ("missed", Some(schedule.missed.to_string())),
        ("last missed", schedule.last_missed_ms.map(time)),
        ("broker", schedule.broker.clone()),
        ("exchange", schedule.exchange.clone().filter(|exchange| !exchange.is_empty())),
        ("target", schedule.target.clone()),
        ("queue", schedule.queue.clone()),
        ("retry", Some(retry(schedule))),
        ("ttr", Some(show_duration_ms(schedule.ttr_ms.into()))),
        ("confirm", Some(confirm(schedule))),
        ("late", schedule.late.map(|late| format!("{late:?}").to_lowercase())),
        ("max late", schedule.max_late_ms.map(show_duration_ms)),
        ("size", Some(show_size(schedule.size as u64))),
        ("stored", Some(time(schedule.created_ms))),
    ];
    rows.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    rows.extend(schedule.headers.iter().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        ("header", format!("{name}: {text}"))
    }));
    rows.extend(schedule.next.iter().map(|ms| ("next", time(*ms))));
    rows.into_iter()
        .map(|(name, value)| format!("{name:<11} {}", clean(&value)))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Times, one a line.
pub(super) fn lines(times: &[i64], now_ms: i64) -> String {
    match times {
        [] => "no further time".to_owned(),
        times => times.iter().map(|ms| at(*ms, now_ms)).collect::<Vec<_>>().join("\n"),
    }
}

fn retry(schedule: &view::Schedule) -> String {
    let waits = match &schedule.retry[..] {
        [] => "none".to_owned(),
        waits => waits.join(", "),
    };
    if schedule.retry_is_default { format!("{waits}, by the settings") } else { waits }
}

fn confirm(schedule: &view::Schedule) -> String {
    match schedule.queue {
        // The consumer of a queue always confirms.
        Some(_) => "consumer".to_owned(),
        None => format!("{:?}", schedule.confirm).to_lowercase(),
    }
}

fn at(ms: i64, now_ms: i64) -> String {
    format!("{} ({})", local(ms), relative(ms, now_ms))
}
