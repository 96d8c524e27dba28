//! The description of a namespace (`<ns>:meta`).

use std::cmp::Reverse;

use redis::Value;

use super::answer::text;
use super::client::{RedisClient, place};
use super::error::{Class, StoreError};
use super::keys::Keys;
use super::schema::{SCHEMA, Schema};
use crate::config::Redis;
use crate::policy::limit::Rate;

const BROKER_PREFIX: &str = "broker:";
/// The limits of queues, by name or pattern: a rate, or [`NO_LIMIT`].
const LIMIT_PREFIX: &str = "limit:";
const NO_LIMIT: &str = "-";
/// How many jobs of a queue are out at a time, by name or pattern: a number, or [`NO_LIMIT`].
const IN_FLIGHT_PREFIX: &str = "in_flight:";
/// Settings that hold for the whole namespace, ms.
const DEAD_RETENTION: &str = "dead_retention";
const DEDUPE_WINDOW: &str = "dedupe_window";

/// The rate of the queues of a name or pattern; `None`: they have no limit, whatever other patterns
/// say.
pub type QueueLimit = (String, Option<Rate>);

/// How many jobs of each queue of a name or pattern may be out at a time; `None`: any number, whatever
/// other patterns say.
pub type QueueInFlight = (String, Option<u32>);

/// The settings of `sweep`, kept in the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepRules {
    /// The retention of dead jobs, ms.
    pub dead_retention_ms: u64,
    /// The time for which a completed job is remembered, ms.
    pub dedupe_window_ms: u64,
}

impl SweepRules {
    /// The defaults of `delivery.dead_retention` and `delivery.dedupe_window`: the rules while no
    /// sidecar has stored its own.
    pub const DEFAULT: SweepRules =
        SweepRules { dead_retention_ms: 14 * 24 * 3_600_000, dedupe_window_ms: 120_000 };
}

/// The content of `<ns>:meta`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// The number of buckets, fixed at the first use of the namespace.
    pub buckets: u16,
    /// Every broker to which any instance ever delivered, sorted.
    pub brokers: Vec<String>,
    /// Random, created with the namespace. Another value means that the data was lost or restored.
    pub epoch: String,
    /// `delivery.dead_retention`, ms; `None` before the first instance stores it.
    pub dead_retention_ms: Option<u64>,
    /// `delivery.dedupe_window`, ms; `None` before the first instance stores it.
    pub dedupe_window_ms: Option<u64>,
    /// The limits of queues, in the order in which they apply.
    pub queue_limits: Vec<QueueLimit>,
    /// How many jobs of queues may be out at a time, in the order in which they apply.
    pub queue_in_flight: Vec<QueueInFlight>,
}

impl Meta {
    /// The stored rules, with rules of `own` in place of missing ones.
    #[must_use]
    pub fn rules_or(&self, own: SweepRules) -> SweepRules {
        SweepRules {
            dead_retention_ms: self.dead_retention_ms.unwrap_or(own.dead_retention_ms),
            dedupe_window_ms: self.dedupe_window_ms.unwrap_or(own.dedupe_window_ms),
        }
    }
}

/// Joins the namespace: creates it if it is new, and adds these brokers. Refuses another number of
/// buckets or another schema.
pub async fn join(
    link: &RedisClient,
    settings: &Redis,
    brokers: &[String],
) -> Result<Meta, StoreError> {
    let key = Keys::new(&settings.namespace, settings.buckets).meta();
    let present = fields(link, &key).await?;
    let stored = meta_of(&key, &present).map_err(|error| located(error, settings))?;
    if let Some(meta) = stored {
        agree(&meta, settings)?;
    }
    let epoch: [u8; 8] = rand::random();
    let epoch = epoch.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // The schema comes last: a reader that sees it finds the other fields too.
    let mut wanted = vec![
        ("buckets".to_owned(), settings.buckets.to_string()),
        ("epoch".to_owned(), epoch),
        ("schema".to_owned(), SCHEMA.to_string()),
    ];
    wanted
        .extend(brokers.iter().map(|broker| (format!("{BROKER_PREFIX}{broker}"), "1".to_owned())));
    // Existing fields are not written again: a full Redis would refuse that, and Dwell must be able
    // to start on a full Redis to drain it.
    for (field, value) in
        wanted.iter().filter(|(field, _)| present.iter().all(|(name, _)| name != field))
    {
        link.command("HSETNX meta", redis::cmd("HSETNX").arg(&key).arg(field).arg(value)).await?;
    }
    let meta = read(link, settings).await?;
    // Another instance may have created the namespace meanwhile.
    agree(&meta, settings)?;
    Ok(meta)
}

/// Stores these rules if the namespace has none, and returns the rules of the namespace: the first
/// instance with a rule decides.
pub(super) async fn keep(
    link: &RedisClient,
    keys: &Keys,
    own: SweepRules,
) -> Result<SweepRules, StoreError> {
    let known = read_as(link, keys).await?;
    let missing = [
        (DEAD_RETENTION, known.dead_retention_ms, own.dead_retention_ms),
        (DEDUPE_WINDOW, known.dedupe_window_ms, own.dedupe_window_ms),
    ];
    let missing: Vec<(&str, u64)> = missing
        .into_iter()
        .filter(|(_, kept, _)| kept.is_none())
        .map(|(field, _, own)| (field, own))
        .collect();
    for (field, own) in &missing {
        match link
            .command("HSETNX meta", redis::cmd("HSETNX").arg(keys.meta()).arg(field).arg(own))
            .await
        {
            // A full Redis refuses the write; a later call stores the rule, after the drain.
            Err(error) if error.class != Class::Oom => return Err(error),
            _ => {}
        }
    }
    let known = if missing.is_empty() { known } else { read_as(link, keys).await? };
    Ok(known.rules_or(own))
}

/// Replaces the rules of an existing namespace, for all its instances.
pub async fn adopt(settings: &Redis, rules: SweepRules) -> Result<(), StoreError> {
    let link = RedisClient::new(settings);
    let key = Keys::new(&settings.namespace, settings.buckets).meta();
    read(&link, settings).await?;
    let mut command = redis::cmd("HSET");
    command
        .arg(key)
        .arg(DEAD_RETENTION)
        .arg(rules.dead_retention_ms)
        .arg(DEDUPE_WINDOW)
        .arg(rules.dedupe_window_ms);
    link.command("HSET meta", &command).await.map(drop)
}

/// The field of a broker.
pub(super) fn field_of(broker: &str) -> String {
    format!("{BROKER_PREFIX}{broker}")
}

/// Adds a broker.
pub(super) async fn add_broker(
    link: &RedisClient,
    keys: &Keys,
    broker: &str,
) -> Result<(), StoreError> {
    link.command(
        "HSETNX meta",
        redis::cmd("HSETNX").arg(keys.meta()).arg(field_of(broker)).arg("1"),
    )
    .await
    .map(drop)
}

/// Adds a broker to an existing namespace.
pub(super) async fn admit(link: &RedisClient, keys: &Keys, broker: &str) -> Result<(), StoreError> {
    if read_as(link, keys).await?.brokers.iter().any(|known| known == broker) {
        return Ok(());
    }
    add_broker(link, keys, broker).await
}

/// Refuses a namespace whose number of buckets differs from the settings.
pub fn agree(meta: &Meta, settings: &Redis) -> Result<(), StoreError> {
    if meta.buckets != settings.buckets {
        return Err(StoreError::new(
            Class::Settings,
            format!("redis: the namespace `{}` has {} buckets, redis.buckets says {}", settings.namespace, meta.buckets, settings.buckets),
        )
        .hint(format!(
            "set redis.buckets = {}, or use another redis.namespace: the number is fixed when a namespace is first used",
            meta.buckets
        )));
    }
    Ok(())
}

/// Reads the description of the namespace; `None` if the namespace does not exist. Refuses an
/// unknown schema.
pub async fn look(link: &RedisClient, settings: &Redis) -> Result<Option<Meta>, StoreError> {
    let key = Keys::new(&settings.namespace, settings.buckets).meta();
    meta_of(&key, &fields(link, &key).await?)
}

/// Reads the description of the namespace. Refuses a namespace that does not exist or has an
/// unknown schema.
pub async fn read(link: &RedisClient, settings: &Redis) -> Result<Meta, StoreError> {
    let keys = Keys::new(&settings.namespace, settings.buckets);
    read_as(link, &keys).await.map_err(|error| located(error, settings))
}

/// The same error with the place of the Redis.
pub(super) fn located(mut error: StoreError, settings: &Redis) -> StoreError {
    error.message = format!("{} ({})", error.message, place(settings));
    error
}

pub(super) async fn read_as(link: &RedisClient, keys: &Keys) -> Result<Meta, StoreError> {
    let key = keys.meta();
    meta_of(&key, &fields(link, &key).await?)?.ok_or_else(|| missing(&key))
}

/// The error of a namespace that does not exist.
pub(super) fn missing(key: &str) -> StoreError {
    StoreError::new(Class::Settings, format!("redis: there is no namespace at `{key}`"))
        .hint("check redis.namespace; `dwell run` creates it on first use")
}

/// The schema in these fields. `None` if the namespace does not exist, or its creator died before
/// the end.
pub(super) fn schema_of(fields: &[(String, String)]) -> Option<Schema> {
    fields.iter().find(|(name, _)| name == "schema").map(|(_, text)| Schema::of(text))
}

/// Parses the fields of `<ns>:meta`. `None` if the namespace does not exist, or its creator died
/// before the end.
pub(super) fn meta_of(key: &str, fields: &[(String, String)]) -> Result<Option<Meta>, StoreError> {
    let field = |name: &str| {
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    };
    let Some(schema) = schema_of(fields) else { return Ok(None) };
    schema.refuse_other(key)?;
    let brokers = brokers_of(fields);
    let buckets =
        field("buckets").and_then(|text| text.parse().ok()).filter(|buckets| *buckets > 0);
    let Some(buckets) = buckets else {
        return Err(StoreError::new(
            Class::Settings,
            format!("redis: `{key}` has no number of buckets"),
        )
        .hint("restore the field `buckets`: its number of buckets at first use"));
    };
    let rule = |name| field(name).and_then(|text| text.parse().ok());
    let (dead_retention_ms, dedupe_window_ms) = (rule(DEAD_RETENTION), rule(DEDUPE_WINDOW));
    Ok(Some(Meta {
        buckets,
        brokers,
        epoch: field("epoch").unwrap_or_default().to_owned(),
        dead_retention_ms,
        dedupe_window_ms,
        queue_limits: limits_of(fields),
        queue_in_flight: in_flight_of(fields),
    }))
}

/// The field of the limit of queues.
pub(super) fn limit_field(pattern: &str) -> String {
    format!("{LIMIT_PREFIX}{pattern}")
}

/// A limit in its field.
pub(super) fn limit_text(rate: Option<Rate>) -> String {
    rate.map_or(NO_LIMIT.to_owned(), |rate| rate.to_string())
}

/// The field of how many jobs of queues may be out.
pub(super) fn in_flight_field(pattern: &str) -> String {
    format!("{IN_FLIGHT_PREFIX}{pattern}")
}

/// That number in its field.
pub(super) fn in_flight_text(most: Option<u32>) -> String {
    most.map_or(NO_LIMIT.to_owned(), |most| most.to_string())
}

/// The limits of queues in these fields: those of names, then the pattern with the most characters
/// besides `*`.
fn limits_of(fields: &[(String, String)]) -> Vec<QueueLimit> {
    in_order(fields, LIMIT_PREFIX, Rate::read)
}

/// How many jobs of queues may be out, by these fields, in the same order.
fn in_flight_of(fields: &[(String, String)]) -> Vec<QueueInFlight> {
    in_order(fields, IN_FLIGHT_PREFIX, |text| text.parse::<u32>().ok().filter(|most| *most > 0))
}

/// What the fields with this prefix say of names and patterns, in the order in which it applies.
fn in_order<T>(
    fields: &[(String, String)],
    prefix: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Vec<(String, Option<T>)> {
    let limit = |(field, text): &(String, String)| {
        let pattern = field.strip_prefix(prefix)?;
        Some((pattern.to_owned(), read(text)))
    };
    let mut limits: Vec<(String, Option<T>)> = fields.iter().filter_map(limit).collect();
    let weight = |pattern: &str| pattern.bytes().filter(|byte| *byte != b'*').count();
    // Instances may have declared two patterns of which neither wins: all follow the same one.
    limits.sort_by(|(one, _), (other, _)| {
        let rank = |pattern: &str| (pattern.contains('*'), Reverse(weight(pattern)));
        rank(one).cmp(&rank(other)).then_with(|| one.cmp(other))
    });
    limits
}

/// The brokers of these fields, sorted.
pub(super) fn brokers_of(fields: &[(String, String)]) -> Vec<String> {
    named(fields, BROKER_PREFIX)
}

/// The names behind this prefix, sorted.
fn named(fields: &[(String, String)], prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = fields
        .iter()
        .filter_map(|(name, _)| name.strip_prefix(prefix))
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

pub(super) async fn fields(
    link: &RedisClient,
    key: &str,
) -> Result<Vec<(String, String)>, StoreError> {
    Ok(match link.command("HGETALL meta", redis::cmd("HGETALL").arg(key)).await? {
        Value::Array(items) => {
            let mut items = items.into_iter().map(text);
            let mut fields = Vec::new();
            while let (Some(name), Some(value)) = (items.next(), items.next()) {
                fields.push((name, value));
            }
            fields
        }
        Value::Map(items) => {
            items.into_iter().map(|(name, value)| (text(name), text(value))).collect()
        }
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_queues_are_read_as_they_are_written_names_first() {
        let rate = Rate::new(7, 1_000_000, None);
        let limits: Vec<QueueLimit> = [
            ("orders.eu", None),
            ("*.urgent.x", Some(rate)),
            ("orders.*", None),
            ("*", Some(rate)),
        ]
        .map(|(pattern, rate)| (pattern.to_owned(), rate))
        .to_vec();
        let mut fields: Vec<(String, String)> =
            limits.iter().map(|(name, rate)| (limit_field(name), limit_text(*rate))).collect();
        fields.reverse();
        fields.push(("broker:main".to_owned(), "1".to_owned()));
        assert_eq!(limits_of(&fields), limits);
        let in_flight: Vec<QueueInFlight> = [("orders.eu", None), ("*", Some(10))]
            .map(|(name, most)| (name.to_owned(), most))
            .to_vec();
        fields.extend(
            in_flight
                .iter()
                .rev()
                .map(|(name, most)| (in_flight_field(name), in_flight_text(*most))),
        );
        assert_eq!((in_flight_of(&fields), limits_of(&fields)), (in_flight, limits));
        assert_eq!(brokers_of(&fields), ["main"]);
    }
}
