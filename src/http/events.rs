//! `GET /v1/events`: server-sent events for who looks on. Redis is asked once a second for all of them together, and only while somebody listens.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Problem;
use super::api::Api;
use crate::clock;

/// How often Redis is asked.
const EVERY: Duration = Duration::from_secs(1);
/// The most listeners: each holds a connection.
const MOST: usize = 64;

/// What all listeners share.
pub(super) struct Events {
    /// The last event: its name and its data.
    last: watch::Sender<Option<(&'static str, Arc<str>)>>,
    /// Whether somebody asks Redis already.
    polling: Mutex<bool>,
    stop: CancellationToken,
}

impl Events {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Events { last: watch::Sender::new(None), polling: Mutex::new(false), stop }
    }
}

/// Look on
///
/// Once a second an event `stats` whose data is what `GET /v1/stats` answers, or `problem` with a problem where it cannot be had.
#[utoipa::path(get, path = "/v1/events", tag = "state", responses(
    (status = 200, body = String, content_type = "text/event-stream", description = "Server-sent events, until the connection is closed"),
))]
pub(super) async fn events(State(api): State<Api>) -> Result<Response, Problem> {
    let events = &api.inner.events;
    if events.last.receiver_count() >= MOST {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{MOST} listen already")));
    }
    let receiver = {
        let mut polling = events.polling.lock();
        let mut receiver = events.last.subscribe();
        // What is there already is news to this one.
        receiver.mark_changed();
        if !std::mem::replace(&mut *polling, true) {
            tokio::spawn(poll(api.clone()));
        }
        receiver
    };
    let stop = events.stop.clone();
    let stream = stream::unfold((receiver, stop), async |(mut receiver, stop)| {
        loop {
            // The sender lives as long as the API.
            stop.run_until_cancelled(receiver.changed()).await?.ok()?;
            let last = receiver.borrow_and_update().clone();
            if let Some((name, data)) = last {
                return Some((Ok::<_, Infallible>(Event::default().event(name).data(data)), (receiver, stop)));
            }
        }
    });
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((unbuffered, Sse::new(stream).keep_alive(KeepAlive::default())).into_response())
}

/// Asks until nobody listens any more.
async fn poll(api: Api) {
    let events = &api.inner.events;
    loop {
        {
            let mut polling = events.polling.lock();
            if events.last.receiver_count() == 0 || events.stop.is_cancelled() {
                *polling = false;
                // Old news would be told to the next one first.
                events.last.send_replace(None);
                return;
            }
        }
        let (name, json) = match api.stats().await {
            Ok(stats) => ("stats", serde_json::to_string(&stats)),
            Err(error) => ("problem", serde_json::to_string(&Problem::from(error))),
        };
        // Both can be written as JSON.
        if let Ok(json) = json {
            events.last.send_replace(Some((name, json.into())));
        }
        events.stop.run_until_cancelled(clock::sleep(EVERY)).await;
    }
}
