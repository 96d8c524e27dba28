//! The subscribers to the events of jobs.

use super::feed::Feed;
use super::metrics::Metrics;
use super::trace::{self, Span};
use crate::events::{JobEvent, Observer, log};

/// The subscribers of an instance: metrics, log, spans, and the feed of the events that are
/// published. Clones share them.
#[derive(Debug, Clone)]
pub struct Events {
    metrics: Metrics,
    feed: Option<Feed>,
}

impl Events {
    /// The events are counted in these metrics.
    #[must_use]
    pub fn new(metrics: Metrics) -> Events {
        Events { metrics, feed: None }
    }

    /// The same with a feed of the events that are published.
    #[must_use]
    pub fn with_feed(self, feed: Option<Feed>) -> Events {
        Events { feed, ..self }
    }

    /// Whether a subscriber wants the facts of jobs that are settled.
    #[must_use]
    pub fn wants_facts(&self) -> bool {
        self.feed.is_some()
    }

    /// The metrics in which the events are counted.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// This happened, and ends a span.
    pub fn end(&self, span: Span, event: &JobEvent<'_>) {
        let trace_id = span.sampled_trace();
        trace::end(span, event);
        self.metrics.count(event, trace_id);
        log::write(event);
    }
}

impl Observer for Events {
    fn observe(&self, event: &JobEvent<'_>) {
        self.metrics.observe(event);
        log::write(event);
        if let Some(feed) = &self.feed {
            feed.observe(event, &self.metrics);
        }
    }
}

/// An attempt of a job to broker `main` after 2 ms.
#[cfg(test)]
pub(crate) fn attempted<'a>(
    id: &'a crate::job::JobId,
    to: &'a dwell_connectors::Destination,
    outcome: crate::events::PublishOutcome,
    is_over: bool,
) -> JobEvent<'a> {
    let is_confirmed = outcome == crate::events::PublishOutcome::Confirmed;
    JobEvent::Attempted {
        broker: "main",
        id,
        to,
        shown: "orders.a",
        attempt: 1,
        due_ms: 0,
        outcome,
        error: (!is_confirmed).then_some("no"),
        took: std::time::Duration::from_millis(2),
        late: is_confirmed.then_some(std::time::Duration::from_micros(700)),
        pause: None,
        is_over,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dwell_connectors::Destination;

    use super::*;
    use crate::events::{PublishOutcome, TargetPause};
    use crate::job::{DeadReason, JobId};
    use crate::store::due_set::DueSet;
    use crate::telemetry::log::tests::Seen;

    /// The log after this event, without times and targets.
    fn lines(event: &JobEvent<'_>) -> String {
        let (seen, events) = (Seen::default(), Events::new(Metrics::new(["main"], ["in"])));
        let into = seen.clone();
        let logs = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .with_writer(move || into.clone())
            .finish();
        tracing::subscriber::with_default(logs, || events.end(Span::default(), event));
        seen.text()
    }

    #[cfg(feature = "otel")]
    #[test]
    fn the_lateness_of_a_sampled_attempt_names_its_trace() {
        use dwell_connectors::{BrokerConfig, Message, memory};

        use crate::telemetry::metrics::Exposition;
        use crate::telemetry::trace::{About, AboutAttempt, TRACEPARENT, Traces};

        let (id, to) = (&JobId::new("a").unwrap(), &Destination::new("orders.a"));
        let connector = &BrokerConfig::Memory(memory::Config::from(&memory::Broker::new()));
        let (events, traces) = (Events::new(Metrics::new(["main"], ["in"])), Traces::unexported());
        let attempt = |flags: &str, outcome| {
            let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
            let message = &Message::new("").with_header(TRACEPARENT, parent);
            let (exchange, address, template, group) = ("", "orders.a", None, "");
            let place = About { connector, exchange, address, template, group, message };
            let job = AboutAttempt { attempt: 1, due_ms: 0, request: None };
            events.end(traces.attempt(place, job), &attempted(id, to, outcome, false));
        };
        let bucket = |form| {
            let text = events.metrics().encode_as(form);
            let line =
                text.lines().find(|line| line.contains("lateness_seconds_bucket{le=\"0.001\"}"));
            line.unwrap().to_owned()
        };
        let sample = |count| format!("dwell_lateness_seconds_bucket{{le=\"0.001\"}} {count}");
        attempt("00", PublishOutcome::Confirmed);
        attempt("01", PublishOutcome::Failed);
        assert_eq!(bucket(Exposition::OpenMetrics), sample(1));
        attempt("01", PublishOutcome::Confirmed);
        let exemplar =
            format!("{} # {{trace_id=\"0af7651916cd43dd8448eb211c80319c\"}} 0.0007 ", sample(2));
        let named = bucket(Exposition::OpenMetrics);
        assert!(named.starts_with(&exemplar), "{named}");
        assert_eq!(bucket(Exposition::Text), sample(2));
    }

    #[test]
    fn each_event_has_its_line_or_none() {
        let (id, to) = (&JobId::new("a").unwrap(), &Destination::new("orders.a"));
        let (broker, ingest, error) = ("main", "in", "no");
        let (attempt, wait_ms, reason) = (2, 5, DeadReason::RetriesExhausted);
        let paused = |word| {
            let mut event = attempted(id, to, PublishOutcome::Refused, false);
            if let JobEvent::Attempted { pause, .. } = &mut event {
                *pause = Some(TargetPause { word, noun: "host", wait: Duration::from_secs(1) });
            }
            event
        };
        let letter = |error| {
            let outcome = PublishOutcome::Failed;
            JobEvent::DeadLetter { broker, id, outcome, error }
        };
        let replied = |outcome, is_told| JobEvent::Replied {
            ingest,
            id,
            to,
            outcome,
            answer: &"no queue",
            is_told,
        };
        let rejected = |left_out| {
            let (code, position) = ("bad_id", ("delay.in", 7));
            JobEvent::Rejected { ingest, code, left_out, position }
        };
        let taken_over = |set| JobEvent::TakenOver { set, id, crashes: 1 };
        let (made_id, queue) = (&JobId::new("a@0000000000007").unwrap(), DueSet::Queue("emails"));
        let made = JobEvent::OccurrenceMade {
            schedule: id,
            id: made_id,
            set: queue,
            to: None,
            due_ms: 7,
            number: 3,
            is_caught_up: true,
        };
        let missed = |to_log| JobEvent::OccurrencesMissed {
            schedule: id,
            set: queue,
            count: 7,
            times: &[5, 6],
            reason: "overlap",
            to_log,
        };
        let table: [(JobEvent<'_>, &str, &[&str]); 22] = [
            (
                made,
                "DEBUG an occurrence of the schedule was made",
                &["schedule=a", "id=a@0000000000007", "due_ms=7", "is_caught_up=true"],
            ),
            (
                missed(Some(9)),
                "WARN occurrences of the schedule were missed",
                &["id=a", "count=9", "reason=\"overlap\"", "first_ms=5", "last_ms=6"],
            ),
            (
                missed(None),
                "DEBUG occurrences of the schedule were missed",
                &["id=a", "count=7", "reason=\"overlap\""],
            ),
            (attempted(id, to, PublishOutcome::Confirmed, false), "", &[]),
            (attempted(id, to, PublishOutcome::Failed, false), "", &[]),
            (
                attempted(id, to, PublishOutcome::Unknown, true),
                "DEBUG the outcome came after the end of the lease, another instance takes the job over",
                &["id=a", "broker=\"main\"", "why=\"no\""],
            ),
            (
                paused("refused"),
                "DEBUG refused, the host is paused",
                &["id=a", "broker=\"main\"", "why=\"no\"", "pause=1s"],
            ),
            (paused("throttled"), "DEBUG throttled, the host is paused", &["pause=1s"]),
            (
                JobEvent::Retried { broker, id, attempt, error, wait_ms },
                "DEBUG the attempt failed",
                &["id=a", "broker=\"main\"", "attempt=2", "why=\"no\"", "wait_ms=5"],
            ),
            (
                JobEvent::Dying { broker, id, attempt, error, reason },
                "DEBUG the attempt failed, the job dies",
                &["attempt=2", "why=\"no\"", "reason=\"retries_exhausted\""],
            ),
            (
                letter(Some(error)),
                "WARN the broker did not take the dead letter; the job stays among the dead in redis",
                &["id=a", "outcome=\"failed\"", "why=\"no\""],
            ),
            (letter(None), "", &[]),
            (
                JobEvent::Lost { broker, bucket: 3, count: 2, duplicates: 0 },
                "DEBUG jobs were not settled: they were cancelled, replaced or taken over",
                &["broker=\"main\"", "bucket=3", "lost=2"],
            ),
            (
                JobEvent::Abandoned { broker, count: 2 },
                "WARN no confirm within shutdown.drain, the jobs are given back and may be published twice",
                &["broker=\"main\"", "count=2"],
            ),
            (
                taken_over(DueSet::Queue("emails")),
                "WARN the lease expired without a settlement, the job is taken over",
                &["id=a", "broker=\"=emails\"", "crashes=1"],
            ),
            (
                JobEvent::Unreadable { id, bucket: 3, why: error },
                "ERROR a stored job cannot be read, it is kept among the dead",
                &["id=a", "bucket=3", "why=\"no\""],
            ),
            (
                rejected(None),
                "DEBUG rejected",
                &["ingest=\"in\"", "log=\"delay.in\"", "offset=7", "code=\"bad_id\""],
            ),
            (
                rejected(Some(("the key", error))),
                "WARN parts of a bad request were left out of `rejected` because the broker does not take them",
                &[
                    "log=\"delay.in\"",
                    "offset=7",
                    "left_out=\"the key\"",
                    "why=\"no\"",
                    "DEBUG rejected",
                ],
            ),
            (replied(PublishOutcome::Confirmed, false), "", &[]),
            (
                replied(PublishOutcome::Unroutable, false),
                "WARN the verdict could not be delivered",
                &["ingest=\"in\"", "id=a", "to=orders.a", "outcome=\"no queue\""],
            ),
            // The log has told of this target.
            (
                replied(PublishOutcome::Unknown, true),
                "DEBUG the verdict could not be delivered",
                &[],
            ),
            (
                JobEvent::RepliesAbandoned { ingest, count: 2 },
                "WARN verdicts have no confirm at shutdown and may not be delivered",
                &["ingest=\"in\"", "count=2"],
            ),
        ];
        for (event, line, fields) in table {
            let lines = lines(&event);
            assert_eq!(lines.is_empty(), line.is_empty(), "{event:?}: {lines}");
            assert!(lines.trim_start().starts_with(line), "{event:?}: {lines}");
            for field in fields {
                assert!(lines.contains(field), "{event:?}: {field} is not in {lines}");
            }
        }
    }
}
