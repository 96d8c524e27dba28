//! The promises of every accepted request, by whichever door it came.

use bytes::Bytes;
use dwell::job::{Due, Job, JobId, Target, is_queue_name};
use dwell::outgoing;
use dwell::request::NewSchedule;
use dwell::request::{NewJob, RequestRules};
use dwell::store::jobs::claim::ClaimedJob;
use dwell::store::jobs::settle::{ClaimName, ClaimToken};
use dwell::store::record::{self, Record, StateRecord};
use dwell_connectors::{Destination, Header, Message};
use dwell_schedule::{Expression, occurrence_id, split_occurrence_id};

use crate::naive;
use crate::rules::NOW;

/// More than any header here: how much the server takes in a frame is not known before it is asked.
const FRAME: usize = 1 << 20;

/// The destination may be published to.
fn reachable(to: &Destination, broker: &str, rules: &RequestRules) {
    let known = &rules.brokers[broker];
    let kind = known.connector.kind();
    assert!(!naive::never(kind, to), "{to:?} belongs to the broker");
    assert!(
        known.allow.patterns().iter().any(|pattern| naive::allows(kind, pattern, to)),
        "{to:?} is not allowed"
    );
    let read = |topic: &String| {
        to.exchange.is_empty()
            && (*topic == to.address || kind == "nats" && naive::allows(kind, topic, to))
    };
    assert!(!known.ingest_topics.iter().any(read), "{to:?} is an ingest's own");
}

/// The headers that speak to Dwell, besides the prefixes `delay-`, `delayed-` and `nats-schedule-`.
const OURS: [&str; 10] = [
    "x-delay",
    "scheduler-epoch",
    "scheduler-target-topic",
    "scheduler-target-key",
    "x-timebridge-when",
    "x-timebridge-where",
    "nats-schedule",
    "nats-schedule-target",
    "x-opt-delivery-time",
    "x-opt-delivery-delay",
];

/// The header neither speaks to Dwell nor acts on the target's broker.
fn passes(header: &Header, kind: &str) {
    let name = header.name.to_ascii_lowercase();
    let starts = |prefix: &&str| name.starts_with(prefix);
    assert!(
        !["delay-", "delayed-", "nats-schedule-"].iter().any(starts)
            && !OURS.contains(&name.as_str()),
        "{name}"
    );
    if kind == "nats" {
        assert!(
            !starts(&"nats-expected-") && !["nats-rollup", "nats-msg-id"].contains(&name.as_str()),
            "{name}"
        );
    }
}

/// Everything that an accepted schedule promises: a time from now on, and occurrences that keep
/// what a job promises. `from`: see [`kept`].
pub(crate) fn kept_by_schedule(new: &NewSchedule, rules: &RequestRules, from: &str) {
    let timing = &new.timing;
    let times = timing.timetable(NOW).expect("the times agree");
    let first = times.first(NOW).expect("a time from now on");
    assert!(first >= NOW && timing.end_ms.is_none_or(|end| first <= end), "{timing:?}");
    assert_eq!(Expression::parse(&timing.text).as_ref(), Ok(&timing.expression));
    assert!(timing.count.is_none_or(|count| (1..=1_000_000_000).contains(&count)));
    let child = occurrence_id(new.id.as_str(), first);
    assert_eq!(split_occurrence_id(&child), Some((new.id.as_str(), first)));
    assert!(split_occurrence_id(new.id.as_str()).is_none());
    let occurrence = NewJob {
        origin: new.origin,
        reply_to: new.reply_to.clone(),
        ..NewJob::new(new.job.clone(), Due::At(NOW))
    };
    let id = JobId::new(child).expect("the id of an occurrence is an id");
    kept(&occurrence.id(id), rules, from);
}

/// Everything that an accepted request promises; `from`: the kind of broker that it came from,
/// empty for HTTP.
pub(crate) fn kept(new_job: &NewJob, rules: &RequestRules, from: &str) {
    let job = &new_job.job;
    if let Some(to) = &new_job.reply_to {
        reachable(to, &rules.ingest.broker, rules);
    }
    let kind = match &job.target {
        Target::Broker { broker, to } => for_broker(job, (broker, to), rules),
        Target::Queue { queue } => for_queue(job, queue, rules),
    };
    job.headers.iter().for_each(|header| passes(header, kind));
    assert!(job.body.len() as u64 <= rules.limits.max_body.bytes());
    assert!((1..=rules.limits.max_ttr.ms()).contains(&u64::from(job.ttr_ms)));
    assert!(job.retry.as_ref().is_none_or(|waits| waits.len() <= rules.limits.max_retries));
    match new_job.due {
        Due::In(ms) | Due::Earlier { in_ms: ms, .. } => assert!(ms <= rules.limits.max_delay.ms()),
        Due::At(at_ms) => assert!(
            at_ms >= 0
                && i128::from(at_ms) - i128::from(NOW) <= i128::from(rules.limits.max_delay.ms())
        ),
    }
    comes_back(new_job);
    if job.queue().is_some() {
        return;
    }
    let record = record::decode(Bytes::from(record::encode(new_job, *b"generate")))
        .expect("what was written is read");
    if let Err(why) = dwell_connectors::fuzz::publishable(kind, attempt(record, &new_job.id), FRAME)
    {
        panic!(
            "accepted from {from:?} to {kind}, and can never be published: {why}: {:?}",
            job.headers
        );
    }
}

/// The target of a job is allowed, with all its copies. Returns the kind of its broker.
fn for_broker(job: &Job, (broker, to): (&str, &Destination), rules: &RequestRules) -> &'static str {
    let kind = rules.brokers[broker].connector.kind();
    reachable(to, broker, rules);
    for header in job
        .headers
        .iter()
        .filter(|header| kind == "amqp" && ["CC", "BCC"].contains(&header.name.as_str()))
    {
        let dwell_connectors::Value::List(keys) = &header.value else { panic!("{header:?}") };
        for key in keys {
            let address = key.as_text().expect("a copy's routing key is text").to_owned();
            reachable(&Destination { exchange: to.exchange.clone(), address }, broker, rules);
        }
    }
    kind
}

/// The queue of a job is declared, and the job has nothing of a broker. A queue is of no kind.
fn for_queue(job: &Job, queue: &str, rules: &RequestRules) -> &'static str {
    assert!(
        is_queue_name(queue) && (queue == "emails" || queue.starts_with("orders.")),
        "{queue} is not declared"
    );
    assert!(rules.queues.get(queue).is_some() && job.retry.is_some());
    assert!(job.key.is_none() && job.properties.is_none(), "{job:?}");
    ""
}

/// A job comes out of its record as it went in: written again, it is the same to the byte.
pub(crate) fn comes_back(new_job: &NewJob) {
    let bytes = record::encode(new_job, *b"generate");
    let read = record::decode(Bytes::from(bytes.clone())).expect("what was written is read");
    assert_eq!(
        (read.generated, &read.generation, &read.fingerprint),
        (new_job.generated, b"generate", &new_job.origin.fingerprint)
    );
    let again = NewJob { job: read.job, ..new_job.clone() };
    assert_eq!(record::encode(&again, *b"generate"), bytes);
}

/// The first attempt of a job.
pub(crate) fn attempt(record: Record, id: &dwell::job::JobId) -> Message {
    let kind = if record.job.properties.is_some() { "amqp" } else { "nats" };
    let state = StateRecord {
        held: false,
        counted: false,
        crashes: 0,
        attempt: 1,
        step: 0,
        due_ms: NOW,
        anew_ms: None,
        generation: record.generation,
        fingerprint: record.fingerprint,
        marks: 0,
        reason: None,
        turn: Default::default(),
        last_error: String::new(),
    };
    let lease = ClaimedJob {
        id: id.clone(),
        bucket: 0,
        token: ClaimToken {
            id: id.clone(),
            lease: ClaimName { nonce: *b"noncenon", created: [0; 8] },
            position: 0,
            has_state: false,
            state: state.clone(),
        },
        deadline: dwell::clock::now(),
        taken_us: 0,
        ready: dwell::clock::now(),
        state,
        record,
        size: 0,
    };
    outgoing::attempt(&lease, crate::rules::broker(kind).capabilities())
}
