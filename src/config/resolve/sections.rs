//! The sections without names: Redis, delivery, limits.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell_store::config::urls_in;
use figment::value::Value;

use super::Resolver;
use crate::config::rules::{self, Wrong};
use crate::config::values::Waits;
use crate::config::{Broker, Delivery, Ingest, Limits, Redis, RedisMode, secret};
use crate::units::show_duration_ms;

impl Resolver<'_> {
    pub(super) fn redis(&mut self) -> Redis {
        let mut redis: Redis = self.read(&["redis"]);
        self.check("redis.namespace", rules::namespace(&redis.namespace));
        let key = if redis.urls_file.is_some() { "redis.urls_file" } else { "redis.urls" };
        if redis.urls_file.is_some() && self.layers.is_set(&["redis", "urls"]) {
            self.note(
                "redis.urls",
                ("`urls` and `urls_file` are both set".to_owned(), "remove one of them".to_owned()),
            );
        }
        if let Some(file) = &redis.urls_file {
            let read = secret::read(file).map_err(|message| {
                (message, "name a file that holds the URLs, one a line".to_owned())
            });
            let Some(text) = self.check(key, read) else { return redis };
            redis.urls = urls_in(&text);
        }
        let urls = &redis.urls;
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
        match (redis.mode, urls.len()) {
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
        if redis.mode == RedisMode::Sentinel {
            self.check("redis.master", rules::address(&redis.master));
        }
        self.sentinel_login(&redis);
        redis
    }

    fn sentinel_login(&mut self, redis: &Redis) {
        let file = redis.sentinel_password_file.as_deref();
        let (has_user, has_password) =
            (redis.sentinel_user.is_some(), redis.sentinel_password.is_some());
        let settings =
            [("user", has_user), ("password", has_password), ("password_file", file.is_some())];
        for (name, _) in
            settings.into_iter().filter(|(_, is_set)| *is_set && redis.mode != RedisMode::Sentinel)
        {
            self.note(
                &format!("redis.sentinel_{name}"),
                (
                    "only sentinels have this login".to_owned(),
                    "set redis.mode to sentinel, or remove it".to_owned(),
                ),
            );
        }
        if has_password && file.is_some() {
            let wrong = "`sentinel_password` and `sentinel_password_file` are both set".to_owned();
            self.note("redis.sentinel_password", (wrong, "remove one of them".to_owned()));
        }
        if has_user && !has_password && file.is_none() {
            self.note(
                "redis.sentinel_user",
                (
                    "a user needs a password".to_owned(),
                    "set redis.sentinel_password_file".to_owned(),
                ),
            );
        }
        if let Some(file) = file {
            let read = secret::read(file)
                .map_err(|message| (message, "name a file that holds the password".to_owned()));
            self.check("redis.sentinel_password_file", read);
        }
    }

    pub(super) fn limits(&mut self) -> Limits {
        let limits: Limits = self.read(&["limits"]);
        if limits.max_inbound_bytes.is_some() {
            self.check_holds_a_body(&["limits", "max_inbound_bytes"], &limits);
        }
        limits
    }

    pub(super) fn delivery(
        &mut self,
        limits: &Limits,
        brokers: &BTreeMap<String, Broker>,
        ingests: &BTreeMap<String, Ingest>,
    ) -> Delivery {
        let delivery: Delivery = self.read(&["delivery"]);
        self.check_ttr(&["delivery", "ttr"], limits);
        self.check_retry(&["delivery", "retry"], &delivery.retry, limits);
        self.check_holds_a_body(&["delivery", "max_in_flight_bytes"], limits);
        let dead = &delivery.dead;
        self.check("delivery.dead", rules::printable(dead));
        let most = Duration::from_millis(delivery.publish_timeout.ms());
        for (name, broker) in brokers {
            if broker.connector.dead_letters(dead) == Some(broker.connector.destination(dead)) {
                self.check_destination("delivery.dead", dead, Some(&broker.connector));
            }
            // A default follows `publish_timeout` by itself.
            if broker.connector.timeout().is_some_and(|timeout| timeout > most)
                && self.layers.is_set(&["brokers", name, "timeout"])
                && !self.is_told("delivery.publish_timeout")
            {
                let most = show_duration_ms(delivery.publish_timeout.ms());
                let wrong =
                    format!("an attempt would take longer than delivery.publish_timeout, {most}");
                let hint = "write at most that, or raise delivery.publish_timeout".to_owned();
                self.note(&format!("brokers.{name}.timeout"), (wrong, hint));
            }
        }
        for name in brokers.keys() {
            self.check_not_read("delivery.dead", dead, name, brokers, ingests);
        }
        delivery
    }

    /// Reports a size below `limits.max_body`.
    fn check_holds_a_body(&mut self, path: &[&str], limits: &Limits) {
        self.check_limit(path, "limits.max_body", |text| {
            rules::size(text, limits.max_body.bytes(), u64::MAX)
                .map_err(|(message, hint)| (message, format!("{hint}, which is limits.max_body")))
        });
    }

    /// Reports a time to run beyond `limits.max_ttr`.
    pub(super) fn check_ttr(&mut self, path: &[&str], limits: &Limits) {
        self.check_limit(path, "limits.max_ttr", |text| {
            rules::duration(text, 1, limits.max_ttr.ms())
                .map_err(|(message, hint)| (message, format!("{hint}, or raise limits.max_ttr")))
        });
    }

    /// Reports more waits between attempts than `limits.max_retries`.
    pub(super) fn check_retry(&mut self, path: &[&str], waits: &Waits, limits: &Limits) {
        // Those that are wrong by themselves count too.
        let written = self.written(path).and_then(Value::as_array).map(<[Value]>::len);
        let (steps, most) = (written.unwrap_or(waits.len()), limits.max_retries);
        if steps > most {
            let wrong = format!("{steps} steps, but limits.max_retries is {most}");
            self.note_at(path, (wrong, "write fewer, or raise limits.max_retries".to_owned()));
        }
    }
}
