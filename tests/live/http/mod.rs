//! The listeners of a running sidecar, on real servers.
//!
//! - `sidecar`: a `dwell run` and a client of its API.
//! - `verdicts`: each verdict by each door; `calls`: each call and its statuses; `pages`: lists that stand still while jobs come and go.
//! - `dashboard`: what people do in it, through `browser`.
//! - `flood`: clients that only hold connections.
//! - `guard`: tokens, addresses, other origins; `schema`: what a validator and a fuzzer say of openapi.json.

mod browser;
mod calls;
mod dashboard;
mod flood;
mod guard;
mod limits;
mod pace;
mod pages;
mod schema;
mod sidecar;
mod verdicts;
