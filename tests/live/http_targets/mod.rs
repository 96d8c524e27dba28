//! Targets that are URLs, through a running `dwell run`: requests, answers and their meaning, and
//! refusals.
//!
//! - `receiver`: a web server that keeps what it got; `fixture`: a Redis and a sidecar whose broker
//!   is HTTP.
//! - `delivery`: one job, as it arrives; `answers`: its fate by the answer; `throttled`: a host
//!   that asks for a pause, or says nothing; `dead`: dead letters.
//! - `refusals`: URLs and headers that are refused at the request; `settings`: settings that do not
//!   start, and the words of `dwell check`; `queries`: they stand nowhere.

mod answers;
mod dead;
mod delivery;
mod fixture;
mod queries;
pub(crate) mod receiver;
mod refusals;
mod settings;
mod throttled;
