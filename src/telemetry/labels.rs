//! The sets of label values. Label values come from settings and from these sets, never from
//! messages.

use dwell_connectors::Outcome;

use crate::events::PublishOutcome;
use crate::job::Verdict;
use crate::store::error::Class;
use crate::store::scripts::Name;

/// A set of label values. Each is an index into an array of handles, so that counting needs no
/// hash.
pub(super) trait Label: Copy + 'static {
    /// Every value; `index` is its position.
    const ALL: &'static [Self];
    /// The value in the exposition.
    fn word(self) -> &'static str;
    /// The position in `ALL`.
    fn index(self) -> usize;
}

/// Declares an enum and its label values as a list.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$value_doc])* $value,)+ }

        impl $name {
            /// The value in the exposition.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                Label::word(self)
            }
        }

        impl Label for $name {
            const ALL: &'static [Self] = &[$($name::$value,)+];
            fn word(self) -> &'static str {
                match self { $($name::$value => $word,)+ }
            }
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

labels! {
    /// `dwell_queue_jobs{state}`
    QueueState {
        /// Due later than now.
        Scheduled = "scheduled",
        /// Due, and not fetched.
        Ready = "ready",
        /// Fetched, with a lease.
        Reserved = "reserved",
        /// A dead job.
        Dead = "dead",
    }
}

labels! {
    /// `dwell_lease_ends_total{end}`
    LeaseEnd {
        /// The consumer finished the job.
        Finished = "finished",
        /// The consumer failed it.
        Failed = "failed",
        /// The consumer gave it back.
        Released = "released",
        /// The consumer did neither in time.
        Timeout = "timeout",
    }
}

labels! {
    /// `dwell_jobs{state}`
    JobState {
        /// Waits for its due time or a retry.
        Scheduled = "scheduled",
        /// Of a queue: due, and not fetched.
        Ready = "ready",
        /// Claimed, or held for its consumer.
        Reserved = "reserved",
        /// A dead job.
        Dead = "dead",
    }
}

labels! {
    /// `dwell_schedules{state}`
    ScheduleState {
        /// Makes occurrences.
        Active = "active",
        /// A paused schedule.
        Paused = "paused",
    }
}

labels! {
    /// `dwell_ingest_total{result}`: the result of an inbound message.
    IngestResult {
        /// Stored as a new job, or replaced one.
        Scheduled = "scheduled",
        /// Changed nothing: applied before, equal to an existing job, or `on_conflict` keeps the
        /// existing one.
        Duplicate = "duplicate",
        /// Refused, and published to `rejected`.
        Rejected = "rejected",
        /// An action on an existing job.
        Action = "action",
    }
}

labels! {
    /// `dwell_schedule_occurrences_total{result}`: what became of the occurrences of recurring
    /// schedules.
    OccurrenceResult {
        /// Made in time.
        Made = "made",
        /// Missed, and made all the same.
        CaughtUp = "caught_up",
        /// Missed, and not made.
        Missed = "missed",
    }
}

/// `dwell_publish_total{outcome}`
impl Label for PublishOutcome {
    const ALL: &'static [Self] = &PublishOutcome::ALL;
    fn word(self) -> &'static str {
        self.as_str()
    }
    fn index(self) -> usize {
        self as usize
    }
}

/// The outcome of a publication without the words of the broker.
#[must_use]
pub fn publish_outcome(outcome: &Outcome) -> PublishOutcome {
    match outcome {
        Outcome::Confirmed | Outcome::Finished => PublishOutcome::Confirmed,
        Outcome::Unroutable(_) => PublishOutcome::Unroutable,
        Outcome::Refused(_) | Outcome::Throttled { .. } => PublishOutcome::Refused,
        Outcome::Failed(_) => PublishOutcome::Failed,
        Outcome::Invalid(_) => PublishOutcome::Invalid,
        Outcome::Unknown(_) => PublishOutcome::Unknown,
    }
}

labels! {
    /// `dwell_possible_duplicates_total{cause}`: why a job may reach its target twice.
    DuplicateCause {
        /// An attempt with an unknown outcome was repeated.
        UnknownOutcome = "unknown_outcome",
        /// The confirm came after the lease, and another attempt of the job was or will be made.
        LeaseLost = "lease_lost",
        /// The lease of a crashed instance was taken over.
        Rescued = "rescued",
    }
}

labels! {
    /// `dwell_redis_errors_total{class}`
    RedisErrorClass {
        /// The connection failed.
        Io = "io",
        /// No answer in time.
        Timeout = "timeout",
        /// Redis is full.
        Oom = "oom",
        /// A replica answered, because the master changed; or replicas or the disk are missing.
        Readonly = "readonly",
        /// A script failed.
        Script = "script",
        /// Anything else.
        Other = "other",
    }
}

labels! {
    /// `dwell_ingest_paused{reason}`: why an ingest does not read.
    PauseReason {
        /// Redis is away.
        Redis = "redis",
        /// Redis is full.
        RedisFull = "redis_full",
        /// `rejected` does not take messages.
        Rejected = "rejected",
        /// The store is slower than the source.
        Backpressure = "backpressure",
    }
}

labels! {
    /// `dwell_due_within_jobs{seconds}`: the horizon; counts are cumulative.
    DueWithin {
        /// One minute.
        Minute = "60",
        /// Five minutes.
        FiveMinutes = "300",
        /// One hour.
        Hour = "3600",
        /// One day.
        Day = "86400",
    }
}

impl DueWithin {
    /// Every horizon, the nearest first.
    pub const HORIZONS: &'static [DueWithin] = <DueWithin as Label>::ALL;

    /// The length of the horizon, ms.
    #[must_use]
    pub fn ms(self) -> u64 {
        let seconds: u64 = match self {
            DueWithin::Minute => 60,
            DueWithin::FiveMinutes => 300,
            DueWithin::Hour => 3_600,
            DueWithin::Day => 86_400,
        };
        seconds * 1000
    }
}

/// `dwell_redis_seconds{script}`: the names of the scripts.
impl Label for Name {
    const ALL: &'static [Self] = &Name::ALL;
    fn word(self) -> &'static str {
        self.as_str()
    }
    fn index(self) -> usize {
        self as usize
    }
}

impl From<Class> for RedisErrorClass {
    fn from(class: Class) -> Self {
        match class {
            Class::Io => RedisErrorClass::Io,
            Class::Timeout => RedisErrorClass::Timeout,
            Class::Oom => RedisErrorClass::Oom,
            Class::Readonly => RedisErrorClass::Readonly,
            Class::Script | Class::Outdated | Class::NoScript => RedisErrorClass::Script,
            Class::Moved
            | Class::Unserved
            | Class::Unshared
            | Class::Refused
            | Class::Other
            | Class::Settings
            | Class::QueueFull
            | Class::Taken
            | Class::TooManyPaused
            | Class::Memory => RedisErrorClass::Other,
        }
    }
}

/// The answers to a cancel, `dwell_cancelled_total{verdict}`.
pub(super) const CANCEL_VERDICTS: [Verdict; 5] = [
    Verdict::Cancelled,
    Verdict::CancelledAfterAttempt,
    Verdict::InFlight,
    Verdict::Fired,
    Verdict::NotFound,
];
