//! What goes wrong at the store, in the classes that the agents and `dwell_redis_errors_total{class}` tell apart.

/// What helps where the user of `redis.urls` may not do what Dwell does.
pub(super) const GRANT: &str = "grant it the keys `{NAMESPACE:*` and `NAMESPACE:*`, the channel `NAMESPACE:*`, and the categories \
    @read @write @scripting @pubsub @connection with INFO and TIME (docs/how-to/redis.md has the exact line); or give it `~* &* +@all`";

/// What helps where a record cannot be read.
pub(super) const UNREADABLE: &str = "ask an instance of the version that wrote the job, or run `dwell fsck`";

/// An error of the store. Every script is idempotent, so the answer to each is to call again after a pause.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What kind of trouble it is.
    pub class: Class,
    /// What failed, for people; without passwords.
    pub message: String,
    /// What a person can do about it; empty where waiting helps.
    pub hint: String,
    /// Of class `Moved`: the slot, and host and port of the master that has it.
    pub(super) moved: Option<(u16, String)>,
    /// The call was sent, and the link failed before its answer came: it may be carried out still.
    pub(super) unanswered: bool,
}

/// The classes of `dwell_redis_errors_total{class}`, and two that only stop a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The link: refused, cut, no such host.
    Io,
    /// No answer in time. What was asked may have been done.
    Timeout,
    /// Redis is full: it refuses what allocates.
    Oom,
    /// This server is a replica.
    Readonly,
    /// A script failed: damage or a bug. It is of that call alone.
    Script,
    /// A script met what its caller did not know: a broker, or a job that changed since it was read. It was not run: read again, and call again.
    Outdated,
    /// A cluster: another master has the slot. It was not run.
    Moved,
    /// The server is there and does not serve this yet, or for now: it loads its data, or a slot of the cluster is on its way or without a master.
    Unserved,
    /// The server does not know the script yet (it restarted, or is another one): load it and call again.
    NoScript,
    /// Anything else that Redis answers.
    Other,
    /// The settings and this Redis do not go together: stop at start, exit 78.
    Settings,
}

impl Class {
    /// The word of the metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Io => "io",
            Class::Timeout => "timeout",
            Class::Oom => "oom",
            Class::Readonly => "readonly",
            Class::Script | Class::Outdated | Class::NoScript => "script",
            Class::Moved | Class::Unserved | Class::Other | Class::Settings => "other",
        }
    }
}

impl StoreError {
    /// An error of this class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        StoreError { class, message: message.into(), hint: String::new(), moved: None, unanswered: false }
    }

    /// Whether the call was not run, and may be right now, with what it lacked.
    pub(super) fn was_not_run(&self) -> bool {
        matches!(self.class, Class::NoScript | Class::Moved | Class::Outdated)
    }

    /// Whether what is stored of a job, or of its bucket, cannot be read by this version: a later one wrote it, or it is damaged. Nothing changed, and
    /// time does not heal it.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        let words = ["DWELL_VERSION", "WRONGTYPE", "unreadable record"];
        self.class == Class::Script && words.iter().any(|word| self.message.contains(word))
    }

    /// Redis's clock, epoch µs, where it refused a call whose caller had given it up.
    pub(super) fn late(&self) -> Option<i64> {
        let (_, rest) = self.message.split_once("DWELL_LATE")?;
        rest.split(|letter: char| !letter.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
    }

    /// The same error with what a person can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// What the client library reports, classed. `doing` says what was tried.
    #[must_use]
    pub fn from_redis(doing: &str, error: &redis::RedisError) -> Self {
        use redis::{ErrorKind, ServerErrorKind};
        let code = error.code().unwrap_or_default();
        let class = if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoScript)) {
            Class::NoScript
        } else if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved)) {
            Class::Moved
        } else if matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::Ask | ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown | ServerErrorKind::BusyLoading
            )
        ) {
            Class::Unserved
        } else if error.is_timeout() {
            Class::Timeout
        } else if code == "OOM" {
            Class::Oom
        } else if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
            // A master that is cut off from its replicas may be none any more; one whose disk is full takes no writes either.
            || matches!(code, "NOREPLICAS" | "MISCONF")
        {
            Class::Readonly
        } else if error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal() {
            Class::Io
        } else if matches!(code, "DWELL_BROKER" | "DWELL_AGAIN") {
            Class::Outdated
        } else if code == "DWELL_LATE" {
            Class::Unserved
        } else if code.starts_with("DWELL_") {
            Class::Script
        } else if let Some(class) = of_script(&error.to_string()) {
            class
        } else {
            Class::Other
        };
        let hint = match (error.kind(), code) {
            (ErrorKind::Server(ServerErrorKind::NoPerm), _) => GRANT,
            _ if is_denied(&error.to_string()) => GRANT,
            (_, "DWELL_VERSION") => UNREADABLE,
            _ if class == Class::Script => "run `dwell fsck`",
            (_, "NOAUTH") => "write the user and the password into redis.urls: redis://USER:PASSWORD@HOST:6379",
            _ => "",
        };
        let moved = error.redirect_node().filter(|_| class == Class::Moved).map(|(address, slot)| (slot, address.to_owned()));
        StoreError { moved, ..StoreError::new(class, format!("redis: {doing}: {error}")).hint(hint) }
    }
}

/// Whether this is the refusal of a command that a script ran and its user may not run, or not on that key: of Redis 7.0, then of later ones and Valkey.
fn is_denied(text: &str) -> bool {
    ["NOPERM", "The user executing the script can't", "ACL failure in script"].iter().any(|word| text.contains(word))
}

/// The class of what failed within a script; `None` for what is not known. Only what is known as damage is of the script itself: such a request is
/// rejected, and one that failed by the server's state would be lost. Servers before Redis 7 put their word on it behind words of their own.
fn of_script(text: &str) -> Option<Class> {
    let words = [
        ("WRONGTYPE", Class::Script),
        ("OOM command not allowed", Class::Oom),
        ("not enough memory", Class::Oom),
        ("READONLY", Class::Readonly),
        ("NOREPLICAS", Class::Readonly),
        ("MISCONF", Class::Readonly),
        ("killed by user", Class::Unserved),
        ("max number of clients reached", Class::Unserved),
        // A slot of the cluster is on its way, and the script took out the last of one of its keys; or the cluster went down.
        ("attempted to access a non local key", Class::Unserved),
        ("undeclared keys were accessed during rehashing", Class::Unserved),
        ("while the cluster is down", Class::Unserved),
        // Lua's own, which begin with the line; what a command answered ends with `on @user_script:12.`
        (" user_script:", Class::Script),
    ];
    words.into_iter().find(|(word, _)| text.contains(word)).map(|(_, class)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_damage_is_an_error_of_the_script_itself() {
        for (text, class) in [
            ("WRONGTYPE Operation against a key holding the wrong kind of value script: 1f, on @user_script:12.", Some(Class::Script)),
            ("ERR user_script:31: attempt to index a nil value script: 1f, on @user_script:31.", Some(Class::Script)),
            ("ERR user_script:1: bad argument #2 to 'unpack' (data string too short) script: c1, on @user_script:1.", Some(Class::Script)),
            (
                "ERR Error running script (call to f_1f): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.",
                Some(Class::Oom),
            ),
            ("ERR Error running script (call to f_1f): @user_script:9: Script killed by user with SCRIPT KILL...", Some(Class::Unserved)),
            ("ERR Script attempted to access a non local key in a cluster node script: 1f, on @user_script:9.", Some(Class::Unserved)),
            (
                "ERR Error running script (call to f_1f): @user_script:9: @user_script: 9: Lua script attempted to access a non local key in a cluster node",
                Some(Class::Unserved),
            ),
            (
                "ERR Script attempted to execute a write command while the cluster is down and readonly script: 1f, on @user_script:9.",
                Some(Class::Unserved),
            ),
            (
                "ERR Unable to execute command 'rename' in script because undeclared keys were accessed during rehashing of the slot script: 1f, on @user_script:9.",
                Some(Class::Unserved),
            ),
            ("ERR Unknown Redis command called from script script: 1f, on @user_script:9.", None),
            ("ERR Unknown command called from script script: 1f, on @user_script:9.", None),
            ("ERR a later version says what nobody knows today script: 1f, on @user_script:9.", None),
            ("ERR max number of clients reached", Some(Class::Unserved)),
            ("ERR unknown command", None),
        ] {
            assert_eq!(of_script(text), class, "{text}");
        }
    }

    #[test]
    fn a_call_that_came_too_late_tells_the_clock_and_is_sent_again() {
        let answer = redis::parse_redis_value(b"-DWELL_LATE 1790000000123456 script: 1f, on @user_script:4.\r\n").unwrap();
        let error = StoreError::from_redis("schedule", &answer.extract_error().unwrap_err());
        assert_eq!((error.late(), error.class, error.is_unreadable()), (Some(1_790_000_000_123_456), Class::Unserved, false));
        assert_eq!(StoreError::new(Class::Io, "redis: schedule: cut at 5").late(), None);
    }

    #[test]
    fn a_right_that_is_missing_is_no_damage_and_says_what_to_grant() {
        // Redis 7.0.15, 8.2.3 and Valkey 8.1.8.
        for text in [
            "ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:1.",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 1f, on @user_script:1.",
            "ERR ACL failure in script: User dwell has no permissions to run the 'hset' command script: 1f, on @user_script:1.",
            "ERR ACL failure in script: User dwell has no permissions to access the 'h' key script: 1f, on @user_script:1.",
        ] {
            assert_eq!((of_script(text), is_denied(text)), (None, true), "{text}");
        }
    }
}
