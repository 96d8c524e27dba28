//! The listeners of a running sidecar, on real servers.
//!
//! - `sidecar`: a `dwell run` and a client of its API.
//! - `verdicts`: each verdict by each interface; `calls`: each call and its statuses; `pages`:
//!   lists that stand still while jobs come and go; `arrays`: several jobs in one call; `bounds`:
//!   full queues; `queues`: pops, leases and the queues; `limited`: what waits at a limited queue;
//!   `long_poll`: pops that wait; `pop_results`: pops that carry acknowledgements; `schedules`:
//!   recurring schedules.
//! - `dashboard`, `queue_pages`, `schedule_pages`: the work of people in it, through `browser`.
//! - `connections`: the rules for those of every listener; `descriptors`: their number; `flood`:
//!   clients that only hold connections; `memory`: the memory of all together; `tutorial`: the page
//!   on queues, as it is written.
//! - `undeclared`: jobs of queues that no setting declares.
//! - `rotated`: secrets that change while it runs; `hanging`: a master of Redis that does not
//!   answer.
//! - `ipv6`: the probes on a host with and without it; `access`: tokens, addresses, other origins;
//!   `tokens`: the tokens of applications; `schema`: openapi.json before a validator and a fuzzer.

mod access;
mod arrays;
mod bounds;
mod browser;
mod calls;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]
mod connections;
mod dashboard;
mod descriptors;
mod flood;
mod hanging;
mod ipv6;
mod limited;
mod limits;
mod long_poll;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]
mod memory;
mod pages;
mod pop_results;
mod queue_pages;
mod queues;
mod rotated;
mod schedule_pages;
mod schedules;
mod schema;
mod sidecar;
mod speed;
mod tokens;
mod tutorial;
mod undeclared;
mod verdicts;
