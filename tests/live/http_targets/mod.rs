//! Targets that are URLs, through a running `dwell run`: what arrives, what each answer means, and
//! what is refused.
//!
//! - `receiver`: a web server that keeps what it got; `fixture`: a Redis and a sidecar whose broker
//!   is HTTP.
//! - `delivery`: one job, as it arrives; `answers`: what becomes of it by the answer; `throttled`: a
//!   host that asks for a pause, or says nothing; `dead`: dead letters.
//! - `refusals`: URLs and headers that are refused at the request; `settings`: what refuses to start,
//!   and what `dwell check` says; `queries`: they stand nowhere.

mod answers;
mod dead;
mod delivery;
mod fixture;
mod queries;
pub(crate) mod receiver;
mod refusals;
mod settings;
mod throttled;
