//! The engine of Dwell, which keeps jobs in Redis until they are due. A Rust program schedules and
//! cancels jobs with it without the sidecar between, or handles the jobs itself.
//!
//! A **job** is a message with a due time: a body, headers, and a destination on a broker. The
//! engine stores jobs, gives each one id, and answers every call with a [`Verdict`] that is true
//! when it is given, and as durable as [`Redis::durability`] says: a job that was `Cancelled` is
//! not delivered afterwards, unless Redis forgets the answer. Instances of the sidecar `dwell` on
//! the same Redis and namespace deliver the jobs.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use dwell_engine::{Client, Destination, Job, NewJob, Redis, Verdict};
//!
//! # async fn example() -> Result<(), dwell_engine::Error> {
//! let client = Client::connect(&Redis::new("redis://127.0.0.1:6379"), &["main"]).await?;
//! let job = Job::new("main", Destination::new("orders.close"), r#"{"order": 17}"#);
//! let new_job = NewJob::new(job, Duration::from_secs(30 * 60));
//! client.schedule(&new_job).await?;
//! // The order is paid: nothing is to be closed.
//! assert_eq!(client.cancel(&new_job.id).await?, Verdict::Cancelled);
//! # Ok(())
//! # }
//! ```
//!
//! A job may belong to a queue instead of a broker ([`Job::for_queue`]). Then consumers fetch it:
//! over HTTP from the sidecar, by [`Client::pop`], or by the handlers of a [`Worker`], which needs
//! no sidecar.
//!
//! # Map
//!
//! - [`Client`]: every call. [`Redis`]: the address of Redis, the namespace, and the durability of
//!   a write.
//! - [`NewJob`]: a new job: [`Job`] has the message and the [`Target`], [`Due`] the time, [`JobId`]
//!   the name, [`Conflict`] the rule for an id that exists.
//! - [`Act`] and [`Action`]: cancel, reschedule, fire, finish, fail, requeue. [`AttemptRef`]: the
//!   attempt that a consumer names.
//! - [`Pop`], [`Fetched`], [`ClaimedJob`]: jobs of queues in the hands of a consumer.
//! - [`Worker`] and [`Task`]: handlers for queues, in [`worker`]. [`testing`]: a queue in memory.
//! - [`Answer`] and [`Verdict`], [`Acknowledged`] and [`LeaseVerdict`]: the result of a call.
//! - [`StoredJob`], [`Page`], [`Counts`]: the stored jobs.
//! - [`Error`] and [`ErrorKind`]: the failure, and a hint for people.
//!
//! # Time
//!
//! Redis's clock decides what is due. A [`Duration`](std::time::Duration) counts from the moment when
//! Redis stores the job, a [`SystemTime`](std::time::SystemTime) is a time of Redis's clock. Both are
//! rounded up to whole milliseconds; [`Due`] says what becomes of those that do not fit.
//!
//! # Growth
//!
//! Types that may get fields or variants are `#[non_exhaustive]`: make them by their constructors, set
//! the fields, and match with `_`.
//!
//! # What is not here
//!
//! No broker: the engine neither reads nor publishes messages. The feature `tower` puts middleware
//! before the handlers of a worker. The feature `internals` opens the modules that the sidecar is
//! built on, without a promise of stability.
#![cfg_attr(
    not(feature = "internals"),
    allow(dead_code, unreachable_pub, reason = "the sidecar uses what a client does not")
)]

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
        pub mod events;
        #[doc(hidden)]
        pub mod fleet;
        #[doc(hidden)]
        pub mod maintenance;
        #[doc(hidden)]
        pub mod policy;
        #[doc(hidden)]
        pub mod reconnect;
        #[doc(hidden)]
        pub mod store;
    } else {
        mod budget;
        mod clock;
        mod consumers;
        mod events;
        mod fleet;
        mod maintenance;
        mod policy;
        mod reconnect;
        mod store;
    }
}

pub use client::Client;
pub use client::queues::{Fetched, Pop};
pub use config::{Durability, Redis, RedisMode};
pub use dwell_core::{Destination, Header, Headers, Properties, Value};
pub use job::{Action, Confirm, Conflict, DeadReason, Due, Job, JobId, Late, Target, Verdict};
pub use request::{Act, AttemptRef, NewJob};
pub use store::error::{Class as ErrorKind, StoreError as Error};
pub use store::queue::acknowledge::{Acknowledged, LeaseVerdict};
pub use store::queue::batch::Answer;
pub use store::queue::lease::Lease as ClaimedJob;
pub use store::reader::counts::Counts;
pub use store::reader::list::{Cursor, Page, Query};
pub use store::reader::lookup::{Place, StoredJob};
pub use worker::{Task, Worker};
