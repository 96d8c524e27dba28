//! A request of the load, by message or over HTTP.

use dwell_connectors::Message;

use super::draw::Plan;
use super::http::Call;
use crate::chaos::history::{ControlRequest, Job, Op, Schedule};

/// A request.
pub(super) struct Request {
    /// The request in the history, without a result.
    pub(super) op: Op,
    pub(super) way: Way,
}

/// How a request is sent.
pub(super) enum Way {
    /// The id of the request identifies redeliveries where the broker has no log positions.
    Message { message: Message, dedupe_id: String },
    /// To this instance.
    Http { instance: usize, call: Call },
}

impl Request {
    /// A new job.
    pub(super) fn job(id: &str, job: Job, message: Message, door: Option<usize>) -> Request {
        let way = match door {
            Some(instance) => Way::Http { instance, call: Call::schedule(id, &job, &message) },
            None => Way::Message { message, dedupe_id: format!("s-{id}") },
        };
        Request { op: Op::schedule(id, Some(job)), way }
    }

    /// A request of a burst.
    pub(super) fn of_burst(
        (id, number): (&str, u64),
        job: Job,
        message: Message,
        door: Option<usize>,
    ) -> Request {
        let Request { way, .. } = Request::job(id, job.clone(), message, door);
        let way = match way {
            Way::Message { message, .. } => {
                Way::Message { message, dedupe_id: format!("s-{id}-{number}") }
            }
            http @ Way::Http { .. } => http,
        };
        let (id, res) = (id.to_owned(), String::new());
        Request {
            op: Op::Schedule(Schedule { id, job: Some(job), res, number: Some(number) }),
            way,
        }
    }

    /// Another schedule of the same id, as a message.
    pub(super) fn again(id: &str, job: Job, message: Message) -> Request {
        let way = Way::Message { message, dedupe_id: format!("r-{id}") };
        Request { op: Op::schedule(id, Some(job)), way }
    }

    /// A control request, or a consumer's word.
    pub(super) fn control(id: &str, plan: &Plan) -> Request {
        let number = plan.seen.map(|seen| seen.number);
        let ask =
            ControlRequest { id: id.to_owned(), due_ms: plan.due_ms, res: String::new(), number };
        let way = match plan.door {
            Some(instance) => Way::Http { instance, call: Call::control(id, plan) },
            None => {
                let number = number.map_or_else(String::new, |number| format!("-{number}"));
                let dedupe_id = format!("{}-{id}{number}", plan.action.as_str());
                Way::Message { message: plan.message(id), dedupe_id }
            }
        };
        Request { op: plan.action.op(ask), way }
    }
}
