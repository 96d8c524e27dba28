//! The classes of errors: labels of a metric, and finer ones.

use super::kind::ErrorKind;

/// The classes of `dwell_redis_errors_total{class}`, and finer ones that share their labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub enum Class {
    /// The connection was refused or cut, or the host is unknown.
    Io,
    /// No answer in time. Redis may have carried out the call.
    Timeout,
    /// Redis is full and refuses writes that allocate.
    Oom,
    /// The server takes no writes now: it is a replica, or lacks the replicas or the disk for them.
    Readonly,
    /// A script failed through damage or a bug. Concerns that call alone.
    Script,
    /// A script met a broker that its caller did not know, or a job or schedule that changed since
    /// its caller read it. Nothing was written: read again and repeat.
    Outdated,
    /// Another master of the cluster has the slot. The call was not run.
    Moved,
    /// The server does not serve the call now: it loads its data, or the slot is being moved or has
    /// no master.
    Unserved,
    /// The server does not know the script, because it restarted or is another one: load the script
    /// and repeat.
    NoScript,
    /// The server refuses a command that several calls share, and ran none of them: send each call
    /// by itself.
    Unshared,
    /// Redis refuses the login: someone must change the password or its file.
    Refused,
    /// Any other error of Redis; also a permission that the user lacks.
    Other,
    /// The settings do not fit this Redis: stop at start, exit 78.
    Settings,
    /// The queue of a new job is full. Concerns that request alone; nothing changed.
    QueueFull,
    /// A job that is not the caller's has the id of a new job. Concerns that request alone; nothing
    /// changed.
    Taken,
    /// So many queues of the namespace are paused. Concerns that request alone; nothing changed.
    TooManyPaused,
    /// Jobs are ready, and the memory for calls has no room for the first of them; or a pop would
    /// wait, and the waiting pops of the process name too many queues. Not an error of Redis.
    Memory,
}

impl Class {
    /// The label of the metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Io => "io",
            Class::Timeout => "timeout",
            Class::Oom => "oom",
            Class::Readonly => "readonly",
            Class::Script | Class::Outdated | Class::NoScript => "script",
            Class::Moved
            | Class::Unserved
            | Class::Unshared
            | Class::Refused
            | Class::Other
            | Class::Settings
            | Class::QueueFull
            | Class::Taken
            | Class::TooManyPaused
            | Class::Memory => "other",
        }
    }

    /// The kind of an error of this class, unless the error has one of its own.
    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Class::Io
            | Class::Timeout
            | Class::Readonly
            | Class::Outdated
            | Class::Moved
            | Class::Unserved
            | Class::Unshared
            | Class::NoScript => ErrorKind::Unavailable,
            Class::Oom | Class::QueueFull | Class::TooManyPaused | Class::Memory => ErrorKind::Full,
            Class::Taken => ErrorKind::Rejected,
            Class::Script => ErrorKind::Unreadable,
            Class::Refused => ErrorKind::Permission,
            Class::Settings => ErrorKind::Configuration,
            Class::Other => ErrorKind::Other,
        }
    }
}
