//! Recurring schedules as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use utoipa::ToSchema;

use super::{MessageFields, key_schema, retry};
use crate::job::{Confirm, Expire, Late};
use crate::schedule::{StoredSchedule, Timing};
use crate::units::show_time_ms;

/// A recurring schedule, and the job of each of its occurrences.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[allow(missing_docs, reason = "docs/reference/http.md explains the others")]
pub struct Schedule {
    pub id: String,
    /// The expression: cron fields, `@every 30m`, `@daily`.
    pub schedule: String,
    /// The IANA name of the zone; null for `@every`, which counts elapsed time.
    pub time_zone: Option<String>,
    /// The first moment, RFC 3339 in UTC; null if there is none.
    pub start: Option<String>,
    /// The last moment, RFC 3339 in UTC; null if there is none.
    pub end: Option<String>,
    /// The most occurrences; null if there is no bound.
    pub count: Option<u64>,
    /// What becomes of missed occurrences: `one`, `none` or `all`.
    #[schema(value_type = String)]
    pub catch_up: &'static str,
    /// What becomes of an occurrence while the one before is alive: `allow` or `skip`.
    #[schema(value_type = String)]
    pub overlap: &'static str,
    /// The due times are later than the nominal ones by less than this; null: they are the same.
    pub spread_ms: Option<u64>,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// Why the schedule is paused; null if nobody said why.
    pub reason: Option<String>,
    /// The number of the newest occurrence; 0: none was made.
    pub occurrence: u64,
    /// The next nominal times, epoch ms; also of a paused schedule.
    pub next: Vec<i64>,
    /// How many occurrences were missed.
    pub missed: u64,
    /// The nominal time of the newest occurrence, epoch ms; null if none was made.
    pub last_ms: Option<i64>,
    /// The nominal time of the newest missed occurrence, epoch ms; null if none was missed.
    pub last_missed_ms: Option<i64>,
    /// The broker; null for the jobs of a queue.
    pub broker: Option<String>,
    /// The AMQP exchange; empty for other brokers; null for the jobs of a queue.
    pub exchange: Option<String>,
    /// The topic, subject or routing key; null for the jobs of a queue.
    pub target: Option<String>,
    /// The queue from which consumers fetch the jobs; null for the jobs of a broker.
    pub queue: Option<String>,
    /// The Kafka key: text, or `{"base64": "…"}` if it is not UTF-8; null without a key.
    #[schema(schema_with = key_schema)]
    pub key: serde_json::Value,
    /// The headers by name; a repeated name has a list of values.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub headers: serde_json::Map<String, serde_json::Value>,
    /// The waits between attempts, as durations; empty: a single attempt.
    pub retry: Vec<String>,
    /// Whether the waits are those of the settings, whatever these are at each attempt.
    pub retry_is_default: bool,
    #[schema(value_type = u64)]
    pub ttr_ms: u32,
    pub confirm: Confirm,
    /// What becomes of a job that is overdue by more than `max_late_ms` at its first attempt:
    /// `fire`, `drop` or `dead`; null: as in the settings.
    #[schema(value_type = Option<String>)]
    pub late: Option<Late>,
    /// How long a job may be overdue at its first attempt; null: as in the settings.
    pub max_late_ms: Option<u64>,
    /// How long after its due time a job expires; null: never.
    pub expire_ms: Option<u64>,
    /// The size of the body, bytes.
    pub size: usize,
    /// When the schedule was last stored, epoch ms.
    pub created_ms: i64,
    /// The body, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

/// The number of changed schedules.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct Changed {
    /// How many schedules were changed.
    pub changed: u64,
}

/// The next times of an expression.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Times {
    /// The next nominal times, epoch ms.
    pub next: Vec<i64>,
}

impl Times {
    /// The next times of a schedule that would be stored now: at most `most` that are later than
    /// `after_ms`, of as many as its `count`.
    #[must_use]
    pub fn of(timing: &Timing, now_ms: i64, after_ms: i64, most: usize) -> Self {
        Times { next: timing.upcoming(now_ms, timing.count, (now_ms, after_ms), most) }
    }
}

impl Schedule {
    /// A schedule with these next times. `default_retry_ms`: the retry array of a job that has none.
    #[must_use]
    pub fn of(stored: &StoredSchedule, next: Vec<i64>, default_retry_ms: &[u64]) -> Self {
        let StoredSchedule { id, timing, job, progress, .. } = stored;
        let MessageFields { broker, exchange, target, queue, key, headers } =
            MessageFields::of(job);
        let time_zone = match &timing.zone {
            Some(zone) => Some(zone.name().to_owned()),
            None => timing.expression.interval_ms().is_none().then(|| "UTC".to_owned()),
        };
        Schedule {
            id: id.as_str().to_owned(),
            schedule: timing.text.clone(),
            time_zone,
            start: timing.start_ms.map(show_time_ms),
            end: timing.end_ms.map(show_time_ms),
            count: timing.count,
            catch_up: timing.catch_up.name(),
            overlap: timing.overlap.as_str(),
            spread_ms: Some(timing.spread_ms).filter(|spread_ms| *spread_ms > 0),
            paused: progress.is_paused,
            reason: progress.reason.clone(),
            occurrence: progress.occurrence,
            next,
            missed: progress.missed,
            last_ms: progress.last_ms,
            last_missed_ms: progress.last_missed_ms,
            broker,
            exchange,
            target,
            queue,
            key,
            headers,
            retry: retry(job, default_retry_ms),
            retry_is_default: job.retry.is_none(),
            ttr_ms: job.ttr_ms,
            confirm: job.confirm,
            late: job.late,
            max_late_ms: job.max_late_ms,
            expire_ms: match job.expire {
                Some(Expire::After(ms)) => Some(ms),
                // No schedule is stored with a fixed time.
                Some(Expire::At(_)) | None => None,
            },
            size: job.body.len(),
            created_ms: job.created_ms,
            body_base64: None,
        }
    }

    /// The same with its body.
    #[must_use]
    pub fn with_body(mut self, stored: &StoredSchedule) -> Self {
        self.body_base64 = Some(STANDARD.encode(&stored.job.body));
        self
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use dwell_schedule::{CatchUp, Expression, Zone};
    use serde_json::json;

    use super::*;
    use crate::job::{Job, JobId};
    use crate::schedule::{Overlap, Progress};

    fn stored(expression: &str, zone: Option<&str>) -> StoredSchedule {
        StoredSchedule {
            id: JobId::new("report").unwrap(),
            timing: Timing {
                text: expression.to_owned(),
                expression: Expression::parse(expression).unwrap(),
                zone: zone.map(|name| Zone::parse(name).unwrap()),
                start_ms: None,
                end_ms: Some(1_800_000_000_000),
                count: Some(7),
                catch_up: CatchUp::All,
                overlap: Overlap::Skip,
                spread_ms: 0,
            },
            job: Job { created_ms: 1, ..Job::for_queue("emails", "hello") },
            from_settings: false,
            progress: Progress { occurrence: 2, last_ms: Some(5), ..Progress::default() },
        }
    }

    #[test]
    fn a_schedule_has_the_keys_of_the_contract() {
        let stored = stored("0 9 * * *", Some("europe/berlin"));
        let shown = Schedule::of(&stored, vec![8, 9], &[120_000]);
        assert_eq!(
            serde_json::to_value(&shown).unwrap(),
            json!({
                "id": "report", "schedule": "0 9 * * *", "time_zone": "Europe/Berlin", "start": null,
                "end": "2027-01-15T08:00:00.000Z", "count": 7, "catch_up": "all", "overlap": "skip",
                "spread_ms": null, "paused": false, "reason": null, "occurrence": 2, "next": [8, 9], "missed": 0,
                "last_ms": 5, "last_missed_ms": null, "broker": null, "exchange": null,
                "target": null, "queue": "emails", "key": null, "headers": {}, "retry": ["2m"],
                "retry_is_default": true, "ttr_ms": 30_000, "confirm": "broker", "late": null,
                "max_late_ms": null, "expire_ms": null, "size": 5, "created_ms": 1,
            })
        );
        assert_eq!(shown.with_body(&stored).body_base64.as_deref(), Some("aGVsbG8="));
    }

    #[test]
    fn a_schedule_tells_the_rules_of_its_own() {
        let mut stored = stored("@daily", None);
        stored.timing.spread_ms = 60_000;
        stored.job.retry = Some(vec![1_000]);
        stored.job.late = Some(Late::Drop);
        stored.job.max_late_ms = Some(5_000);
        stored.job.expire = Some(Expire::After(6_000));
        let shown = Schedule::of(&stored, Vec::new(), &[120_000]);
        assert_eq!((shown.spread_ms, shown.max_late_ms), (Some(60_000), Some(5_000)));
        assert_eq!(shown.expire_ms, Some(6_000));
        assert_eq!((shown.retry, shown.retry_is_default), (vec!["1s".to_owned()], false));
        assert_eq!(serde_json::to_value(shown.late).unwrap(), "drop");
    }

    #[test]
    fn a_preview_ends_with_the_count_and_the_end() {
        let mut timing = stored("@every 1h", None).timing;
        let next = |timing: &Timing, after_ms| Times::of(timing, 1_000, after_ms, 9).next;
        assert_eq!(next(&timing, 1_000).len(), 7, "the count");
        assert_eq!(next(&timing, 3_601_000)[..2], [7_201_000, 10_801_000], "strictly later");
        assert_eq!(next(&timing, 3_601_000).len(), 6, "one comes before");
        assert!(next(&timing, 25_201_000).is_empty(), "all seven come before");
        timing.end_ms = Some(7_201_000);
        assert_eq!(next(&timing, 0), [3_601_000, 7_201_000]);
    }

    #[test]
    fn only_elapsed_time_has_no_zone() {
        let zone = |expression| Schedule::of(&stored(expression, None), Vec::new(), &[]).time_zone;
        assert_eq!((zone("@daily").as_deref(), zone("@every 1h")), (Some("UTC"), None));
    }
}
