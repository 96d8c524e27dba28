//! What the demo sends: ordinary jobs, and one of each fate that a job can have.

use dwell_connectors::Message;

use dwell::job::DeadReason;
use dwell::request::Code;

/// Where ordinary jobs go.
pub const ORDERS: &str = "orders.close";
/// Nothing takes messages here until two attempts have failed.
pub const INVOICES: &str = "invoices.send";
/// Nothing ever takes messages here.
pub const PARCELS: &str = "parcels.track";
/// Where the verdict of the cancel goes.
pub const VERDICTS: &str = "demo.verdicts";
/// How many jobs are ordinary.
const ORDERS_COUNT: u64 = 30;
/// The shortest delay of them, and how much longer each is than the one before, ms: the last is due after 6 s.
const FIRST_MS: u64 = 500;
const STEP_MS: u64 = 190;

/// What must become of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives, with this attempt.
    Arrives(u32),
    /// It becomes a dead letter.
    Dies(DeadReason),
    /// It is cancelled before it is due.
    Cancelled,
    /// The request is refused.
    Rejected(Code),
}

/// One request to be sent.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The job's id.
    pub id: String,
    /// Where to.
    pub target: &'static str,
    /// `delay-for`, as it is written.
    pub delay: String,
    /// The same in ms; 0 where it cannot be read.
    pub delay_ms: u64,
    /// `delay-retry`, where it is not that of the settings.
    pub retry: Option<&'static str>,
    /// What must become of it.
    pub fate: Fate,
}

/// Everything that is sent at the beginning.
#[must_use]
pub fn plan() -> Vec<Planned> {
    let mut plan: Vec<Planned> = (0..ORDERS_COUNT)
        .map(|number| {
            let delay_ms = FIRST_MS + number * STEP_MS;
            one(&format!("order-{:02}", number + 1), ORDERS, delay_ms, None, Fate::Arrives(1))
        })
        .collect();
    plan.push(one("invoice-1", INVOICES, 1000, Some("1s,1s,1s"), Fate::Arrives(3)));
    plan.push(one("parcel-1", PARCELS, 1500, Some("500ms"), Fate::Dies(DeadReason::RetriesExhausted)));
    plan.push(one("trial-1", ORDERS, 5000, None, Fate::Cancelled));
    plan.push(Planned { delay: "tomorrow".to_owned(), ..one("typo-1", ORDERS, 0, None, Fate::Rejected(Code::BadDelay)) });
    plan
}

fn one(id: &str, target: &'static str, delay_ms: u64, retry: Option<&'static str>, fate: Fate) -> Planned {
    Planned { id: id.to_owned(), target, delay: format!("{delay_ms}ms"), delay_ms, retry, fate }
}

impl Planned {
    /// The request.
    #[must_use]
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

    /// The body: no text, so that nothing may take it for one.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        [&[0, 0xff, 0xfe][..], self.id.as_bytes(), b" \r\n\0"].concat()
    }
}

/// The request that cancels a job, and asks for the verdict.
#[must_use]
pub fn cancel(id: &str) -> Message {
    Message::new("").with_header("delay-action", "cancel").with_header("delay-id", id).with_header("delay-reply-to", VERDICTS)
}
