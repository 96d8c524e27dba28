//! `dwell-lab demo --broker queue`: a Redis, a `dwell run` without a broker, and consumers that
//! fetch their jobs over HTTP.
//!
//! - `consumer`: a consumer of a queue, and how it treats its jobs.

mod consumer;

use dwell_testkit::environment::Result;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::api::Api;
use super::calls::Calls;
use super::expectations::Summary;
use super::plan::{self, Planned};
use super::screen::Screen;
use super::stage::Stage;
use crate::place::Place;
use consumer::Manner;

/// The queues. A consumer of `reports.print` that says nothing for a second has lost its job.
const SETTINGS: &str = "[queues.\"orders.*\"]\n[queues.\"invoices.*\"]\n[queues.\"parcels.*\"]\n[queues.\"reports.*\"]\nttr = \"1s\"\n";

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
pub async fn run(silent: bool) -> Result<Summary> {
    let plan = plan::queues();
    let screen = Screen::new(silent, plan.len());
    let place = Place::without_broker(1, SETTINGS).await?;
    let api = Api::open(place.port()).await?;
    screen.say(&format!("servers   {}, no broker", place.describe()))?;

    let (seen, events) = mpsc::unbounded_channel();
    let mut consumers = JoinSet::new();
    for (queue, manner) in CONSUMERS {
        consumers.spawn(consumer::run(api, queue, manner, seen.clone()));
    }
    screen.say(&format!("consumers {} wait for jobs, each of one queue", CONSUMERS.len()))?;
    let mut calls = Calls(Planned::for_queue);
    let summary = Box::pin(Stage::play(api, &screen, &plan, &mut calls, events)).await?;
    drop(consumers);
    place.stop().await?;
    Ok(summary)
}
