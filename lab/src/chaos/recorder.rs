//! The recorder: writes the history during a run, and knows which results are outstanding.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use dwell::clock;
use parking_lot::Mutex;

use crate::chaos::history::{
    CANCELLED, Event, FINISHED, Op, Phase, RunHeader, Schedule, UNREADABLE,
};

/// Records events from any number of tasks.
#[derive(Debug)]
pub struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: BufWriter<File>,
    /// The first write error, reported at the end: an incomplete history proves nothing.
    error: Option<io::Error>,
    jobs: HashMap<String, Timeline>,
    arrivals: u64,
    newest_due_ms: i64,
    /// Jobs that were taken and are over.
    finished: usize,
}

/// The part of a job's timeline that tells whether a result is outstanding.
#[derive(Debug, Default)]
struct Timeline {
    /// The due time of the outstanding delivery, epoch ms; `None` for a job that may never arrive.
    due_ms: Option<i64>,
    certain: bool,
    over: bool,
    asked: bool,
    answered: bool,
    /// A cancel has begun: until its answer the job may be gone.
    cancelling: bool,
    /// The number of its requests that were returned because its record is unreadable.
    set_aside: usize,
}

impl Timeline {
    fn is_outstanding(&self) -> bool {
        self.certain && !self.over && !self.cancelling
    }

    fn reply(&mut self, action: &str, res: &str) {
        match action {
            // The answers to consumers are not waited for: a job may have several.
            "finish" => self.over |= FINISHED.contains(&res),
            "fail" => {}
            "schedule" => self.certain = true,
            _ => {
                (self.answered, self.cancelling) = (true, false);
                self.over |= action == "cancel" && CANCELLED.contains(&res);
            }
        }
    }
}

/// The outstanding results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// Jobs that were taken and have no result.
    pub jobs: Vec<String>,
    /// Requests by message that were taken and have no answer.
    pub answers: Vec<String>,
}

impl Missing {
    /// Whether nothing is outstanding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.answers.is_empty()
    }
}

impl Recorder {
    /// Starts a history in this file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(file: &Path, head: &RunHeader) -> io::Result<Recorder> {
        let mut file = BufWriter::new(File::create(file)?);
        writeln!(file, "{}", serde_json::to_string(head)?)?;
        let state = State {
            file,
            error: None,
            jobs: HashMap::new(),
            arrivals: 0,
            newest_due_ms: 0,
            finished: 0,
        };
        Ok(Recorder { state: Mutex::new(state) })
    }

    /// Records an event at the current time.
    pub fn record(&self, proc: &str, phase: Phase, op: Op) {
        let mut state = self.state.lock();
        // The lock keeps the times of the file in order.
        let event = Event { t_us: clock::wall_us(), proc: proc.to_owned(), phase, op };
        state.note(&event);
        let written = serde_json::to_string(&event)
            .map_err(io::Error::from)
            .and_then(|line| writeln!(state.file, "{line}"));
        if let (Err(error), None) = (written, &state.error) {
            state.error = Some(error);
        }
    }

    /// The outstanding results. A job without a confirmed request does not count.
    #[must_use]
    pub fn missing(&self) -> Missing {
        let state = self.state.lock();
        Missing {
            jobs: state.ids(Timeline::is_outstanding),
            answers: state.ids(|timeline| timeline.asked && !timeline.answered),
        }
    }

    /// Jobs that were taken, were due before this time (epoch ms) and have no result, except jobs
    /// for missing targets.
    #[must_use]
    pub fn overdue(&self, before_ms: i64) -> Vec<String> {
        self.state.lock().ids(|timeline| {
            timeline.is_outstanding() && timeline.due_ms.is_some_and(|due_ms| due_ms < before_ms)
        })
    }

    /// The number of requests for this job that were returned because its record is unreadable.
    #[must_use]
    pub fn set_aside(&self, id: &str) -> usize {
        self.state.lock().jobs.get(id).map_or(0, |timeline| timeline.set_aside)
    }

    /// The number of jobs that were taken and are over.
    #[must_use]
    pub fn finished(&self) -> usize {
        self.state.lock().finished
    }

    /// The number of messages read so far, repeats included; of a queue, the hand-outs.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.state.lock().arrivals
    }

    /// The latest due time of the deliveries so far, epoch ms.
    #[must_use]
    pub fn newest_due_ms(&self) -> i64 {
        self.state.lock().newest_due_ms
    }

    /// Writes buffered events to the file.
    ///
    /// # Errors
    /// An event could not be written, now or earlier.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.error.take().map_or(Ok(()), Err)?;
        state.file.flush()
    }
}

impl State {
    /// The jobs of which this is true.
    fn ids(&self, test: impl Fn(&Timeline) -> bool) -> Vec<String> {
        let jobs = self.jobs.iter().filter(|(_, timeline)| test(timeline));
        let mut ids: Vec<String> = jobs.map(|(id, _)| id.clone()).collect();
        ids.sort_unstable();
        ids
    }

    fn note(&mut self, event: &Event) {
        let Some(id) = event.op.id() else { return };
        let job = self.jobs.entry(id.to_owned()).or_default();
        let was_finished = job.certain && job.over;
        match (event.phase, &event.op) {
            // How many messages follow is not known: the store tells when it is empty.
            (Phase::Invoke, Op::Schedule(Schedule { job: Some(new), .. }))
                if new.recurring.is_some() || new.debounce.is_some() =>
            {
                job.over = true;
            }
            (Phase::Invoke, Op::Schedule(Schedule { job: Some(new), .. }))
                if !new.absent && new.refused.is_none() =>
            {
                job.due_ms = Some(new.due_ms);
            }
            (Phase::Fail, Op::Schedule(_)) => job.due_ms = None,
            (Phase::Ok, Op::Schedule(_)) => job.certain = true,
            (Phase::Invoke, Op::Reschedule(ask)) if ask.due_ms.is_some() => {
                job.due_ms = job.due_ms.and(ask.due_ms);
            }
            (Phase::Invoke, Op::Cancel(_)) => job.cancelling = true,
            (Phase::Fail, Op::Cancel(_)) => job.cancelling = false,
            (Phase::Ok, Op::Cancel(_) | Op::Reschedule(_) | Op::Fire(_)) => job.asked = true,
            (_, Op::Reply(reply)) => job.reply(&reply.action, &reply.res),
            // The job is unchanged.
            (_, Op::Reject(arrival)) if arrival.reason == UNREADABLE => {
                job.set_aside += 1;
                // The request of the job itself was returned. An older job of this id, if any, is
                // still in Redis.
                job.over |= arrival.action.is_empty();
                (job.answered, job.cancelling) = (true, false);
            }
            (_, Op::Pop(_)) => self.arrivals += 1,
            (_, Op::Lease(said)) => job.over |= FINISHED.contains(&&*said.verdict),
            (_, Op::Deliver(arrival) | Op::Dead(arrival) | Op::Reject(arrival)) => {
                job.over = true;
                self.arrivals += 1;
                self.newest_due_ms = self.newest_due_ms.max(arrival.due_ms.unwrap_or(0));
            }
            _ => {}
        }
        self.finished += usize::from(job.certain && job.over && !was_finished);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::tests::head;
    use crate::chaos::history::{Arrival, ControlRequest, History, Job, LeaseWord, Reply};

    fn schedule(id: &str) -> Op {
        Op::schedule(id, None)
    }

    #[test]
    fn a_job_of_a_queue_is_finished_once_a_consumer_was_told_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let recorder = Recorder::create(file.path(), &head()).unwrap();
        let said = |id: &str, verdict: &str| {
            let (id, verdict) = (id.to_owned(), verdict.to_owned());
            recorder.record(
                "c",
                Phase::Ok,
                Op::Lease(LeaseWord { id, verdict, ..Default::default() }),
            );
        };
        recorder.record("p", Phase::Ok, schedule("a"));
        said("a", "stale");
        said("not accepted", "finished");
        assert_eq!(recorder.finished(), 0);
        said("a", "fired");
        assert_eq!(recorder.finished(), 1);
    }

    fn arrival(id: &str) -> Op {
        let (id, topic, digest, reason) =
            (id.to_owned(), "t".to_owned(), String::new(), String::new());
        Op::Deliver(Arrival {
            id,
            topic,
            due_ms: None,
            attempt: None,
            occurrence: None,
            digest,
            place: None,
            redelivered: false,
            taken_ms: None,
            reason,
            action: String::new(),
        })
    }

    #[test]
    fn a_job_is_overdue_from_its_latest_time_until_it_came_or_was_cancelled() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let recorder = Recorder::create(file.path(), &head()).unwrap();
        let sent = |id: &str, job: Job| {
            let op = |job| Op::schedule(id, job);
            recorder.record("p", Phase::Invoke, op(Some(job)));
            recorder.record("p", Phase::Ok, op(None));
        };
        let job = Job { due_ms: 5, target: "t".to_owned(), ..Job::default() };
        sent("a", job.clone());
        sent("never there", Job { absent: true, ..job.clone() });
        sent("bad", Job { refused: Some("loop".to_owned()), ..job.clone() });
        assert_eq!((recorder.overdue(5), recorder.overdue(6)), (vec![], vec!["a".to_owned()]));
        let ask = |due_ms| ControlRequest {
            id: "a".to_owned(),
            due_ms,
            res: String::new(),
            number: None,
        };
        recorder.record("p", Phase::Invoke, Op::Reschedule(ask(Some(9))));
        assert_eq!((recorder.overdue(9).len(), recorder.overdue(10).len()), (0, 1));
        recorder.record("p", Phase::Invoke, Op::Cancel(ask(None)));
        assert!(recorder.overdue(10).is_empty(), "it may be cancelled");
        recorder.record("p", Phase::Fail, Op::Cancel(ask(None)));
        assert_eq!(recorder.overdue(10).len(), 1);
        recorder.record("r", Phase::Ok, arrival("a"));
        assert!(recorder.overdue(10).is_empty());
    }

    #[test]
    fn what_was_taken_is_missing_until_it_came_and_what_was_asked_until_it_is_answered() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let recorder = Recorder::create(file.path(), &head()).unwrap();
        recorder.record("p", Phase::Ok, schedule("a"));
        recorder.record("p", Phase::Info, schedule("b"));
        recorder.record("p", Phase::Ok, schedule("c"));
        let cancel = || {
            Op::Cancel(ControlRequest {
                id: "c".to_owned(),
                due_ms: None,
                res: String::new(),
                number: None,
            })
        };
        let missing = |jobs: &[&str], answers: &[&str]| {
            let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            Missing { jobs: owned(jobs), answers: owned(answers) }
        };
        assert_eq!(recorder.missing(), missing(&["a", "c"], &[]));
        recorder.record("r", Phase::Ok, arrival("a"));
        recorder.record("p", Phase::Invoke, cancel());
        assert_eq!(recorder.missing(), missing(&[], &[]), "it may be cancelled");
        recorder.record("p", Phase::Fail, cancel());
        assert_eq!(recorder.missing(), missing(&["c"], &[]));
        recorder.record("p", Phase::Invoke, cancel());
        recorder.record("p", Phase::Ok, cancel());
        assert_eq!(recorder.missing(), missing(&[], &["c"]));
        recorder.record(
            "r",
            Phase::Ok,
            Op::Reply(Reply {
                id: "c".to_owned(),
                action: "cancel".to_owned(),
                res: "cancelled".to_owned(),
                number: None,
            }),
        );
        assert!(recorder.missing().is_empty());
        assert_eq!(recorder.arrivals(), 1);
        // A request that was returned because the job is unreadable: the job is unchanged.
        recorder.record("p", Phase::Ok, schedule("d"));
        let Op::Deliver(came) = arrival("d") else { panic!() };
        let back = |action: &str| {
            Op::Reject(Arrival {
                reason: UNREADABLE.to_owned(),
                action: action.to_owned(),
                ..came.clone()
            })
        };
        recorder.record("r", Phase::Ok, back("cancel"));
        assert_eq!(
            (recorder.missing(), recorder.set_aside("d"), recorder.set_aside("a")),
            (missing(&["d"], &[]), 1, 0)
        );
        recorder.record("r", Phase::Ok, back(""));
        assert!(recorder.missing().is_empty());
        recorder.flush().unwrap();
        assert_eq!(History::read(file.path()).unwrap().events.len(), 12);
    }
}
