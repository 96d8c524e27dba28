//! `[schedules.NAME]`: recurring schedules that the settings have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::content::{HeaderTexts, TextOrBytes};
use super::limits::Ttr;
use super::rules::MAX_DURATION_MS;
use super::values::{Millis, Waits, without_default};
use crate::job::{Confirm, Late};
use crate::units::show_duration_ms;

/// A recurring schedule. An instance that delivers jobs stores it at its start; what is the same as
/// before changes nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["schedule"]))]
pub struct Schedule {
    /// When it fires: five or six cron fields, `@every 30m`, `@hourly`, `@daily`, `@midnight`,
    /// `@weekly`, `@monthly`, `@yearly` or `@annually`.
    #[schemars(transform = without_default)]
    pub schedule: String,
    /// The IANA name of the time zone of the cron fields, such as `Europe/Berlin`. By default UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The first moment, included: RFC 3339, without an offset in `time_zone`; or epoch
    /// milliseconds as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The last moment, included, as `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The most occurrences: 1 to 1000000000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub count: Option<u64>,
    /// What becomes of occurrences that were missed: `one` makes the latest, `none` none, `all` the
    /// latest 100. By default `one`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
    /// What becomes of an occurrence while the one before is alive: `allow` or `skip`. By default
    /// `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// The due time of each occurrence is later by a part of this that follows from the schedule's
    /// name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Millis<0, MAX_DURATION_MS>>,
    /// A schedule that is new begins paused.
    pub paused: bool,
    /// The target of the jobs: Kafka topic, NATS subject, AMQP routing key, URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The AMQP exchange; empty is the default exchange, whose routing key is a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<String>,
    /// The `[brokers.NAME]` to publish to; optional if the settings have one ingest or one broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    /// The queue from which consumers fetch the jobs, instead of `target`, `exchange` and `broker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The Kafka key: text, or `{ base64 = "…" }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<TextOrBytes>,
    /// The headers by name: text, a number, true or false, `{ base64 = "…" }`, or a list of these
    /// for a repeated name (AMQP: a value of type list).
    #[serde(skip_serializing_if = "HeaderTexts::is_empty")]
    pub headers: HeaderTexts,
    /// The time to run of each job: how long one attempt may take until it is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttr: Option<Ttr>,
    /// The waits between the attempts of a job; empty for a single attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Waits>,
    /// Who confirms an attempt: `broker` or `consumer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Confirm>,
    /// What happens to a job that is overdue by more than `max_late` at its first attempt: `fire`,
    /// `drop` or `dead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<Late>,
    /// How long a job may be overdue at its first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_late: Option<Millis<0, MAX_DURATION_MS>>,
    /// A job is dead, with the reason `expired`, if it is not delivered within this from its due time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire: Option<Millis<1, MAX_DURATION_MS>>,
    /// The body of the jobs as text. Either this or `body_base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

/// What becomes of occurrences that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// The latest is made.
    One,
    /// None is made.
    None,
    /// The latest 100 are made.
    All,
}

/// What becomes of an occurrence while the one before is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is made.
    Allow,
    /// It is not made, and counts as missed.
    Skip,
}

impl Schedule {
    /// What is set, each named as a `delay-*` header without its prefix: all but the id, `paused`,
    /// and what is in the message (body, key, headers).
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let catch_up = self.catch_up.map(|catch_up| match catch_up {
            CatchUp::One => "one",
            CatchUp::None => "none",
            CatchUp::All => "all",
        });
        let overlap = self.overlap.map(|overlap| match overlap {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
        });
        let confirm = self.confirm.map(|confirm| match confirm {
            Confirm::Broker => "broker",
            Confirm::Consumer => "consumer",
        });
        let late = self.late.map(|late| match late {
            Late::Fire => "fire",
            Late::Drop => "drop",
            Late::Dead => "dead",
        });
        let retry = self.retry.as_ref().map(|waits| match waits.is_empty() {
            true => "none".to_owned(),
            false => waits.iter().map(|ms| show_duration_ms(*ms)).collect::<Vec<_>>().join(","),
        });
        let text = |word: Option<&str>| word.map(str::to_owned);
        let fields = [
            ("schedule", Some(self.schedule.clone())),
            ("time-zone", self.time_zone.clone()),
            ("start", self.start.clone()),
            ("end", self.end.clone()),
            ("count", self.count.map(|count| count.to_string())),
            ("catch-up", text(catch_up)),
            ("overlap", text(overlap)),
            ("spread", self.spread.map(|spread| show_duration_ms(spread.ms()))),
            ("target", self.target.clone()),
            ("exchange", self.exchange.clone()),
            ("broker", self.broker.clone()),
            ("queue", self.queue.clone()),
            ("ttr", self.ttr.map(|ttr| show_duration_ms(ttr.ms()))),
            ("retry", retry),
            ("confirm", text(confirm)),
            ("late", text(late)),
            ("max-late", self.max_late.map(|late| show_duration_ms(late.ms()))),
            ("expire", self.expire.map(|expire| show_duration_ms(expire.ms()))),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The same without this setting, which is wrong; one that has to be there is set to something
    /// right. False if it is no setting that can be left out.
    pub(super) fn leave_out(&mut self, setting: &str) -> bool {
        match setting {
            "schedule" => "@daily".clone_into(&mut self.schedule),
            "time_zone" => self.time_zone = None,
            "start" => self.start = None,
            "end" => self.end = None,
            "count" => self.count = None,
            "catch_up" => self.catch_up = None,
            "overlap" => self.overlap = None,
            "spread" => self.spread = None,
            "ttr" => self.ttr = None,
            "retry" => self.retry = None,
            "confirm" => self.confirm = None,
            "late" => self.late = None,
            "max_late" => self.max_late = None,
            "expire" => self.expire = None,
            "headers" => self.headers = HeaderTexts::default(),
            "body" => (self.body, self.body_base64) = (None, None),
            "body_base64" => self.body_base64 = None,
            _ => return false,
        }
        true
    }
}
