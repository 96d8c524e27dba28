//! The requests that a fault sends itself, recorded like the rest of the load.

use std::sync::Arc;

use dwell::clock;
use dwell_connectors::Message;

pub(crate) use super::draw::Action;
use super::draw::{self, NOTE_HEADER, Plan};
use super::producer::Producer;
use super::reader::{Role, read};
use super::request::Request;
use crate::chaos::history::{Job, digest};
use crate::chaos::recorder::Recorder;
use crate::chaos::system::{Error, System};

/// Jobs passed on at once.
const CHUNK_JOBS: usize = 200;

/// A client of a fault.
pub(crate) struct Extra<'a> {
    system: &'a System,
    recorder: &'a Arc<Recorder>,
    producer: Producer,
}

impl<'a> Extra<'a> {
    pub(crate) async fn open(system: &'a System) -> Result<Extra<'a>, Error> {
        let (http, recorder) = (system.api_addresses(), system.recorder()?);
        let mut producer = Producer::new(system.broker().clone(), http, Arc::clone(recorder));
        if !producer.ready().await {
            return Err(Error::unexpected("the fault has no link to the broker"));
        }
        Ok(Extra { system, recorder, producer })
    }

    /// Schedules these jobs. The body of each is its id.
    pub(crate) async fn jobs(&mut self, jobs: Vec<(String, Job)>) {
        for jobs in jobs.chunks(CHUNK_JOBS) {
            let requests = jobs.iter().map(|(id, job)| {
                let (job, message) = message(id, job.clone());
                Request::job(id, job, message, None)
            });
            self.producer.send(requests).await;
        }
    }

    /// Schedules this job again, with another due time.
    pub(crate) async fn again(&mut self, id: &str, job: Job) {
        let (job, message) = message(id, job);
        self.producer.send([Request::again(id, job, message)]).await;
    }

    /// Sends a control request: as a message, or over HTTP to this instance.
    pub(crate) async fn ask(
        &mut self,
        id: &str,
        action: Action,
        due_ms: Option<i64>,
        door: Option<usize>,
    ) {
        let plan = Plan { at_ms: clock::wall_ms(), action, due_ms, door, seen: None };
        self.producer.send([Request::control(id, &plan)]).await;
    }

    /// Reads this target from now on, as long as the system exists.
    pub(crate) fn read(&self, target: &str) {
        let (broker, recorder) = (self.system.broker().clone(), Arc::clone(self.recorder));
        let reader = read(broker, target.to_owned(), Role::Target, recorder, None);
        self.system.readers.lock().spawn(reader);
    }

    /// Waits for the outcomes of the requests.
    pub(crate) async fn close(self) {
        self.producer.finish().await;
    }
}

/// A job for this target, without digest.
pub(crate) fn job(target: &str, due_ms: i64) -> Job {
    Job { due_ms, target: target.to_owned(), ..Job::default() }
}

/// The job with its digest, and the request.
fn message(id: &str, job: Job) -> (Job, Message) {
    let note = job.due_ms.to_string();
    let job = Job { digest: digest(id.as_bytes(), [(NOTE_HEADER, &*note)]), ..job };
    let message = draw::message(id, &job, id.to_owned(), note);
    (job, message)
}
