//! Passwords in URLs of all kinds, however they are misspelt: no output has a part of one.

use std::fmt::Write;

use dwell::config::{Overrides, load_from};
use dwell_connectors::{BrokerConfig, amqp, is_address, kafka, nats, redacted, split_urls};

use crate::input::Input;

/// The pieces of passwords. Dwell's own words have no three of the marks in four characters.
const PIECES: [&str; 32] = [
    "Q", "X", "Z", "7", "8", "QX", "XZ", "ZQ", "77", "88", "QXZ7", "8ZXQ", ",", ":", "@", "/", "?",
    "#", "%", "%2C", "%40", " ", "\"", "'", "`", "\\", "\n", "[", "]", "://", "nats://", "ü",
];
const MARKS: [char; 5] = ['Q', 'X', 'Z', '7', '8'];

const SCHEMES: [&str; 12] = [
    "amqp://",
    "amqps://",
    "nats://",
    "tls://",
    "redis://",
    "rediss://",
    "SASL_SSL://",
    "https://",
    "amqp:",
    "nats:/",
    "",
    "Amqp://",
];

/// Settings that a URL may stand in, by mistake or not.
const SETTINGS: [&str; 16] = [
    "redis.urls",
    "redis.url",
    "redis.mode",
    "redis.namespace",
    "redis.buckets",
    "brokers.main.url",
    "brokers.main.urll",
    "brokers.main.bootstrap",
    "brokers.main.heartbeat",
    "brokers.main.allow",
    "brokers.main.type",
    "ingest.main.broker",
    "ingest.main.start",
    "delivery.ttr",
    "delivery.retry",
    "http.listen",
];

const FREE: [&str; 2] = ["redis.namespace", "brokers.main.allow"];

/// The pieces of a password; a way to write the URL; a setting.
pub(crate) fn target(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (spelling, scheme, setting, layer) =
        (input.byte(), input.byte(), input.byte(), input.byte());
    let pieces = input.rest().iter().take(24).map(|byte| PIECES[usize::from(*byte) % PIECES.len()]);
    let password: String = pieces.collect();
    let scheme = SCHEMES[usize::from(scheme) % SCHEMES.len()];
    // The text, and the number of URLs that it means.
    let (text, urls) = match spelling % 9 {
        0 => (format!("{scheme}bob:{password}@host"), 1),
        1 => (format!("{scheme}bob:{password}@host:1/v?heartbeat=5"), 1),
        2 => (format!("{scheme}:{password}@[::1]:1"), 1),
        3 => (format!("{scheme}a:1,{scheme}bob:{password}@host"), 2),
        4 => (format!("{scheme}bob:{password}@host,{scheme}b:2"), 2),
        // A `:` ends the user, and the last `@` the login.
        5 if !password.contains(':') => (format!("{scheme}{password}@host"), 1),
        6 if !password.contains(':') => (format!("{scheme}{password}:@host"), 1),
        // A password that begins as a port cannot be told from one (SECURITY.md).
        7 if !password.contains('@')
            && !scheme.is_empty()
            && !is_address(place(&format!("{scheme}bob:{password}"))) =>
        {
            (format!("{scheme}bob:{password}"), 1)
        }
        8 => (format!("{scheme}host?password={password}"), 1),
        _ => return,
    };
    if !names_more_servers(&text, urls) {
        keeps(
            &text,
            &password,
            &outputs(&text, SETTINGS[usize::from(setting) % SETTINGS.len()], layer % 3),
        );
    }
}

/// The text in the place of the host and port of a URL.
fn place(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    rest.split('/').next().unwrap_or_default()
}

/// Whether the text is by itself a right list of more servers than are meant, or of servers without
/// any login: then nothing in it is a password.
fn names_more_servers(text: &str, meant: usize) -> bool {
    let Ok(urls) = split_urls(text) else { return false };
    (urls.len() > meant || !text.contains(['@', '?', '#']))
        && urls.iter().all(|url| is_address(place(url)))
}

/// All that Dwell says about the text: as the URL of each connector, and in this setting.
fn outputs(text: &str, setting: &str, layer: u8) -> String {
    let mut said = redacted(text);
    let brokers = [
        BrokerConfig::Amqp(amqp::Config::at(text)),
        BrokerConfig::Nats(nats::Config::at(text)),
        BrokerConfig::Kafka(kafka::Config::at(text)),
    ];
    for broker in brokers {
        let _ = write!(said, "\n{broker:?} {} {:?}", broker.place(), broker.problems());
    }
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let least = [
        ("brokers.main.type", "nats"),
        ("brokers.main.url", "nats://h"),
        ("brokers.main.allow", "a"),
        ("ingest.main.broker", "main"),
    ];
    let mut overrides = Overrides { set: least.map(owned).to_vec() };
    let mut variables = Vec::new();
    match layer {
        0 => overrides.set.push(owned((setting, text))),
        1 => {
            overrides.set.retain(|(key, _)| key != setting);
            variables.push((
                format!("DWELL_{}", setting.to_uppercase().replace('.', "__")),
                text.to_owned(),
            ));
        }
        // As a name.
        _ => overrides.set.push(owned((&format!("{setting}.{text}"), text))),
    }
    let _ = match load_from(None, &variables, &overrides) {
        // These take any text, and keys and patterns are no secrets.
        Ok(_) if FREE.contains(&setting) => Ok(()),
        Ok(settings) => write!(said, "\n{settings:?}"),
        Err(problems) => {
            problems.iter().try_for_each(|problem| write!(said, "\n{problem} {problem:?}"))
        }
    };
    said
}

/// No four characters of the password are in what was said.
fn keeps(text: &str, password: &str, said: &str) {
    let password: Vec<char> = password.chars().collect();
    for part in
        password.windows(4).filter(|part| part.iter().filter(|c| MARKS.contains(c)).count() >= 3)
    {
        let part: String = part.iter().collect();
        if let Some(at) = said.find(&part) {
            let around = &said[said.floor_char_boundary(at.saturating_sub(100))
                ..said.ceil_char_boundary((at + 50).min(said.len()))];
            panic!("{text:?}: {part:?} is in …{around}…");
        }
    }
}
