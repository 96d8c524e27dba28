//! The requests that a fault sends itself, recorded like the rest of the load.

use std::sync::Arc;

use dwell::clock;
use dwell_connectors::Message;

pub(crate) use super::draw::Action;
use super::draw::{NOTE_HEADER, Plan};
use super::producer::{Producer, Sent, control};
use super::reader::{Role, read};
use super::{REPLY_DESTINATION, by_http};
use crate::chaos::history::{Job, Op, Phase, digest};
use crate::chaos::recorder::Recorder;
use crate::chaos::system::{Error, System};

const PROCESS_NAME: &str = "producer";
/// Jobs passed on at once.
const CHUNK_JOBS: usize = 200;

/// A client of a fault.
pub(crate) struct Extra<'a> {
    system: &'a System,
    recorder: Arc<Recorder>,
    producer: Producer,
}

impl<'a> Extra<'a> {
    pub(crate) async fn open(system: &'a System) -> Result<Extra<'a>, Error> {
        let recorder = Arc::clone(system.recorder()?);
        let mut producer = Producer::new(system.broker().clone(), Arc::clone(&recorder));
        if !producer.ready().await {
            return Err(Error::Unexpected("the fault has no link to the broker".to_owned()));
        }
        Ok(Extra { system, recorder, producer })
    }

    /// Schedules these jobs. The body of each is its id.
    pub(crate) async fn jobs(&mut self, jobs: Vec<(String, Job)>) {
        let mut messages = Vec::with_capacity(jobs.len());
        for (id, mut job) in jobs {
            let message = message(&id, &mut job);
            self.recorder.record(PROCESS_NAME, Phase::Invoke, Op::schedule(&id, Some(job)));
            messages.push((Sent::Job(id), message));
        }
        while !messages.is_empty() {
            let rest = messages.split_off(messages.len().min(CHUNK_JOBS));
            self.producer.send(std::mem::replace(&mut messages, rest)).await;
        }
    }

    /// Schedules this job again, with another due time.
    pub(crate) async fn again(&mut self, id: &str, mut job: Job) {
        let message = message(id, &mut job);
        self.recorder.record(PROCESS_NAME, Phase::Invoke, Op::schedule(id, Some(job)));
        self.producer.send(vec![(Sent::Again(id.to_owned()), message)]).await;
    }

    /// Sends a control request as a message.
    pub(crate) async fn ask(&mut self, id: &str, action: Action, due_ms: Option<i64>) {
        let plan = Plan { at_ms: clock::wall_ms(), action, due_ms, door: None, seen: None };
        let sent = control(&self.recorder, id, &plan, REPLY_DESTINATION);
        self.producer.send(vec![sent]).await;
    }

    /// Sends a control request over HTTP.
    pub(crate) async fn ask_by_http(&self, instance: usize, id: &str, action: Action) {
        let plan = Plan {
            at_ms: clock::wall_ms(),
            action,
            due_ms: None,
            door: Some(instance),
            seen: None,
        };
        let http = self.system.api_addresses();
        by_http(&http, instance, id.to_owned(), plan, &self.recorder).await;
    }

    /// Reads this target from now on, as long as the system exists.
    pub(crate) fn read(&self, target: &str) {
        let (broker, recorder) = (self.system.broker().clone(), Arc::clone(&self.recorder));
        let reader = read(broker, target.to_owned(), Role::Target, recorder, None);
        self.system.readers.lock().spawn(reader);
    }

    /// Waits for the confirms of the messages.
    pub(crate) async fn close(self) {
        self.producer.finish().await;
    }
}

/// A job for this target, without digest.
pub(crate) fn job(target: &str, due_ms: i64) -> Job {
    Job { due_ms, target: target.to_owned(), ..Job::default() }
}

/// The request; fills in the digest of the job.
fn message(id: &str, job: &mut Job) -> Message {
    let due_ms = job.due_ms.to_string();
    job.digest = digest(id.as_bytes(), [(NOTE_HEADER, &*due_ms)]);
    let message = Message::new(id.to_owned())
        .with_header("delay-id", id)
        .with_header("delay-target", &job.target);
    let message = message.with_header("delay-until", &due_ms).with_header(NOTE_HEADER, due_ms);
    match &job.retry_ms {
        Some(waits) if waits.is_empty() => message.with_header("delay-retry", "none"),
        _ => message,
    }
}
