//! An answer that hands out jobs. They are the consumer's once the answer is written; if its client
//! went away before, they go back.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use super::service::Service;
use crate::consumers::PoppedJobs;

/// Answers 200 with this JSON, and hands out these jobs.
pub(super) fn handed(json: &impl Serialize, jobs: PoppedJobs, service: &Service) -> Response {
    match serde_json::to_vec(json) {
        Ok(text) => {
            let body = Body::new(Handed { text: Some(text.into()), jobs: Some((jobs, service.clone())) });
            ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
        }
        // Dropped, the jobs go back.
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON: this is a bug in dwell");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

struct Handed {
    text: Option<Bytes>,
    jobs: Option<(PoppedJobs, Service)>,
}

impl hyper::body::Body for Handed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // The connection asks for the text to write it.
        if let Some((jobs, service)) = self.jobs.take() {
            service.sent(jobs);
        }
        Poll::Ready(self.text.take().map(|text| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.as_ref().map_or(0, Bytes::len) as u64)
    }
}
