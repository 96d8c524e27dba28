//! The requests of the demo: ordinary jobs, and one job of each fate.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_connectors::Message;
use serde_json::{Value, json};

use dwell::job::DeadReason;
use dwell::request::Code;

/// The target of ordinary jobs.
pub const ORDERS: &str = "orders.close";
/// This target does not exist until two attempts have failed.
pub const INVOICES: &str = "invoices.send";
/// This target never exists.
pub const PARCELS: &str = "parcels.track";
/// The queue, or the path, whose consumer says nothing of its first attempt.
pub const REPORTS: &str = "reports.print";
/// The destination of the cancel's verdict.
pub const VERDICTS: &str = "demo.verdicts";
/// The number of ordinary jobs.
const ORDERS_COUNT: u64 = 30;
/// The shortest delay, and the difference between two delays, ms: the last job is due after 6 s.
const FIRST_MS: u64 = 500;
const STEP_MS: u64 = 190;

/// The expected fate of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Arrives with this attempt.
    Arrives(u32),
    /// Becomes a dead letter.
    Dies(DeadReason),
    /// Is cancelled before its due time.
    Cancelled,
    /// Is rejected.
    Rejected(Code),
}

/// A request of the plan.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The job's id.
    pub id: String,
    /// The target.
    pub target: &'static str,
    /// The value of `delay-for`.
    pub delay: String,
    /// The delay in ms; 0 if the value is invalid.
    pub delay_ms: u64,
    /// `delay-retry`, if it differs from the settings.
    pub retry: Option<&'static str>,
    /// The expected fate.
    pub fate: Fate,
}

/// All requests of the demo.
pub fn plan() -> Vec<Planned> {
    all(DeadReason::RetriesExhausted, None)
}

/// All requests of the demo of queues. A target is a queue, and an arrival is a job that its
/// consumer finished.
pub fn queues() -> Vec<Planned> {
    let report = one("report-1", REPORTS, 2000, None, Fate::Arrives(2));
    all(DeadReason::Failed, Some(report))
}

/// All requests of the demo of HTTP targets. A target is the path of a URL, and an arrival is a
/// request that was answered with success, or a job that its consumer finished.
pub fn http() -> Vec<Planned> {
    let report = one("report-1", REPORTS, 2000, Some("500ms"), Fate::Arrives(2));
    all(DeadReason::RetriesExhausted, Some(report))
}

/// Ordinary jobs, one that is repeated, and one that dies for this reason.
fn all(reason: DeadReason, report: Option<Planned>) -> Vec<Planned> {
    let mut plan = ordinary();
    plan.push(one("invoice-1", INVOICES, 1000, Some("1s,1s,1s"), Fate::Arrives(3)));
    plan.push(one("parcel-1", PARCELS, 1500, Some("500ms"), Fate::Dies(reason)));
    plan.extend(report);
    plan
}

/// Ordinary jobs, one that is cancelled, and one that is rejected.
fn ordinary() -> Vec<Planned> {
    let mut plan: Vec<Planned> = (0..ORDERS_COUNT)
        .map(|number| {
            let delay_ms = FIRST_MS + number * STEP_MS;
            one(&format!("order-{:02}", number + 1), ORDERS, delay_ms, None, Fate::Arrives(1))
        })
        .collect();
    plan.push(one("trial-1", ORDERS, 5000, None, Fate::Cancelled));
    plan.push(Planned {
        delay: "tomorrow".to_owned(),
        ..one("typo-1", ORDERS, 0, None, Fate::Rejected(Code::BadDelay))
    });
    plan
}

fn one(
    id: &str,
    target: &'static str,
    delay_ms: u64,
    retry: Option<&'static str>,
    fate: Fate,
) -> Planned {
    Planned { id: id.to_owned(), target, delay: format!("{delay_ms}ms"), delay_ms, retry, fate }
}

impl Planned {
    /// The request.
    pub fn message(&self) -> Message {
        let message = Message::new(self.body())
            .with_header("delay-for", self.delay.clone())
            .with_header("delay-target", self.target)
            .with_header("delay-id", self.id.clone());
        match self.retry {
            Some(retry) => message.with_header("delay-retry", retry),
            None => message,
        }
    }

    /// The request over HTTP, for a queue.
    pub fn for_queue(&self) -> Value {
        let mut job = self.json();
        job["queue"] = self.target.into();
        job
    }

    /// The request over HTTP, without where the job goes.
    pub fn json(&self) -> Value {
        let body = STANDARD.encode(self.body());
        let mut job = json!({ "id": self.id, "for": self.delay, "body_base64": body });
        if let Some(retry) = self.retry {
            job["retry"] = retry.split(',').collect();
        }
        job
    }

    /// The body: bytes that are not valid text.
    pub fn body(&self) -> Vec<u8> {
        [&[0, 0xff, 0xfe][..], self.id.as_bytes(), b" \r\n\0"].concat()
    }
}

/// The request that cancels a job and asks for the verdict.
pub fn cancel(id: &str) -> Message {
    Message::new("")
        .with_header("delay-action", "cancel")
        .with_header("delay-id", id)
        .with_header("delay-reply-to", VERDICTS)
}
