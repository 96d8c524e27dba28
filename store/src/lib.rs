//! The jobs of Dwell in Redis. An internal package: `dwell` and `dwell-engine` are built on it, and
//! it promises no stability. A program that schedules jobs or handles them uses `dwell-engine`.
//!
//! The modules, in reading order:
//!
//! - [`config`]: the settings of Redis; [`job`]: a job, its target and verdicts; [`request`]: a new
//!   job, or an action on one; [`schedule`]: a recurring schedule.
//! - [`store`]: the only module that knows Redis.
//! - [`policy`]: the decisions on a job's fate; [`events`]: what happens to jobs, for observers.
//! - [`consumers`]: the pops of queues; [`budget`]: the memory that they share.
//! - [`maintenance`]: the tasks that keep a namespace in order; [`fleet`]: its instances.
//! - [`clock`]: the only module that reads time; [`alarm`]: an exact timer; [`reconnect`]: backoff;
//!   [`batcher`]: calls that arrive at the same time.
//!
//! # Features
//!
//! - `exhaustive`: types that may get fields or variants are not `#[non_exhaustive]`. The sidecar
//!   matches them without `_`, so that the compiler finds each place that a new variant concerns.
//!   Programs get these types from `dwell-engine`, which does not turn the feature on.
//! - `schema`: serde of [`config::Redis`]; JSON Schema and OpenAPI of the types that settings and the HTTP API show.

pub mod alarm;
pub mod batcher;
pub mod budget;
pub mod clock;
pub mod config;
pub mod consumers;
pub mod events;
pub mod fleet;
pub mod job;
pub mod maintenance;
pub mod policy;
pub mod reconnect;
pub mod request;
pub mod schedule;
pub mod store;
mod words;

#[cfg(test)]
mod raw_link;
