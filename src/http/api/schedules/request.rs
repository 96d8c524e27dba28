//! The body of `PUT /v1/schedules/{id}`: the fields of a recurring schedule and of its jobs.

use std::borrow::Cow;

use serde::Deserialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::keep::Part;
use crate::http::api::job_request::{NewJobRequest, given};
use crate::http::api::text::Text;
use crate::http::server::Problem;
use crate::job::JobId;
use crate::request::NewSchedule;
use crate::request::{Code, Rejection, RequestRules, schedule_from_fields};
use crate::units::quote;

/// The fields of a job that a schedule does not have.
const OF_JOBS: [&str; 3] = ["for", "until", "max_wait"];

/// A recurring schedule. Its times stand where a job has its time; the other fields are those of a
/// job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http::api) struct NewScheduleRequest {
    #[serde(flatten)]
    times: Times,
    // Also those of `OF_JOBS`, which the rules refuse.
    #[serde(flatten)]
    job: NewJobRequest,
}

/// When a schedule fires, and how it begins.
#[derive(Debug, Deserialize, ToSchema)]
struct Times {
    /// The expression: five or six cron fields, `@every 30m`, or `@hourly`, `@daily`, `@midnight`,
    /// `@weekly`, `@monthly`, `@yearly`, `@annually`
    #[schema(required = true, value_type = String, example = "0 9 * * MON-FRI")]
    schedule: Option<String>,
    /// The first moment, included: a time as in `until` of a job
    start: Option<Text>,
    /// The last moment, included
    end: Option<Text>,
    /// The most occurrences: 1 to 1000000000
    count: Option<Text>,
    /// What becomes of missed occurrences: `one` (by default: the latest is made), `none` or `all`
    /// (the latest 100 are made)
    catch_up: Option<String>,
    /// What becomes of an occurrence while the one before is alive: `allow` (by default) or `skip`
    overlap: Option<String>,
    /// A schedule that is new begins paused
    paused: Option<bool>,
    /// The parts that stay as they are stored: `body`, `headers` (and AMQP properties), `key`. The
    /// target or queue must stay too
    #[schema(value_type = Option<Vec<String>>)]
    keep: Option<Vec<Part>>,
}

impl PartialSchema for NewScheduleRequest {
    fn schema() -> RefOr<Schema> {
        let mut schema = NewJobRequest::schema();
        if let (RefOr::T(Schema::Object(job)), RefOr::T(Schema::Object(times))) =
            (&mut schema, Times::schema())
        {
            job.properties.retain(|name, _| !OF_JOBS.contains(&name.as_str()));
            job.properties.extend(times.properties);
            job.required.extend(times.required);
            let text = "A recurring schedule. Values have the form of the `delay-*` headers of a message and obey the same rules.";
            job.description = Some(text.to_owned());
        }
        schema
    }
}

impl ToSchema for NewScheduleRequest {
    fn name() -> Cow<'static, str> {
        "NewSchedule".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        NewJobRequest::schemas(schemas);
        Times::schemas(schemas);
    }
}

impl NewScheduleRequest {
    /// The queue in the request.
    pub(super) fn queue(&self) -> Option<&str> {
        self.job.queue()
    }

    /// The parts of the stored schedule that stay as they are.
    pub(super) fn keeps(&self) -> Result<Vec<Part>, Problem> {
        let parts = self.times.keep.clone().unwrap_or_default();
        match parts.iter().find(|part| self.job.has(part.name())) {
            Some(part) => Err(Problem::bad(format!(
                "keep: the request has {0} of its own: leave {0} out, here or there",
                part.name()
            ))),
            None => Ok(parts),
        }
    }

    /// The request for the schedule of this id, as the rules have it.
    pub(super) fn read(
        self,
        id: &JobId,
        rules: &RequestRules,
        now_ms: i64,
    ) -> Result<NewSchedule, Problem> {
        let NewScheduleRequest { times, job } = self;
        if let Some(other) = job.id().filter(|other| *other != id.as_str()) {
            let detail = format!(
                "id: {} is not the id in the path, {}: leave it out",
                quote(other),
                quote(id.as_str())
            );
            return Err(Rejection::new(Code::BadId, detail).into());
        }
        let (mut fields, message) = job.with_id(id).fields(rules)?;
        let text = |text: Option<Text>| text.map(|text| text.0);
        fields.extend(given([
            ("schedule", times.schedule),
            ("start", text(times.start)),
            ("end", text(times.end)),
            ("count", text(times.count)),
            ("catch-up", times.catch_up),
            ("overlap", times.overlap),
        ]));
        let new = schedule_from_fields(&fields, &message, rules, now_ms)?;
        Ok(NewSchedule { is_paused: times.paused.unwrap_or(false), ..new })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::http::api::extract::read;

    fn refusal(body: &str) -> String {
        read::<NewScheduleRequest>(body.as_bytes()).err().unwrap().detail().to_owned()
    }

    #[test]
    fn the_fields_of_times_and_of_jobs_are_read_and_no_others() {
        let body = br#"{"schedule":"@daily","start":1800000000000,"paused":true,"queue":"q","headers":{"a":1}}"#;
        let request = read::<NewScheduleRequest>(body).unwrap();
        assert_eq!(
            (request.times.schedule.as_deref(), request.queue()),
            (Some("@daily"), Some("q"))
        );
        assert_eq!(
            (request.times.start.unwrap().0.as_str(), request.times.paused),
            ("1800000000000", Some(true))
        );
        for (body, says) in [
            (r#"{"schedule":"@daily","cron":"x"}"#, "unknown field `cron`"),
            (r#"{"schedule":"@daily","schedule":"@hourly"}"#, "duplicate field `schedule`"),
            (r#"{"queue":"a","queue":"b"}"#, "duplicate field `queue`"),
            (r#"{"paused":"yes"}"#, "invalid type"),
            (r#"{"keep":["target"]}"#, "unknown variant `target`"),
            (r#"{"count":true}"#, "neither text nor an integer"),
        ] {
            assert!(refusal(body).contains(says), "{body}: {}", refusal(body));
        }
    }

    #[test]
    fn a_part_is_kept_or_sent() {
        let keeps = |body: &str| read::<NewScheduleRequest>(body.as_bytes()).unwrap().keeps();
        assert_eq!(
            keeps(r#"{"keep":["headers","key"],"body":""}"#).unwrap(),
            [Part::Headers, Part::Key]
        );
        assert_eq!(keeps("{}").unwrap(), []);
        for (part, both) in [
            ("body", r#"{"keep":["body"],"body_base64":""}"#),
            ("headers", r#"{"keep":["key","headers"],"headers":{"a":1}}"#),
            ("key", r#"{"keep":["key"],"key":"k"}"#),
        ] {
            let problem = keeps(both).unwrap_err();
            assert!(problem.detail().contains(part), "{both}: {}", problem.detail());
        }
    }

    #[test]
    fn the_schema_has_the_fields_of_both_and_no_time_of_a_job() {
        let RefOr::T(Schema::Object(schema)) = NewScheduleRequest::schema() else {
            panic!("no object")
        };
        for name in ["schedule", "time_zone", "start", "count", "queue", "headers", "spread", "id"]
        {
            assert!(schema.properties.contains_key(name), "{name}");
        }
        assert!(OF_JOBS.iter().all(|name| !schema.properties.contains_key(*name)));
        assert_eq!(schema.required, ["schedule"]);
    }
}
