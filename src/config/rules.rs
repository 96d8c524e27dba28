//! Rules for single values, a function each: the parsed value, or what is wrong.

use std::net::SocketAddr;

use dwell_connectors::{Start, known_scheme};
use dwell_store::config;

use crate::job::is_queue_name;
use crate::units;

/// A hundred years: Redis counts sums of such times exactly.
pub(super) const MAX_DURATION_MS: u64 = 36_525 * 24 * 3600 * 1000;

/// An hour, µs.
pub(super) const HOUR_US: u64 = 3_600_000_000;
/// The most attempts in a second, minute or hour: a µs is the unit of turns.
const MAX_RATE: u64 = 1_000_000;

/// The mistake, and its hint.
pub(super) type Wrong = (String, String);

pub(super) fn wrong<T>(message: impl Into<String>, hint: impl Into<String>) -> Result<T, Wrong> {
    Err((message.into(), hint.into()))
}

/// The name of a broker or an ingest.
pub(super) fn name(name: &str) -> Result<(), Wrong> {
    config::check_broker_name(name).map_err(|(message, hint)| (message, hint.to_owned()))
}

/// The name of a queue, or a pattern of such names.
pub(super) fn queue(name: &str) -> Result<(), Wrong> {
    if is_queue_name(&name.replace('*', "a")) {
        return Ok(());
    }
    wrong(
        "this name cannot be used",
        "write 1 to 255 of A-Z a-z 0-9 . _ -, and * for any characters",
    )
}

/// A namespace.
pub(super) fn namespace(text: &str) -> Result<(), Wrong> {
    config::check_namespace(text).map_err(|(message, hint)| (message, hint.to_owned()))
}

/// Required text of printable characters.
pub(super) fn address(text: &str) -> Result<(), Wrong> {
    if text.trim().is_empty() {
        return wrong("this is empty", "name it");
    }
    printable(text)
}

/// Text without control characters, and without white space at its ends.
pub(super) fn printable(text: &str) -> Result<(), Wrong> {
    if text.chars().any(char::is_control) || text.trim() != text {
        return wrong("this holds control characters, or white space at an end", "remove them");
    }
    Ok(())
}

/// A header's name that a message of every broker can have.
pub(super) fn header_name(text: &str) -> Result<(), Wrong> {
    if text.chars().any(|letter| letter.is_control() || letter.is_whitespace() || letter == ':') {
        return wrong(
            "no header has this name: it holds white space, a colon or a control character",
            "write the name alone",
        );
    }
    Ok(())
}

/// A rate: how many, and in which time, µs.
pub(super) fn rate(text: &str) -> Result<(u64, u64), Wrong> {
    let hint = "write 100/s, 3000/m or 20/h";
    let Some((count, unit)) = text.split_once('/') else {
        return wrong(format!("`{text}` is not a rate: it has no unit"), hint);
    };
    let per_us = match unit.trim() {
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => HOUR_US,
        _ => return wrong(format!("`{text}` is not a rate: the unit is s, m or h"), hint),
    };
    match count.trim().parse() {
        Ok(0) => wrong(format!("`{text}` is no attempt at all"), hint),
        Ok(count @ 1..=MAX_RATE) => Ok((count, per_us)),
        Ok(_) => {
            wrong(format!("`{text}` is too large a rate"), format!("write at most {MAX_RATE}"))
        }
        Err(_) => wrong(format!("`{text}` is not a rate: `{count}` is no whole number"), hint),
    }
}

/// A duration within bounds, in ms.
pub(super) fn duration(text: &str, least_ms: u64, most_ms: u64) -> Result<u64, Wrong> {
    let ms = units::parse_duration_ms(text)
        .map_err(|message| (message, "write 500ms, 90s, 1h30m or PT15M".to_owned()))?;
    within("duration", text, ms, (least_ms, most_ms), units::show_duration_ms)
}

/// Where a new group starts.
pub(super) fn start(text: &str) -> Result<Start, Wrong> {
    match text.trim() {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        time => {
            let wrong = |message| {
                (
                    message,
                    "write earliest, latest or a time such as 2026-01-31T12:00:00Z".to_owned(),
                )
            };
            units::parse_time_ms(time).map(Start::At).map_err(wrong)
        }
    }
}

/// A size within bounds, in bytes.
pub(super) fn size(text: &str, least: u64, most: u64) -> Result<u64, Wrong> {
    let bytes = units::parse_size(text)
        .map_err(|message| (message, "write 1MiB, 64KiB or 100kB".to_owned()))?;
    within("size", text, bytes, (least, most), units::show_size)
}

fn within(
    what: &str,
    text: &str,
    value: u64,
    (least, most): (u64, u64),
    show: fn(u64) -> String,
) -> Result<u64, Wrong> {
    if value < least {
        return wrong(
            format!("`{text}` is too small a {what}"),
            format!("write at least {}", show(least)),
        );
    }
    if value > most {
        return wrong(
            format!("`{text}` is too large a {what}"),
            format!("write at most {}", show(most)),
        );
    }
    Ok(value)
}

/// An address to listen on.
pub(super) fn listen(text: &str) -> Result<SocketAddr, Wrong> {
    text.parse().or_else(|_| {
        wrong(
            format!("`{text}` is not an IP address with a port"),
            "write 127.0.0.1:7464 or [::1]:7464",
        )
    })
}

/// Checks scheme, host and port of a Redis URL. Messages quote nothing else, because a URL may hold
/// a password.
pub(super) fn redis_url(url: &str) -> Result<(), Wrong> {
    let hint = "write redis://127.0.0.1:6379, or rediss://user:password@host:6379 for TLS; in a user or a password write , @ / : ? # % as \
                %2C %40 %2F %3A %3F %23 %25";
    let Some((scheme, rest)) = url.split_once("://") else {
        return wrong("this is not a URL", hint);
    };
    if !matches!(scheme, "redis" | "rediss") {
        let shown = known_scheme(url).map_or("this".to_owned(), |scheme| format!("`{scheme}`"));
        return wrong(format!("{shown} is not a Redis scheme"), hint);
    }
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if rest.rfind('@').is_some_and(|at| at > place.len()) {
        return wrong(
            "the URL has an @ behind its host: the host may be a part of the password",
            hint,
        );
    }
    let host_port = place.rsplit_once('@').map_or(place, |(_, host_port)| host_port);
    let (host, port) = match host_port.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (host_port, None),
    };
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return wrong("the URL has no host", hint);
    }
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return wrong("the URL's port is not a number from 1 to 65535", hint);
    }
    let path = rest[place.len()..].split(['?', '#']).next().unwrap_or_default();
    let database = path.trim_matches('/');
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return wrong(
            "the path of the URL is not the number of a database",
            "write a number such as redis://127.0.0.1:6379/0, or nothing behind the host",
        );
    }
    Ok(())
}
