//! `GET /v1/stats`

use axum::Json;
use axum::extract::State;

use super::caller::Caller;
use super::state::Api;
use crate::http::server::Problem;
use crate::store::error::StoreError;
use crate::view;

/// Count the jobs
///
/// Counts of the namespace, and the state of the instance that answers. A token with only some
/// queues gets the counts of these: no buckets, brokers, ingests, rates or lateness.
#[utoipa::path(get, path = "/v1/stats", tag = "state", responses((status = 200, body = view::Stats, description = "The counts")))]
pub(super) async fn stats(
    State(api): State<Api>,
    caller: Caller,
) -> Result<Json<view::Stats>, Problem> {
    Ok(Json(api.stats(&caller).await?))
}

impl Api {
    /// Returns the answer of `GET /v1/stats` to this caller.
    pub(super) async fn stats(&self, caller: &Caller) -> Result<view::Stats, StoreError> {
        let inner = &self.inner;
        let is_all = !caller.is_restricted();
        let mut stats = if is_all {
            self.all_stats().await?
        } else {
            let counts =
                inner.apply.store.reader.counts_of(|queue| caller.has_queue(queue)).await?;
            // A queue has nothing to do with the spread of jobs over the buckets.
            view::Stats { buckets: Vec::new(), ..view::Stats::of(&counts) }
        };
        let waiting = inner.readiness.waiting();
        stats.instance = Some(view::Instance {
            name: inner.about.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            namespace: inner.about.namespace.clone(),
            started_ms: inner.about.started_ms,
            ingest: inner.about.roles.ingest,
            dispatch: inner.about.roles.dispatch,
            ready: inner.readiness.is_ready(),
            waiting_for: waiting
                .iter()
                .filter(|_| is_all)
                .map(|(what, _)| what.to_string())
                .collect(),
        });
        Ok(stats)
    }

    /// Returns the limits that hold jobs back; none where this instance has no limits.
    pub(super) async fn limited(&self) -> Result<Vec<view::Limited>, StoreError> {
        if !self.inner.about.has_limits {
            return Ok(Vec::new());
        }
        let limited = self.inner.apply.store.reader.limited().await?;
        Ok(limited.into_iter().map(view::Limited::from).collect())
    }

    async fn all_stats(&self) -> Result<view::Stats, StoreError> {
        let inner = &self.inner;
        let metrics = inner.apply.events.metrics();
        let mut counts = inner.apply.store.reader.counts(&[]).await?;
        metrics.add_given_back(&mut counts);
        let mut stats = view::Stats::of(&counts);
        stats.add_counted(metrics);
        stats.limited = self.limited().await?;
        for (name, broker) in &mut stats.brokers {
            let known = inner.about.brokers.get(name);
            broker.kind = known.map(|(kind, _)| *kind);
            if !known.is_some_and(|(_, linked)| *linked) {
                (broker.connected, broker.paused) = (None, None);
            }
        }
        for (name, (broker, topic)) in &inner.about.ingests {
            let of_ingest = metrics.ingest(name);
            let (reads, paused) =
                of_ingest.as_ref().map(|metrics| metrics.reading().get()).unwrap_or_default();
            let ingest = view::Ingest {
                broker: broker.clone(),
                topic: topic.clone(),
                reads,
                paused: paused.map(crate::telemetry::PauseReason::as_str),
                last_error: of_ingest
                    .and_then(|metrics| metrics.last_error().get())
                    .map(view::ErrorSeen::from),
            };
            stats.ingests.insert(name.clone(), ingest);
        }
        stats.rates = inner.rates.per_second();
        Ok(stats)
    }
}
