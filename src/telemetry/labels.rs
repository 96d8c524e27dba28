//! The closed sets of label values. Labels come from settings and from these, never from messages.

use dwell_connectors::Outcome;

use crate::job::Verdict;
use crate::store::error::Class;
use crate::store::scripts::Name;

/// A closed set of label values: each has a place in an array of handles, so that counting hashes nothing.
pub(super) trait Label: Copy + 'static {
    /// Every value; `index` is the place in it.
    const ALL: &'static [Self];
    /// The word in the exposition.
    fn word(self) -> &'static str;
    /// The place in `ALL`.
    fn index(self) -> usize;
}

/// An enum with its words. Only lists: a set of twenty words stays readable as a table.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$value_doc])* $value,)+ }

        impl $name {
            /// The word in the exposition.
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
    /// `dwell_jobs{state}`
    JobState {
        /// Waits for its time or for a retry.
        Scheduled = "scheduled",
        /// Claimed, or held for its consumer.
        Reserved = "reserved",
        /// In the dead letters.
        Dead = "dead",
    }
}

labels! {
    /// `dwell_ingest_total{result}`: what became of an inbound message.
    IngestResult {
        /// Stored as a new job, or in place of another.
        Scheduled = "scheduled",
        /// Was applied before, or is the same as a job that exists, or was not to replace it: nothing changed.
        Duplicate = "duplicate",
        /// Refused, and published to `rejected`.
        Rejected = "rejected",
        /// Carried an action on a job that exists.
        Action = "action",
    }
}

labels! {
    /// `dwell_publish_total{outcome}`
    PublishOutcome {
        /// The broker took it.
        Confirmed = "confirmed",
        /// No such destination.
        Unroutable = "unroutable",
        /// Not now.
        Refused = "refused",
        /// Never.
        Invalid = "invalid",
        /// No answer, or one that leaves it open.
        Unknown = "unknown",
    }
}

impl From<&Outcome> for PublishOutcome {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Confirmed => PublishOutcome::Confirmed,
            Outcome::Unroutable(_) => PublishOutcome::Unroutable,
            Outcome::Refused(_) => PublishOutcome::Refused,
            Outcome::Invalid(_) => PublishOutcome::Invalid,
            Outcome::Unknown(_) => PublishOutcome::Unknown,
        }
    }
}

labels! {
    /// `dwell_possible_duplicates_total{cause}`: why a job may reach its target twice.
    DuplicateCause {
        /// An attempt whose outcome is unknown was tried again.
        UnknownOutcome = "unknown_outcome",
        /// The confirm came after the lease, and the same job goes on or went on elsewhere.
        LeaseLost = "lease_lost",
        /// The lease of an instance that is gone was taken over.
        Rescued = "rescued",
    }
}

labels! {
    /// `dwell_redis_errors_total{class}`
    RedisErrorClass {
        /// The connection broke, or could not be made.
        Io = "io",
        /// No answer in time.
        Timeout = "timeout",
        /// Redis is full.
        Oom = "oom",
        /// A replica answered: the master moved.
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
        /// `rejected` takes no messages.
        Rejected = "rejected",
        /// What was read is not stored yet.
        Backpressure = "backpressure",
    }
}

labels! {
    /// `dwell_due_within_jobs{seconds}`: how far ahead, cumulative.
    DueWithin {
        /// The next minute.
        Minute = "60",
        /// The next five.
        FiveMinutes = "300",
        /// The next hour.
        Hour = "3600",
        /// The next day.
        Day = "86400",
    }
}

impl DueWithin {
    /// Every horizon, nearest first.
    pub const HORIZONS: &'static [DueWithin] = <DueWithin as Label>::ALL;

    /// How far ahead, ms.
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

/// `dwell_redis_seconds{script}`: the scripts by their names.
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
            Class::Moved | Class::Unserved | Class::Other | Class::Settings => RedisErrorClass::Other,
        }
    }
}

/// The answers to a cancel, `dwell_cancelled_total{verdict}`.
pub(super) const CANCEL_VERDICTS: [Verdict; 5] =
    [Verdict::Cancelled, Verdict::CancelledAfterAttempt, Verdict::InFlight, Verdict::Fired, Verdict::NotFound];
