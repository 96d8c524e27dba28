//! `GET /v1/events`: server-sent events. Redis is polled once a second for all listeners together,
//! and only while there are any; once more for each token with only some queues.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::caller::Caller;
use super::feed::MAX_LISTENERS;
use super::state::Api;
use crate::http::server::Problem;

/// Stream the counts
///
/// Sends an event once a second: `stats` with the data of `GET /v1/stats` for the caller, or
/// `problem` if that call fails.
#[utoipa::path(get, path = "/v1/events", tag = "state", responses(
    (status = 200, body = String, content_type = "text/event-stream", description = "Server-sent events, until the connection is closed"),
))]
pub(super) async fn events(State(api): State<Api>, caller: Caller) -> Result<Response, Problem> {
    let feed = &api.inner.feed;
    let Some((receiver, must_poll)) = feed.subscribe() else {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the limit of {MAX_LISTENERS} listeners is reached"),
        ));
    };
    if must_poll {
        tokio::spawn(poll(api.clone()));
    }
    let own = caller.is_restricted().then(|| (api.clone(), caller));
    let stream = stream::unfold((receiver, feed.stop(), own), async |(mut receiver, stop, own)| {
        loop {
            // The sender lives as long as the API.
            stop.run_until_cancelled(receiver.changed()).await?.ok()?;
            let last = receiver.borrow_and_update().clone();
            if let Some((round, (mut name, mut data))) = last {
                // The event is for those who may know of all jobs.
                if let Some((api, caller)) = &own {
                    let token = caller.name().unwrap_or_default();
                    (name, data) = api.inner.feed.own(token, round, api.event(caller)).await?;
                }
                return Some((
                    Ok::<_, Infallible>(Event::default().event(name).data(data)),
                    (receiver, stop, own),
                ));
            }
        }
    });
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((unbuffered, Sse::new(stream).keep_alive(KeepAlive::default())).into_response())
}

/// Polls Redis until there are no more listeners.
async fn poll(api: Api) {
    let feed = &api.inner.feed;
    while feed.is_wanted() {
        if let Some((name, json)) = api.event(&Caller::anyone()).await {
            feed.send(name, json);
        }
        feed.pause().await;
    }
}

impl Api {
    /// The name and the data of an event for this caller.
    async fn event(&self, caller: &Caller) -> Option<(&'static str, String)> {
        let (name, json) = match self.stats(caller).await {
            Ok(stats) => ("stats", serde_json::to_string(&stats)),
            Err(error) => ("problem", serde_json::to_string(&Problem::from(error))),
        };
        // Both can be written as JSON.
        json.ok().map(|json| (name, json))
    }
}
