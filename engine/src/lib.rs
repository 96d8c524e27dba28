//! Jobs that are due later, kept in Redis: the engine of Dwell, for a Rust program that wants to
//! schedule and cancel without the sidecar between, or to handle the jobs itself.
//!
//! A **job** is a message with a due time: a body, headers, and a destination on a broker. The engine
//! stores jobs, gives each one id, and answers every call with a [`Verdict`] that is true when it is
//! given, and as durable as [`Redis::durability`] says: a job that was `Cancelled` is not delivered
//! afterwards, unless Redis forgets the answer. Instances of the sidecar `dwell` on the same Redis and
//! namespace deliver the jobs.
//!
//! ```no_run
//! use dwell_engine::{Client, Destination, Due, Job, Redis, NewJob, Verdict};
//!
//! # async fn example() -> Result<(), dwell_engine::Error> {
//! let client = Client::connect(&Redis::new("redis://127.0.0.1:6379"), &["main"]).await?;
//! let job = Job::new("main", Destination::new("orders.close"), r#"{"order": 17}"#);
//! let new_job = NewJob::new(job, Due::In(30 * 60 * 1000));
//! client.schedule(&new_job).await?;
//! // The order is paid: nothing is to be closed.
//! assert_eq!(client.cancel(&new_job.id).await?, Verdict::Cancelled);
//! # Ok(())
//! # }
//! ```
//!
//! A job may belong to a queue instead of a broker ([`Job::for_queue`]). Then consumers fetch it: over
//! HTTP from the sidecar, by [`Client::pop`], or by the handlers of a [`Worker`], which needs no sidecar.
//!
//! # Map
//!
//! - [`Client`]: every call. [`Redis`]: which Redis, which namespace, and what a write waits for.
//! - [`NewJob`]: a new job: [`Job`] says what and where to, [`Due`] when, [`JobId`] under which name,
//!   [`Conflict`] what becomes of an id that exists.
//! - [`Act`] and [`Action`]: cancel, reschedule, fire, finish, fail, requeue. [`AttemptRef`]: which attempt
//!   a consumer speaks of.
//! - [`Pop`], [`Fetched`], [`ClaimedJob`]: jobs of queues in the hands of a consumer.
//! - [`Worker`] and [`Task`]: handlers for queues, in [`worker`]. [`testing`]: a queue in memory.
//! - [`Answer`] and [`Verdict`], [`Acknowledged`] and [`LeaseVerdict`]: what a call did.
//! - [`StoredJob`], [`Page`], [`Counts`]: what is there.
//! - [`Error`] and [`ErrorKind`]: what went wrong, and what to do.
//!
//! # Time
//!
//! Redis's clock decides what is due. [`Due::In`] counts from the moment when Redis stores the job.
//! All times are epoch milliseconds, all spans milliseconds, unless their type is
//! [`Duration`](std::time::Duration).
//!
//! # What is not here
//!
//! No broker: the engine neither reads nor publishes messages. The feature `tower` puts middleware
//! before the handlers of a worker. The feature `internals` opens what
//! the sidecar is built on; it has no promise of stability.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unreachable_pub, reason = "the sidecar uses what a client does not"))]

mod client;
pub mod config;
pub mod job;
pub mod request;
pub mod testing;
pub mod worker;

// A macro that rustfmt looks into.
cfg_if::cfg_if! {
    if #[cfg(feature = "internals")] {
        #[doc(hidden)]
        pub mod budget;
        #[doc(hidden)]
        pub mod clock;
        #[doc(hidden)]
        pub mod consumers;
        #[doc(hidden)]
        pub mod fleet;
        #[doc(hidden)]
        pub mod reconnect;
        #[doc(hidden)]
        pub mod rescue;
        #[doc(hidden)]
        pub mod retry;
        #[doc(hidden)]
        pub mod store;
    } else {
        mod budget;
        mod clock;
        mod consumers;
        mod fleet;
        mod reconnect;
        mod rescue;
        mod retry;
        mod store;
    }
}

pub use client::Client;
pub use client::queues::{Fetched, Pop};
pub use config::{Durability, Redis, RedisMode};
pub use dwell_core::{Destination, Header, Headers, Properties, Value};
pub use job::{Action, Confirm, Conflict, DeadReason, Due, Job, JobId, Late, Verdict};
pub use request::{Act, AttemptRef, NewJob};
pub use store::error::{Class as ErrorKind, StoreError as Error};
pub use store::queue::acknowledge::{Acknowledged, LeaseVerdict};
pub use store::queue::pop::Lease as ClaimedJob;
pub use store::queue::schedule::Answer;
pub use store::reader::counts::Counts;
pub use store::reader::list::{Cursor, Page, Query};
pub use store::reader::lookup::{Place, StoredJob};
pub use worker::{Task, Worker};
