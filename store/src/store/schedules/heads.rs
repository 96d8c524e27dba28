//! The schedules of a bucket whose next time has come, and the next time of the others.

use redis::{Pipeline, Value};

use super::Schedules;
use crate::job::JobId;
use crate::store::answer::{micros_of, score};
use crate::store::error::StoreError;

/// A look at the next times of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// The bucket.
    pub(crate) bucket: u16,
    /// Only next times from then on, epoch ms; `None`: all.
    pub(crate) from_ms: Option<i64>,
    /// Next times up to this one have come, epoch ms.
    pub(crate) to_ms: i64,
    /// How many of the first schedules are left out.
    pub(crate) skip: usize,
    /// The most schedules.
    pub(crate) most: usize,
}

/// A schedule with its next time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// The id of the schedule.
    pub(crate) id: JobId,
    /// The next nominal time, epoch ms.
    pub(crate) next_ms: i64,
}

/// The finds of a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Heads {
    /// The schedules whose next time has come, the earliest first.
    pub(crate) due: Vec<Head>,
    /// The schedules that were found; more than are due if an id cannot be read.
    pub(crate) found: usize,
    /// The earliest time of the others, epoch ms.
    pub(crate) next_ms: Option<i64>,
}

impl Schedules {
    /// Looks at buckets of one master, in one round trip, and notes the time of Redis.
    pub(crate) async fn heads(&self, looks: &[Look]) -> Result<Vec<Heads>, StoreError> {
        if looks.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        for Look { bucket, from_ms, to_ms, skip, most } in looks {
            let key = self.namespace.keys.schedule_times(*bucket);
            let from = from_ms.map_or("-inf".to_owned(), |ms| ms.to_string());
            let due = pipeline.cmd("ZRANGEBYSCORE").arg(key).arg(from).arg(*to_ms);
            due.arg("WITHSCORES").arg("LIMIT").arg(*skip).arg(*most);
            let next = pipeline.cmd("ZRANGEBYSCORE").arg(key).arg(format!("({to_ms}")).arg("+inf");
            next.arg("WITHSCORES").arg("LIMIT").arg(0).arg(1);
        }
        // After a command with a key, by which a cluster finds the master.
        pipeline.cmd("TIME");
        let doing = "looking for due schedules";
        let mut answers = self.namespace.link.pipeline(doing, &pipeline).await?;
        if let Some(time) = answers.pop() {
            self.namespace.saw_clock(micros_of(time)?);
        }
        let heads = |answers: &[Value]| {
            let (due, next) = (entries(&answers[0]), entries(&answers[1]));
            let found = due.len();
            let due = due
                .into_iter()
                .filter_map(|(id, next_ms)| Some(Head { id: JobId::new(id).ok()?, next_ms }));
            Heads { due: due.collect(), found, next_ms: next.first().map(|(_, ms)| *ms) }
        };
        Ok(answers.chunks_exact(2).map(heads).collect())
    }
}

/// Members and scores, in the form of RESP2 or RESP3. A member that is not UTF-8, which Dwell never
/// writes, has no text.
fn entries(answer: &Value) -> Vec<(String, i64)> {
    let Value::Array(items) = answer else { return Vec::new() };
    let mut items = items.iter();
    let mut entries = Vec::new();
    while let Some(item) = items.next() {
        let (id, ms) = match item {
            Value::Array(pair) => (pair.first(), pair.get(1)),
            id => (Some(id), items.next()),
        };
        if let (Some(Value::BulkString(id)), Some(ms)) = (id, ms.cloned().and_then(score)) {
            entries.push((String::from_utf8(id.clone()).unwrap_or_default(), ms));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn entries_are_read_in_both_protocols() {
        let expected = vec![("a".to_owned(), 5), ("b".to_owned(), 6)];
        let flat = Value::Array(vec![text("a"), text("5"), text("b"), text("6")]);
        assert_eq!(entries(&flat), expected);
        let pair = |id: &str, ms: f64| Value::Array(vec![text(id), Value::Double(ms)]);
        assert_eq!(entries(&Value::Array(vec![pair("a", 5.0), pair("b", 6.0)])), expected);
        assert_eq!(entries(&Value::Nil), vec![]);
    }
}
