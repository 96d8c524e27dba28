//! `dwell-lab demo --broker queue`: a Redis, a `dwell run` without a broker, and consumers that
//! fetch their jobs over HTTP.
//!
//! - [`api`]: the calls; [`consumer`]: a consumer of a queue, and how it treats its jobs.

pub mod api;
pub mod consumer;

use std::time::Duration;

use dwell_testkit::environment::Failure;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::expectations::{Arrival, Expectations, Summary, line, span};
use super::plan::{self, Fate, Planned};
use super::screen::Screen;
use super::{CANCEL_DELAY, LINGER_WAIT, QUERY_INTERVAL, TIMEOUT};
use crate::queue::place::Place;
use api::Api;
use consumer::{End, Event, Manner};
use dwell::clock::{self, Instant};

/// The queues. A consumer of `reports.print` that says nothing for a second has lost its job.
const SETTINGS: &str = "[queues.\"orders.*\"]\n[queues.\"invoices.*\"]\n[queues.\"parcels.*\"]\n[queues.\"reports.*\"]\nttr = \"1s\"\n";

/// The longest time until Dwell settles an attempt.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Each queue and how its consumers treat their jobs.
const CONSUMERS: [(&str, Manner); 5] = [
    (plan::ORDERS, Manner::Finish),
    (plan::ORDERS, Manner::Finish),
    (plan::INVOICES, Manner::FailBelow(3)),
    (plan::PARCELS, Manner::FailBelow(u32::MAX)),
    (plan::REPORTS, Manner::SilentAtFirst),
];

/// Runs the demo.
///
/// # Errors
/// Redis, Dwell or a call failed. Wrong jobs are in the summary.
pub async fn run(silent: bool) -> Result<Summary, Failure> {
    let plan = plan::queues();
    let screen = Screen::new(silent, plan.len());
    let place = Place::start(SETTINGS).await?;
    let api = Api::new(place.port());
    // The admin API answers 503 until it is open, which is a moment after `/readyz`.
    while api.get("/v1/queues").await?.status == 503 {
        clock::sleep(QUERY_INTERVAL).await;
    }
    screen.say(&format!(
        "servers   redis-server on port {}, dwell on port {}, no broker",
        place.redis.port(),
        place.port()
    ))?;

    let (seen, events) = mpsc::unbounded_channel();
    let mut consumers = JoinSet::new();
    for (queue, manner) in CONSUMERS {
        consumers.spawn(consumer::run(api, queue, manner, seen.clone()));
    }
    screen.say(&format!("consumers {} wait for jobs, each of one queue", CONSUMERS.len()))?;
    let summary = Play::new(api, &screen).run(plan, Planned::for_queue, consumers, events).await?;
    screen.clear();
    place.stop().await?;
    Ok(summary)
}

/// The jobs of a plan over HTTP, from their requests to what their consumers say of them.
pub(super) struct Play<'a> {
    api: Api,
    screen: &'a Screen,
    expectations: Expectations,
}

impl<'a> Play<'a> {
    pub(super) fn new(api: Api, screen: &'a Screen) -> Self {
        Play { api, screen, expectations: Expectations::new(Vec::new(), 0) }
    }

    /// `request`: a planned job as the body of a request.
    pub(super) async fn run(
        mut self,
        plan: Vec<Planned>,
        request: impl Fn(&Planned) -> Value,
        mut consumers: JoinSet<Result<(), Failure>>,
        mut events: mpsc::UnboundedReceiver<Event>,
    ) -> Result<Summary, Failure> {
        let began = clock::now();
        let over = self.schedule(plan, request).await?;
        let mut to_cancel = Some(began + CANCEL_DELAY);
        let mut look_at = clock::now();
        while clock::now() < began + TIMEOUT
            && (self.expectations.fulfilled() < self.expectations.len() || clock::now() < over)
        {
            tokio::select! {
                Some(event) = events.recv() => self.saw(event).await?,
                Some(ended) = consumers.join_next() => {
                    return Err(match ended {
                        Ok(Err(failure)) => failure,
                        Ok(Ok(())) => Failure::Unexpected("a consumer of the demo ended".to_owned()),
                        Err(error) => Failure::Unexpected(format!("a consumer of the demo failed: {error}")),
                    });
                }
                () = clock::sleep_until(look_at) => {
                    look_at = clock::now() + QUERY_INTERVAL;
                    let stats = self.api.get("/v1/stats").await?.json;
                    let next = stats["next_due_ms"].as_i64().zip(stats["now_ms"].as_i64()).map(|(due, now)| due - now);
                    self.screen.waiting(self.expectations.fulfilled(), stats["scheduled"].as_u64().unwrap_or(0), next);
                    if to_cancel.is_some_and(|at| clock::now() >= at) {
                        to_cancel = None;
                        self.cancel().await?;
                    }
                }
            }
        }
        Ok(self.expectations.summary())
    }

    /// Schedules the jobs. Returns when the last is due, and some time more.
    async fn schedule(
        &mut self,
        plan: Vec<Planned>,
        request: impl Fn(&Planned) -> Value,
    ) -> Result<Instant, Failure> {
        let (began, began_ms) = (clock::now(), clock::wall_ms());
        let longest = plan.iter().map(|planned| planned.delay_ms).max().unwrap_or(0);
        let count = plan.len();
        // A wrong job would stop none of the others in an array; alone it is answered by a problem.
        let (bad, good): (Vec<&Planned>, Vec<&Planned>) =
            plan.iter().partition(|planned| matches!(planned.fate, Fate::Rejected(_)));
        let (bad, good): (Vec<Value>, Vec<Value>) =
            (bad.into_iter().map(&request).collect(), good.into_iter().map(&request).collect());
        self.expectations = Expectations::new(plan, began_ms);
        let answer = self.api.post("/v1/jobs", &Value::from(good)).await?;
        if answer.status / 100 != 2 {
            return Err(answer.unexpected("POST /v1/jobs"));
        }
        self.screen.say(&format!(
            "sent      {count} requests to POST /v1/jobs, for later: 0.5 s to 6 s"
        ))?;
        for job in bad {
            let problem = self.api.post("/v1/jobs", &job).await?.json;
            let text = |name: &str| problem[name].as_str().unwrap_or("?").to_owned();
            let rejected = self.expectations.rejected(
                job["id"].as_str().unwrap_or("?"),
                &text("code"),
                &text("detail"),
            );
            self.screen.say(&rejected)?;
        }
        Ok(began + Duration::from_millis(longest) + LINGER_WAIT)
    }

    async fn cancel(&mut self) -> Result<(), Failure> {
        let id = "trial-1";
        self.screen.say(&line("cancel", id, "before it is due"))?;
        let answer = self.api.delete(&format!("/v1/jobs/{id}")).await?.json;
        let verdict = self.expectations.verdict(id, answer["verdict"].as_str().unwrap_or("?"));
        Ok(self.screen.say(&verdict)?)
    }

    /// Why a job is dead. A consumer that is called back knows the answer before Dwell has it.
    async fn dead_reason(&self, id: &str) -> Result<String, Failure> {
        let by = clock::now() + SETTLE_TIMEOUT;
        loop {
            let job = self.api.get(&format!("/v1/jobs/{id}")).await?.json;
            match job["dead_reason"].as_str() {
                Some(reason) => return Ok(reason.to_owned()),
                None if clock::now() > by => return Ok("?".to_owned()),
                None => clock::sleep(QUERY_INTERVAL).await,
            }
        }
    }

    async fn saw(&mut self, Event { job, at_us, end }: Event) -> Result<(), Failure> {
        let (id, attempt) = (job.id.clone(), job.attempt);
        let said = match end {
            End::Finished => {
                let arrival = Arrival {
                    id: &id,
                    target: &job.queue,
                    body: &job.body,
                    attempt,
                    due_ms: job.due_ms,
                };
                self.expectations.arrived(&arrival, at_us)
            }
            End::Failed { error, due_ms } => {
                let failures = u16::try_from(attempt).unwrap_or(u16::MAX);
                let wait_ms = u64::try_from(due_ms - clock::wall_ms()).unwrap_or(0);
                self.expectations.failed(&id, failures, error, wait_ms).unwrap_or_default()
            }
            End::Dead { error } => {
                let reason = self.dead_reason(&id).await?;
                self.expectations.died(&id, &attempt.to_string(), error, &reason)
            }
            End::Silent => {
                let left = span(1000 * (job.deadline_ms - clock::wall_ms()));
                line(
                    "silent",
                    &id,
                    &format!(
                        "attempt {attempt}: its consumer says nothing; the lease ends in {left}"
                    ),
                )
            }
            End::Late { verdict } if verdict == "stale" => line(
                "stale",
                &id,
                &format!(
                    "the consumer of attempt {attempt} finishes too late: the lease is another's"
                ),
            ),
            End::Late { verdict } => {
                self.expectations
                    .odd(format!("{id}: a lease that is over answered {verdict}, not stale"));
                line("odd", &id, &verdict)
            }
            End::Odd { word, verdict } => {
                self.expectations.odd(format!("{id}: {word} answered {verdict}"));
                line("odd", &id, &format!("{word}: {verdict}"))
            }
        };
        Ok(self.screen.say(&said)?)
    }
}
