//! The sections without names: Redis, delivery, limits.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use dwell_engine::config::urls_in;

use super::Resolver;
use crate::config::rules::{self, MAX_DURATION_MS, Wrong};
use crate::config::{Broker, Delivery, Ingest, Limits, Redis, RedisMode, raw, secret};
use crate::units::show_duration_ms;

/// 49 days: a record stores the TTR in 32 bits.
const MAX_TTR_MS: u64 = 49 * 24 * 3600 * 1000;
/// A Redis value has at most 512 MiB, and a record holds more than the body.
const MAX_BODY_BYTES: u64 = 256 * 1024 * 1024;
/// Every client library accepts this limit.
const MAX_INBOUND_BYTES: u64 = 1 << 30;
/// The default bound of read and unstored bytes, which keeps an instance with one ingest below 256
/// MiB.
const DEFAULT_INBOUND_BYTES: u64 = 64 << 20;

/// Adds the reason to the hint for a size below `limits.max_body`.
fn at_least_a_body((message, hint): Wrong) -> Wrong {
    (
        message,
        if hint.contains("at least") { format!("{hint}, which is limits.max_body") } else { hint },
    )
}

impl Resolver<'_> {
    pub(super) fn redis(&mut self) -> Option<Redis> {
        let raw: raw::Redis = self.section("redis")?;
        self.check("redis.namespace", rules::namespace(&raw.namespace));
        let key = if raw.urls_file.is_some() { "redis.urls_file" } else { "redis.urls" };
        if raw.urls_file.is_some() && self.layers.is_set(&["redis", "urls"]) {
            self.note(
                "redis.urls",
                ("`urls` and `urls_file` are both set".to_owned(), "remove one of them".to_owned()),
            );
        }
        let urls = match &raw.urls_file {
            None => raw.urls.clone(),
            Some(file) => {
                let text = self.check(
                    key,
                    secret::read(Path::new(file)).map_err(|message| {
                        (message, "name a file that holds the URLs, one a line".to_owned())
                    }),
                )?;
                urls_in(&text)
            }
        };
        for (at, url) in urls.iter().enumerate() {
            let here = |(message, hint): Wrong| {
                (if urls.len() == 1 { message } else { format!("URL {}: {message}", at + 1) }, hint)
            };
            self.check(key, rules::redis_url(url).map_err(here));
            if urls[..at].contains(url) {
                self.note(
                    key,
                    (format!("URL {} is repeated", at + 1), "remove one of them".to_owned()),
                );
            }
        }
        match (raw.mode, urls.len()) {
            (_, 0) => self.note(
                key,
                ("there is no URL".to_owned(), "write [\"redis://127.0.0.1:6379\"]".to_owned()),
            ),
            (RedisMode::Single, 2..) => {
                self.note(
                    key,
                    (
                        format!("mode \"single\" takes one URL, but there are {}", urls.len()),
                        "keep one, or set redis.mode to cluster or sentinel".to_owned(),
                    ),
                );
            }
            (RedisMode::Single | RedisMode::Cluster | RedisMode::Sentinel, _) => {}
        }
        if raw.mode == RedisMode::Sentinel {
            self.check("redis.master", rules::address(&raw.master));
        }
        self.sentinel_login(&raw);
        Some(Redis {
            mode: raw.mode,
            urls_file: raw.urls_file.map(Into::into),
            sentinel_user: raw.sentinel_user,
            sentinel_password: raw.sentinel_password,
            sentinel_password_file: raw.sentinel_password_file.map(Into::into),
            master: raw.master,
            namespace: raw.namespace,
            buckets: raw.buckets,
            durability: raw.durability,
            assume_fsync: raw.assume_fsync,
            urls,
            ..Redis::new("")
        })
    }

    fn sentinel_login(&mut self, raw: &raw::Redis) {
        let (password, file) =
            (raw.sentinel_password.as_ref(), raw.sentinel_password_file.as_ref());
        let settings =
            [("user", raw.sentinel_user.as_ref()), ("password", password), ("password_file", file)]
                .map(|(name, text)| (format!("redis.sentinel_{name}"), text));
        for (key, _) in
            settings.iter().filter(|(_, text)| text.is_some() && raw.mode != RedisMode::Sentinel)
        {
            self.note(
                key,
                (
                    "only sentinels have this login".to_owned(),
                    "set redis.mode to sentinel, or remove it".to_owned(),
                ),
            );
        }
        if password.is_some() && file.is_some() {
            let wrong = "`sentinel_password` and `sentinel_password_file` are both set".to_owned();
            self.note("redis.sentinel_password", (wrong, "remove one of them".to_owned()));
        }
        if raw.sentinel_user.is_some() && password.is_none() && file.is_none() {
            self.note(
                "redis.sentinel_user",
                (
                    "a user needs a password".to_owned(),
                    "set redis.sentinel_password_file".to_owned(),
                ),
            );
        }
        if let Some(file) = file {
            let read = secret::read(Path::new(file))
                .map_err(|message| (message, "name a file that holds the password".to_owned()));
            self.check("redis.sentinel_password_file", read);
        }
    }

    pub(super) fn limits(&mut self) -> Option<Limits> {
        let raw: raw::Limits = self.section("limits")?;
        let max_delay =
            self.check("limits.max_delay", rules::duration(&raw.max_delay, 1, MAX_DURATION_MS));
        let max_body = self.check("limits.max_body", rules::size(&raw.max_body, 1, MAX_BODY_BYTES));
        let max_ttr = self.check("limits.max_ttr", rules::duration(&raw.max_ttr, 1, MAX_TTR_MS));
        let least = max_body.unwrap_or(1);
        let inbound = if raw.max_inbound_bytes.is_empty() {
            Ok(least.max(DEFAULT_INBOUND_BYTES))
        } else {
            rules::size(&raw.max_inbound_bytes, least, MAX_INBOUND_BYTES).map_err(at_least_a_body)
        };
        let max_inbound_bytes = self.check("limits.max_inbound_bytes", inbound);
        Some(Limits {
            max_delay_ms: max_delay?,
            max_body: max_body?,
            max_retries: usize::try_from(raw.max_retries).unwrap_or(usize::MAX),
            max_rounds: u32::try_from(raw.max_rounds).unwrap_or(u32::MAX),
            max_ttr_ms: max_ttr.and_then(|ms| u32::try_from(ms).ok())?,
            max_inbound_bytes: max_inbound_bytes?,
        })
    }

    pub(super) fn delivery(
        &mut self,
        limits: Option<&Limits>,
        brokers: &BTreeMap<String, Broker>,
        ingests: &BTreeMap<String, Ingest>,
    ) -> Option<Delivery> {
        let raw: raw::Delivery = self.section("delivery")?;
        let ttr_ms = self.ttr(&["delivery", "ttr"], &raw.ttr, limits);
        let publish_timeout = self
            .check("delivery.publish_timeout", rules::duration(&raw.publish_timeout, 100, 600_000));
        let retry_ms = self.retry(&["delivery", "retry"], &raw.retry, limits);
        let max_late = match raw.max_late.trim() {
            "" => Some(None),
            text => {
                self.check("delivery.max_late", rules::duration(text, 0, MAX_DURATION_MS)).map(Some)
            }
        };
        self.check("delivery.dead", rules::printable(&raw.dead));
        for (name, broker) in brokers {
            if broker.connector.dead_letters(&raw.dead)
                == Some(broker.connector.destination(&raw.dead))
            {
                self.check_destination("delivery.dead", &raw.dead, Some(&broker.connector));
            }
            // A default follows `publish_timeout` by itself.
            if let (Some(timeout), Some(most)) = (broker.connector.timeout(), publish_timeout)
                && self.layers.is_set(&["brokers", name, "timeout"])
                && timeout > Duration::from_millis(most)
            {
                let wrong = format!(
                    "an attempt would take longer than delivery.publish_timeout, {}",
                    show_duration_ms(most)
                );
                let hint = "write at most that, or raise delivery.publish_timeout".to_owned();
                self.note(&format!("brokers.{name}.timeout"), (wrong, hint));
            }
        }
        for name in brokers.keys() {
            self.check_not_read("delivery.dead", &raw.dead, name, brokers, ingests);
        }
        let dead_retention = self.check(
            "delivery.dead_retention",
            rules::duration(&raw.dead_retention, 0, MAX_DURATION_MS),
        );
        let dedupe_window = self.check(
            "delivery.dedupe_window",
            rules::duration(&raw.dedupe_window, 1000, MAX_DURATION_MS),
        );
        let least = limits.map_or(1, |limits| limits.max_body);
        let bytes =
            rules::size(&raw.max_in_flight_bytes, least, u64::MAX >> 11).map_err(at_least_a_body);
        let bytes = self.check("delivery.max_in_flight_bytes", bytes);
        Some(Delivery {
            ttr_ms: ttr_ms?,
            publish_timeout_ms: publish_timeout?,
            retry_ms: retry_ms?,
            confirm: raw.confirm,
            late: raw.late,
            max_late_ms: max_late?,
            dead: raw.dead,
            dead_retention_ms: dead_retention?,
            dedupe_window_ms: dedupe_window?,
            max_in_flight: usize::try_from(raw.max_in_flight).unwrap_or(usize::MAX),
            max_in_flight_bytes: bytes?,
        })
    }

    /// A time to run, ms.
    pub(super) fn ttr(
        &mut self,
        path: &[&str],
        text: &str,
        limits: Option<&Limits>,
    ) -> Option<u32> {
        let max_ms = limits.map_or(MAX_TTR_MS, |limits| limits.max_ttr_ms.into());
        let beyond = |(message, hint): Wrong| {
            (
                message,
                if hint.contains("at most") {
                    format!("{hint}, or raise limits.max_ttr")
                } else {
                    hint
                },
            )
        };
        let ms = self.check_at(path, rules::duration(text, 1, max_ms).map_err(beyond))?;
        u32::try_from(ms).ok()
    }

    /// The waits between attempts, ms.
    pub(super) fn retry(
        &mut self,
        path: &[&str],
        waits: &[String],
        limits: Option<&Limits>,
    ) -> Option<Vec<u64>> {
        let steps: Vec<Option<u64>> = waits
            .iter()
            .map(|wait| self.check_at(path, rules::duration(wait, 0, MAX_DURATION_MS)))
            .collect();
        if let Some(most) =
            limits.map(|limits| limits.max_retries).filter(|most| steps.len() > *most)
        {
            let wrong = format!("{} steps, but limits.max_retries is {most}", steps.len());
            self.note_at(path, (wrong, "write fewer, or raise limits.max_retries".to_owned()));
        }
        steps.into_iter().collect()
    }
}
