//! What a fault asks for by itself, written down as the rest of the load is.

use std::sync::Arc;

use dwell::clock;
use dwell_connectors::Message;

use super::by_http;
pub(crate) use super::draw::Action;
use super::draw::{NOTE, Plan, request};
use super::producer::{Producer, Sent, asked};
use super::reader::{Role, read};
use crate::chaos::campaign::REPLIES;
use crate::chaos::history::{Ask, Job, Op, Phase, Schedule, digest};
use crate::chaos::ledger::Ledger;
use crate::chaos::world::{Error, World};

const PROC: &str = "producer";
/// How many jobs are handed over at once.
const CHUNK: usize = 200;

/// Somebody who asks for something.
pub(crate) struct Aside<'a> {
    world: &'a World,
    ledger: Arc<Ledger>,
    producer: Producer,
}

impl<'a> Aside<'a> {
    pub(crate) async fn open(world: &'a World) -> Result<Aside<'a>, Error> {
        let ledger = Arc::clone(world.ledger()?);
        let mut producer = Producer::new(world.broker().clone(), Arc::clone(&ledger));
        if !producer.ready().await {
            return Err(Error::Course("the fault has no link to the broker".to_owned()));
        }
        Ok(Aside { world, ledger, producer })
    }

    /// Asks for these jobs. Each tells its body by its id.
    pub(crate) async fn jobs(&mut self, jobs: Vec<(String, Job)>) {
        let mut messages = Vec::with_capacity(jobs.len());
        for (id, mut job) in jobs {
            let message = message(&id, &mut job);
            self.ledger.record(PROC, Phase::Invoke, schedule(&id, Some(job)));
            messages.push((Sent::Job(id), message));
        }
        while !messages.is_empty() {
            let rest = messages.split_off(messages.len().min(CHUNK));
            self.producer.send(std::mem::replace(&mut messages, rest)).await;
        }
    }

    /// Asks for this job once more, with another time.
    pub(crate) async fn again(&mut self, id: &str, mut job: Job) {
        let message = message(id, &mut job);
        self.ledger.record(PROC, Phase::Invoke, schedule(id, Some(job)));
        self.producer.send(vec![(Sent::Again(id.to_owned()), message)]).await;
    }

    /// Asks this for it, by a message.
    pub(crate) async fn ask(&mut self, id: &str, action: Action, due_ms: Option<i64>) {
        let ask = Ask { id: id.to_owned(), due_ms, res: String::new() };
        self.ledger.record(PROC, Phase::Invoke, asked(action, ask));
        let plan = Plan { at_ms: clock::wall_ms(), action, due_ms, door: None };
        self.producer.send(vec![(Sent::Ask(id.to_owned(), action, due_ms), request(id, &plan, REPLIES))]).await;
    }

    /// Asks this for it, by HTTP.
    pub(crate) async fn ask_by_http(&self, instance: usize, id: &str, action: Action) {
        let plan = Plan { at_ms: clock::wall_ms(), action, due_ms: None, door: Some(instance) };
        by_http(self.world.http(instance), instance, id.to_owned(), plan, Arc::clone(&self.ledger)).await;
    }

    /// Reads this target from now on, for as long as the world is there.
    pub(crate) fn read(&self, target: &str) {
        let reader = read(self.world.broker().clone(), target.to_owned(), Role::Target, Arc::clone(&self.ledger));
        self.world.readers.lock().spawn(reader);
    }

    /// Waits for the broker's word on what was asked by message.
    pub(crate) async fn close(self) {
        self.producer.finish().await;
    }
}

/// A job for this target, as far as anybody but its body says.
pub(crate) fn job(target: &str, due_ms: i64) -> Job {
    Job { due_ms, target: target.to_owned(), digest: String::new(), retry_ms: None, absent: false, refused: None, broker: None }
}

/// The request for it; the job then knows what is to come.
fn message(id: &str, job: &mut Job) -> Message {
    let due_ms = job.due_ms.to_string();
    job.digest = digest(id.as_bytes(), [(NOTE, &*due_ms)]);
    let message = Message::new(id.to_owned()).with_header("delay-id", id).with_header("delay-target", &job.target);
    let message = message.with_header("delay-until", &due_ms).with_header(NOTE, due_ms);
    match &job.retry_ms {
        Some(waits) if waits.is_empty() => message.with_header("delay-retry", "none"),
        _ => message,
    }
}

fn schedule(id: &str, job: Option<Job>) -> Op {
    Op::Schedule(Schedule { id: id.to_owned(), job, res: String::new() })
}
