//! The listeners of a running sidecar, on real servers.
//!
//! - `sidecar`: a `dwell run` and a client of its API.
//! - `verdicts`: each verdict by each interface; `calls`: each call and its statuses; `pages`:
//!   lists that stand still while jobs come and go; `arrays`: several jobs in one call; `bounds`:
//!   full queues; `queues`: pops, leases and the queues; `long_poll`: pops that wait.
//! - `dashboard`, `queue_pages`: what people do in it, through `browser`.
//! - `flood`: clients that only hold connections; `tutorial`: the page on queues, as it is written.
//! - `access`: tokens, addresses, other origins; `tokens`: the tokens of applications; `schema`: what
//!   a validator and a fuzzer say of openapi.json.

mod access;
mod arrays;
mod bounds;
mod browser;
mod calls;
mod dashboard;
mod flood;
mod limits;
mod long_poll;
mod pages;
mod queue_pages;
mod queues;
mod schema;
mod sidecar;
mod speed;
mod tokens;
mod tutorial;
mod verdicts;
