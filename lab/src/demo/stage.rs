//! The course of a demo: the requests, a cancel, and what is seen until every fate is known.

use std::time::Duration;

use dwell::clock;
use dwell_testkit::environment::Result;
use tokio::sync::mpsc::UnboundedReceiver;

use super::QUERY_INTERVAL;
use super::api::Api;
use super::event::{End, Event, HandOut, Seen};
use super::expectations::{Arrival, Expectations, Summary, line, span};
use super::plan::{Fate, Planned};
use super::screen::Screen;

/// The time of the cancel, after the jobs were sent.
const CANCEL_DELAY: Duration = Duration::from_secs(2);
/// The wait for unexpected arrivals after the last due time.
const LINGER_WAIT: Duration = Duration::from_millis(500);
/// Jobs without a result after this time count as lost. The whole demo may take 20 s.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The longest time until Dwell settles an attempt.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The way of requests to Dwell.
pub(super) trait Scene {
    /// Sends the requests.
    async fn send(&mut self, stage: &mut Stage<'_>, plan: &[Planned]) -> Result<()>;

    /// Cancels a job.
    async fn cancel(&mut self, stage: &mut Stage<'_>, id: &str) -> Result<()>;

    /// Looks at facts without an event, every [`QUERY_INTERVAL`].
    async fn look(&mut self, _: &mut Stage<'_>) -> Result<()> {
        Ok(())
    }
}

/// A demo in progress.
pub(super) struct Stage<'a> {
    pub(super) api: Api,
    pub(super) screen: &'a Screen,
    pub(super) expectations: Expectations,
}

impl<'a> Stage<'a> {
    /// Plays a scene, and compares what is seen with the plan.
    pub(super) async fn play(
        api: Api,
        screen: &'a Screen,
        plan: &[Planned],
        scene: &mut impl Scene,
        mut events: UnboundedReceiver<Seen>,
    ) -> Result<Summary> {
        let began = clock::now();
        let expectations = Expectations::new(plan.to_vec(), clock::wall_ms());
        let mut stage = Stage { api, screen, expectations };
        scene.send(&mut stage, plan).await?;
        let longest = plan.iter().map(|planned| planned.delay_ms).max().unwrap_or(0);
        let over = began + Duration::from_millis(longest) + LINGER_WAIT;
        let (mut cancel_at, mut look_at) = (Some(began + CANCEL_DELAY), clock::now());
        let cancelled = plan.iter().filter(|planned| planned.fate == Fate::Cancelled);
        let cancelled: Vec<&str> = cancelled.map(|planned| planned.id.as_str()).collect();
        while clock::now() < began + TIMEOUT
            && (stage.expectations.fulfilled() < plan.len() || clock::now() < over)
        {
            tokio::select! {
                Some(event) = events.recv() => stage.saw(event?).await?,
                () = clock::sleep_until(look_at) => {
                    look_at = clock::now() + QUERY_INTERVAL;
                    stage.show_waiting().await?;
                    scene.look(&mut stage).await?;
                    if cancel_at.take_if(|at| clock::now() >= *at).is_some() {
                        for id in &cancelled {
                            screen.say(&line("cancel", id, "before it is due"))?;
                            scene.cancel(&mut stage, id).await?;
                        }
                    }
                }
            }
        }
        screen.clear();
        Ok(stage.expectations.summary())
    }

    async fn show_waiting(&self) -> Result<()> {
        let stats = self.api.get("/v1/stats").await?.json;
        let next = stats["next_due_ms"].as_i64().zip(stats["now_ms"].as_i64());
        self.screen.waiting(
            self.expectations.fulfilled(),
            stats["scheduled"].as_u64().unwrap_or(0),
            next.map(|(due_ms, now_ms)| due_ms - now_ms),
        );
        Ok(())
    }

    async fn saw(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Messages(place, at_us, messages) => {
                for message in &messages {
                    self.screen.say(&self.expectations.saw(place, message, at_us))?;
                }
            }
            Event::HandOut(hand_out) => {
                let said = self.ended(hand_out).await?;
                self.screen.say(&said)?;
            }
        }
        Ok(())
    }

    /// Records the end of a hand-out. Returns a line for the screen.
    async fn ended(&mut self, HandOut { job, at_us, end }: HandOut) -> Result<String> {
        let (id, attempt) = (job.id.as_str(), job.attempt);
        Ok(match end {
            End::Finished => {
                let (target, body, due_ms) = (job.queue.as_str(), job.body.as_slice(), job.due_ms);
                self.expectations.arrived(&Arrival { id, target, body, attempt, due_ms }, at_us)
            }
            End::Failed { error, due_ms } => {
                let failures = u16::try_from(attempt).unwrap_or(u16::MAX);
                let wait_ms = u64::try_from(due_ms - clock::wall_ms()).unwrap_or(0);
                self.expectations.failed(id, failures, error, wait_ms).unwrap_or_default()
            }
            End::Dead { error } => {
                let reason = self.dead_reason(id).await?;
                self.expectations.died(id, &attempt.to_string(), error, &reason)
            }
            End::Silent => {
                let left = span(1000 * (job.deadline_ms - clock::wall_ms()));
                let how = "its consumer says nothing; the lease ends in";
                line("silent", id, &format!("attempt {attempt}: {how} {left}"))
            }
            End::Late { verdict } if verdict == "stale" => {
                let how = "finishes too late: the lease is another's";
                line("stale", id, &format!("the consumer of attempt {attempt} {how}"))
            }
            End::Late { verdict } => {
                self.expectations
                    .odd(format!("{id}: a lease that is over answered {verdict}, not stale"));
                line("odd", id, &verdict)
            }
            End::Odd { word, verdict } => {
                self.expectations.odd(format!("{id}: {word} answered {verdict}"));
                line("odd", id, &format!("{word}: {verdict}"))
            }
        })
    }

    /// Why a job is dead. A consumer that is called back knows the answer before Dwell has it.
    async fn dead_reason(&self, id: &str) -> Result<String> {
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
}
