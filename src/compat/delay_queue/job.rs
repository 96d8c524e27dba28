//! A job as delay-queue's clients send it.

use bytes::Bytes;

use super::{DelayQueue, Failed};
use crate::compat::fields::Fields;
use crate::http::api::caller::Caller;
use crate::job::{Due, Job, JobId, OnTimeout};
use crate::store::reader::lookup::StoredJob;

/// The longest delay, s.
const MAX_DELAY_S: i64 = 1 << 31;
/// The longest TTR, s.
const MAX_TTR_S: i64 = 86_400;

/// A job that a client pushes.
#[derive(Debug)]
pub(super) struct Pushed {
    pub(super) topic: String,
    id: String,
    delay_s: i64,
    ttr_s: i64,
    body: Bytes,
}

/// The written form of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// For `/push`: the delay is at least a second, and the body is text.
    Push,
    /// For `/`: the job may be due at once, and the body may be any JSON.
    Classic,
}

impl Pushed {
    /// Reads `topic`, `id`, `delay`, `ttr` and `body`.
    pub(super) fn read(fields: &Fields, form: Form) -> Result<Self, Failed> {
        let least_delay = i64::from(form == Form::Push);
        let pushed = Pushed {
            topic: fields.text("topic")?,
            id: fields.text("id")?,
            delay_s: fields.integer("delay")?.unwrap_or(0),
            ttr_s: fields.integer("ttr")?.unwrap_or(0),
            body: match form {
                Form::Push => fields.text("body")?.into(),
                Form::Classic => fields.content("body")?,
            },
        };
        if pushed.id.is_empty() {
            return Err(Failed::new("the job has no `id`"));
        }
        if pushed.topic.is_empty() {
            return Err(Failed::new("the job has no `topic`"));
        }
        if !(least_delay..=MAX_DELAY_S).contains(&pushed.delay_s) {
            return Err(Failed::new(format!(
                "`delay` is not from {least_delay} to {MAX_DELAY_S} seconds"
            )));
        }
        if !(1..=MAX_TTR_S).contains(&pushed.ttr_s) {
            return Err(Failed::new(format!("`ttr` is not from 1 to {MAX_TTR_S} seconds")));
        }
        Ok(pushed)
    }
}

impl DelayQueue {
    /// Stores a job, instead of one that has its id.
    pub(super) async fn push(&self, caller: &Caller, pushed: Pushed) -> Result<(), Failed> {
        let limits = &self.service.rules().limits;
        let id = JobId::new(pushed.id).map_err(|why| Failed::new(format!("`id`: {why}")))?;
        let (delay_ms, ttr_ms) =
            (pushed.delay_s.unsigned_abs() * 1000, pushed.ttr_s.unsigned_abs() * 1000);
        if delay_ms > limits.max_delay.ms() {
            return Err(Failed::new("`delay` exceeds limits.max_delay of the settings"));
        }
        if ttr_ms > limits.max_ttr.ms() {
            return Err(Failed::new("`ttr` exceeds limits.max_ttr of the settings"));
        }
        if let Some(refusal) = self.service.refuses(&pushed.topic, pushed.body.len()) {
            return Err(Failed::new(refusal.text(&pushed.topic)));
        }
        let job = Job {
            // At most 86 400 s.
            ttr_ms: u32::try_from(ttr_ms).unwrap_or(u32::MAX),
            retry: Some(Vec::new()),
            on_timeout: OnTimeout::Ready,
            // A job is handed out until it is finished.
            tries: Some(0),
            created_ms: self.service.now_ms(),
            ..Job::for_queue(pushed.topic, pushed.body)
        };
        Ok(self.service.schedule(id, job, Due::In(delay_ms), caller.own_queues()).await?)
    }

    /// The job of this id, if it belongs to a queue.
    pub(super) async fn find(&self, id: &str) -> Result<Option<StoredJob>, Failed> {
        if id.is_empty() {
            return Err(Failed::new("the call has no `id`"));
        }
        Ok(self.service.find(None, id).await?)
    }
}

/// The names in a list of topics.
pub(super) fn topics(list: &str) -> Result<Vec<String>, Failed> {
    let names: Vec<String> =
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.is_empty() { Err(Failed::new("the call has no `topic`")) } else { Ok(names) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn read(json: &str, form: Form) -> Result<Pushed, Failed> {
        Pushed::read(&Fields::read(json.as_bytes()).unwrap(), form)
    }

    #[test]
    fn a_job_is_read_without_the_white_space_around_its_texts() {
        let pushed = read(r#"{"topic":" order ","id":" 15 ","delay":2147483648,"TTR":86400,"body":" x ","more":1}"#, Form::Push).unwrap();
        assert_eq!(
            (pushed.topic.as_str(), pushed.id.as_str(), pushed.body),
            ("order", "15", Bytes::from("x"))
        );
        assert_eq!((pushed.delay_s, pushed.ttr_s), (1 << 31, 86_400));
        let classic =
            read(r#"{"topic":"order","id":"15","delay":0,"ttr":1,"body":{"a": 1}}"#, Form::Classic)
                .unwrap();
        assert_eq!((classic.delay_s, classic.body), (0, Bytes::from("{\"a\":1}")));
    }

    #[test]
    fn what_delay_queue_refuses_is_refused() {
        for (json, named) in [
            (r#"{"topic":"a","delay":1,"ttr":1}"#, "`id`"),
            (r#"{"topic":" ","id":"1","delay":1,"ttr":1}"#, "`topic`"),
            (r#"{"topic":"a","id":"1","ttr":1}"#, "`delay`"),
            (r#"{"topic":"a","id":"1","delay":-1,"ttr":1}"#, "`delay`"),
            (r#"{"topic":"a","id":"1","delay":2147483649,"ttr":1}"#, "`delay`"),
            (r#"{"topic":"a","id":"1","delay":1,"ttr":0}"#, "`ttr`"),
            (r#"{"topic":"a","id":"1","delay":1,"ttr":86401}"#, "`ttr`"),
            (r#"{"topic":"a","id":1,"delay":1,"ttr":1}"#, "`id`"),
            (r#"{"topic":"a","id":"1","delay":1.5,"ttr":1}"#, "`delay`"),
            (r#"{"topic":"a","id":"1","delay":1,"ttr":1,"body":{}}"#, "`body`"),
        ] {
            let failed = read(json, Form::Push).unwrap_err();
            assert!(failed.text.contains(named), "{json}: {}", failed.text);
        }
    }

    #[test]
    fn a_list_of_topics_has_names() {
        assert_eq!(topics(" a, b ,,c").unwrap(), ["a", "b", "c"]);
        assert!(topics(" , ").is_err());
    }
}
