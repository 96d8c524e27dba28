//! Dwell adds delayed delivery to the broker that a team already runs. The modules, in reading
//! order:
//!
//! - [`config`]: the settings; [`units`]: durations, sizes and times as text.
//! - [`job`]: a job, its states and verdicts.
//! - [`request`]: parses a message into a request, or rejects it with a code.
//! - [`ingest`]: reads requests, stores them, then acknowledges them.
//! - [`apply`]: applies requests to the store, wherever they came from.
//! - [`store`]: the only module that knows Redis.
//! - [`dispatch`]: claims due jobs, publishes and settles them; [`outgoing`]: the published
//!   messages; [`delayed_headers`]: the names of their headers; [`publisher`]: the connection for
//!   publishing; [`policy`]: the decisions on a job's fate; [`cloud_events`]: publishes the events of
//!   jobs.
//! - [`maintenance`]: the tasks that keep a namespace in order: rescue, retention, expiry, counts.
//! - [`fleet`]: the instances of a namespace; [`wake_ups`]: the wake-ups of this process.
//! - [`runtime`]: starts, runs and drains all agents; [`readiness`]: the things that the start
//!   waits for.
//! - [`clock`]: the only module that reads time; [`alarm`]: an exact timer; [`reconnect`]: backoff;
//!   [`shutdown`]: signals.
//! - [`telemetry`]: logs, metrics and traces; [`http`]: probes, admin API and dashboard;
//!   [`compat`]: listeners for clients of other delay queues.
//! - [`view`]: jobs, verdicts and counts as JSON.
//! - [`cli`]: the commands, a file each.
//! - `fuzz`: entry points to parsers for the package `fuzz`.
//!
//! `alarm`, `batcher`, `budget`, `clock`, `consumers`, `events`, `fleet`, `job`, `policy`,
//! `reconnect`, `schedule` and `store` are modules of the package `dwell-store`.
//!
//! The program needs only [`cli::main`]. The feature `internals` makes everything else public, for
//! tests and the laboratory. A Rust program that schedules jobs uses the package `dwell-engine`.
#![cfg_attr(
    not(feature = "internals"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "tests use what the program does not"
    )
)]

pub mod cli;
#[cfg(feature = "fuzz")]
pub mod fuzz;

// A macro that rustfmt looks into.
cfg_if::cfg_if! {
    if #[cfg(feature = "internals")] {
        pub mod apply;
        pub mod cloud_events;
        pub mod runtime;
        pub mod compat;
        pub mod config;
        pub mod delayed_headers;
        pub mod dispatch;
        pub mod http;
        pub mod ingest;
        pub mod maintenance;
        pub mod outgoing;
        pub mod publisher;
        pub mod queues;
        pub mod readiness;
        pub mod request;
        pub mod shutdown;
        pub mod telemetry;
        pub mod units;
        pub mod view;
        pub mod wake_ups;
    } else {
        mod apply;
        mod cloud_events;
        mod runtime;
        mod compat;
        mod config;
        mod delayed_headers;
        mod dispatch;
        mod http;
        mod ingest;
        mod maintenance;
        mod outgoing;
        mod publisher;
        mod queues;
        mod readiness;
        mod request;
        mod shutdown;
        mod telemetry;
        mod units;
        mod view;
        mod wake_ups;
    }
}

#[cfg(feature = "internals")]
pub use dwell_store::{
    alarm, batcher, budget, clock, consumers, events, fleet, job, policy, reconnect, schedule,
    store,
};
#[cfg(not(feature = "internals"))]
use dwell_store::{
    alarm, batcher, budget, clock, consumers, events, fleet, job, policy, reconnect, schedule,
    store,
};
