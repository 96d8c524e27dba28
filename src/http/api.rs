//! `/v1` on `[http]`: what is in the store. With a token, only to who bears it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use super::{Problem, Rates};
use crate::store::Store;
use crate::view;

/// What the calls work on.
#[derive(Clone)]
pub struct Api {
    store: Arc<Store>,
    rates: Rates,
    /// The hash of the token: hashes are compared in constant time, whatever the length of what was sent.
    token: Option<blake3::Hash>,
}

impl Api {
    /// The API of this instance. Without a token anybody who reaches the address may call it.
    #[must_use]
    pub fn new(store: Arc<Store>, rates: Rates, token: Option<&str>) -> Self {
        Api { store, rates, token: token.map(|token| blake3::hash(token.as_bytes())) }
    }

    /// The calls.
    pub fn router(self) -> Router {
        Router::new()
            .route("/v1/stats", get(stats))
            .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
            .method_not_allowed_fallback(async || Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods"))
            .layer(middleware::from_fn_with_state(self.clone(), authorized))
            .with_state(self)
    }

    fn lets_in(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        let sent = request.headers().get(header::AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
        let (scheme, sent) = sent.split_at(sent.len().min("Bearer ".len()));
        scheme.eq_ignore_ascii_case(b"Bearer ") && blake3::hash(sent) == *token
    }
}

async fn authorized(State(api): State<Api>, request: Request, next: Next) -> Response {
    if api.lets_in(&request) {
        return next.run(request).await;
    }
    Problem::new(StatusCode::UNAUTHORIZED, "send `Authorization: Bearer` with the token of http.token_file").into_response()
}

async fn stats(State(api): State<Api>) -> Result<Json<view::Stats>, Problem> {
    let counts = api.store.counts(&[]).await?;
    Ok(Json(view::Stats::of(&counts, api.rates.per_second())))
}
