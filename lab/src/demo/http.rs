//! `dwell-lab demo --broker http`: a Redis, a `dwell run` whose only broker is HTTP, and a
//! receiver, whose URLs are the targets.

use std::sync::Arc;

use dwell::delayed_headers::{ATTEMPT, DUE, ID};
use dwell_testkit::environment::Result;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_util::task::AbortOnDropHandle;

use super::api::Api;
use super::calls::Calls;
use super::event::{End, Fetched, HandOut, Seen};
use super::expectations::Summary;
use super::plan::{self, Planned};
use super::screen::Screen;
use super::stage::Stage;
use crate::http::receiver::{Arrival, Handler, Receiver, status};
use crate::place::Place;

/// The longest time of a consumer that answers 202, ms.
const TTR_MS: i64 = 1000;
/// Why an attempt fails, as Dwell says.
const ERROR: &str = "the target answered 500 Internal Server Error";

/// Runs the demo.
///
/// # Errors
/// Redis, Dwell or a call failed. Wrong jobs are in the summary.
pub async fn run(silent: bool) -> Result<Summary> {
    let plan = plan::http();
    let screen = Screen::new(silent, plan.len());
    let (seen, events) = mpsc::unbounded_channel();
    let (finish, to_finish) = mpsc::unbounded_channel();
    let receiver = Receiver::start(0, handler(seen.clone(), finish)).await?;
    let settings = crate::http::settings(&[receiver.port()], "5s");
    let place = Place::without_broker(1, &settings).await?;
    let api = Api::open(place.port()).await?;
    screen.say(&format!(
        "servers   {}, a receiver on port {}, no broker",
        place.describe(),
        receiver.port()
    ))?;

    let base = format!("http://127.0.0.1:{}", receiver.port());
    let consumer = AbortOnDropHandle::new(tokio::spawn(consume(api, to_finish, seen)));
    let mut calls = Calls(|planned: &Planned| request(planned, &base));
    let summary = Box::pin(Stage::play(api, &screen, &plan, &mut calls, events)).await?;
    drop(consumer);
    place.stop().await?;
    Ok(summary)
}

/// A planned job as the body of a request.
fn request(planned: &Planned, base: &str) -> Value {
    let mut job = planned.json();
    job["target"] = format!("{base}/{}", planned.target).into();
    if planned.target == plan::REPORTS {
        (job["confirm"], job["ttr"]) = ("consumer".into(), format!("{TTR_MS}ms").into());
    }
    job
}

/// Makes the receiver's handler, which treats jobs by their path.
fn handler(seen: UnboundedSender<Seen>, finish: UnboundedSender<(Fetched, i64)>) -> Handler {
    Arc::new(move |arrival| {
        let Some(job) = fetched(&arrival) else { return status(400) };
        let failed =
            |wait_ms: i64| End::Failed { error: ERROR, due_ms: arrival.at_us / 1000 + wait_ms };
        let end = match (job.queue.as_str(), job.attempt) {
            (plan::INVOICES, 1 | 2) => failed(1000),
            (plan::PARCELS, 1) => failed(500),
            (plan::PARCELS, _) => End::Dead { error: ERROR },
            (plan::REPORTS, 1) => End::Silent,
            (plan::REPORTS, _) => {
                // The receivers of these channels are gone once the demo has ended.
                let _ = finish.send((job, arrival.at_us));
                return status(202);
            }
            _ => End::Finished,
        };
        let answer = status(match end {
            End::Failed { .. } | End::Dead { .. } => 500,
            End::Silent => 202,
            _ => 200,
        });
        let _ = seen.send(HandOut::seen(job, arrival.at_us, end));
        answer
    })
}

/// Finishes the jobs that were answered with 202.
async fn consume(
    api: Api,
    mut jobs: mpsc::UnboundedReceiver<(Fetched, i64)>,
    seen: UnboundedSender<Seen>,
) {
    while let Some((job, at_us)) = jobs.recv().await {
        let answer = api.post(&format!("/v1/jobs/{}/finish", job.id), &json!({})).await;
        let _ = seen.send(answer.and_then(|answer| {
            let end = match answer.json["verdict"].as_str() {
                Some("finished") => End::Finished,
                other => {
                    End::Odd { word: "finish", verdict: other.unwrap_or("nothing").to_owned() }
                }
            };
            HandOut::seen(job, at_us, end)
        }));
    }
}

/// The job of a request.
fn fetched(arrival: &Arrival) -> Option<Fetched> {
    Some(Fetched {
        id: arrival.text(ID)?.to_owned(),
        queue: arrival.path.trim_start_matches('/').to_owned(),
        lease: String::new(),
        attempt: arrival.number(ATTEMPT)?,
        due_ms: arrival.number(DUE)?,
        deadline_ms: arrival.at_us / 1000 + TTR_MS,
        body: arrival.body.to_vec(),
    })
}
