//! `dwell-lab demo`: private servers, a `dwell run` between them, jobs of every fate, and their
//! expected results.
//!
//! - [`plan`]: the requests and their expected fate; [`expectations`]: the actual fate; [`screen`]:
//!   the output.
//! - [`broker`]: jobs for a broker; [`queues`]: consumers fetch the jobs over HTTP; [`http`]: Dwell
//!   sends them to URLs.
//! - `stage`: the course of each; `event`: what is seen; `calls`: requests over HTTP, by the `api`.

mod api;
pub mod broker;
mod calls;
mod event;
pub mod expectations;
pub mod http;
pub mod plan;
pub mod queues;
pub mod screen;
mod stage;

use std::time::Duration;

/// The interval between two queries of the store.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
