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
//! - [`Recurring`]: a recurring schedule, which makes a job at each of its times.
//! - [`Act`] and [`Action`]: cancel, reschedule, fire, finish, fail, requeue. [`AttemptRef`]: the
//!   attempt that a consumer names.
//! - [`Pop`], [`Fetched`], [`ClaimedJob`]: jobs of queues in the hands of a consumer.
//! - [`Worker`] and [`Task`]: handlers for queues, in [`worker`]. [`testing`]: a queue in memory.
//! - [`Answer`] and [`Verdict`], [`Acknowledged`] and [`LeaseVerdict`]: the result of a call.
//! - [`StoredJob`], [`Page`], [`Counts`]: the stored jobs.
//! - [`Upgraded`]: the schema of a namespace before and after [`Client::upgrade`].
//! - [`Error`]: the failure, with a hint for people; [`Error::kind`] says what a program can do
//!   about it ([`ErrorKind`]).
//!
//! # Time
//!
//! Redis's clock decides what is due. A [`Duration`](std::time::Duration) counts from the moment when
//! Redis stores the job, a [`SystemTime`](std::time::SystemTime) is a time of Redis's clock. Both are
//! rounded up to whole milliseconds; [`Due`] says what becomes of those that do not fit.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use dwell_engine::Due;
//!
//! let in_half_an_hour = Due::from(Duration::from_secs(30 * 60));
//! assert_ne!(in_half_an_hour, Due::NOW);
//! let long_ago = Due::from(SystemTime::UNIX_EPOCH - Duration::from_secs(1));
//! assert_eq!(long_ago, Due::from(SystemTime::UNIX_EPOCH));
//! ```
//!
//! # Growth
//!
//! Types that may get fields or variants are `#[non_exhaustive]`: make them by their constructors, set
//! the fields, and match with `_`.
//!
//! # What is not here
//!
//! No broker: the engine neither reads nor publishes messages. The feature `tower` puts middleware
//! before the handlers of a worker.
//!
//! The package `dwell-store`, on which the sidecar is built too, has the calls to Redis. Only what
//! this package exports of it is stable.

mod client;
pub mod testing;
pub mod worker;

pub use client::Client;
pub use client::queues::{Fetched, Pop};
pub use client::recurring::Recurring;
pub use dwell_core::{Destination, Header, Headers, Properties, Value};
#[doc(inline)]
pub use dwell_store::config::{Durability, Redis, RedisMode};
#[doc(inline)]
pub use dwell_store::job::{
    Action, Confirm, Conflict, DeadReason, Due, Expire, Job, JobId, Late, Target, Verdict,
};
#[doc(inline)]
pub use dwell_store::request::{Act, AttemptRef, NewJob};
#[doc(inline)]
pub use dwell_store::store::admin::upgrade::Upgraded;
#[doc(inline)]
pub use dwell_store::store::error::{Class as ErrorClass, ErrorKind, StoreError as Error};
#[doc(inline)]
pub use dwell_store::store::jobs::acknowledge::{Acknowledged, LeaseVerdict};
#[doc(inline)]
pub use dwell_store::store::jobs::batch::Answer;
#[doc(inline)]
pub use dwell_store::store::jobs::lease::Lease as ClaimedJob;
#[doc(inline)]
pub use dwell_store::store::reader::counts::Counts;
#[doc(inline)]
pub use dwell_store::store::reader::list::{Cursor, Page, Query};
#[doc(inline)]
pub use dwell_store::store::reader::lookup::{JobState, StoredJob};
#[doc(inline)]
pub use dwell_store::{config, job, request};
pub use worker::{Task, Worker};
