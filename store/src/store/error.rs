//! The errors of the store, and how the words of a server become one.

mod class;
mod kind;
mod told;

pub use self::class::Class;
pub use self::kind::ErrorKind;

/// The hint for a Redis user without the permissions that Dwell needs.
pub(super) const PERMISSION_HINT: &str = "grant it the keys `{NAMESPACE:*` and `NAMESPACE:*`, the channel `NAMESPACE:*`, and the categories \
    @read @write @scripting @pubsub @connection with INFO and TIME (docs/how-to/redis.md has the exact line); or give it `~* &* +@all`";

/// The hint for a cluster that wants the keys of each command written as `KEYS[1]`.
const SCRIPT_CHECK_HINT: &str = "this cluster checks the text of scripts: set its parameter script_check_enable to 0 (docs/how-to/redis.md)";

/// The hint for a server that runs no scripts.
const NO_LUA_HINT: &str = "load the Lua module of Valkey 9.1 or later (`loadmodule` in its configuration, the package valkey-lua), or use \
    another server: Dwell's steps are Lua scripts";

/// The hint for an unreadable record.
pub(super) const UNREADABLE_HINT: &str =
    "ask an instance of the version that wrote the job, or run `dwell fsck`";

/// The words of a server that refuses a command for its keys, before it runs: they are in several
/// slots, or the user may not name them.
const KEYS_CODES: [&str; 2] = ["CROSSSLOT", "NOPERM"];
/// The word of a server that a script occupies for long.
const BUSY_CODE: &str = "BUSY";

/// The end of the message of a call that was not sent.
const NOT_SENT_SUFFIX: &str = "not sent: a call before it needs a repeat";

/// An error of the store. Every script is idempotent, so after any error the caller may repeat the
/// call, after a pause. [`kind`](StoreError::kind) says whether that helps.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
#[cfg_attr(not(feature = "exhaustive"), non_exhaustive)]
pub struct StoreError {
    /// The class of the failure, finer than its [`kind`](StoreError::kind).
    pub class: Class,
    /// The failure, for people; contains no passwords.
    pub message: String,
    /// The hint for a person; empty if waiting helps.
    pub hint: String,
    /// The kind, if it is not that of the class.
    pub(crate) kind: Option<ErrorKind>,
    /// The answer of a script of Dwell, or of a server that does not run calls which share a
    /// command: its first word, and the rest. The message is for people alone: it contains names
    /// that callers choose.
    pub(in crate::store) told: Option<Box<(String, String)>>,
    /// For class `Moved`: the slot, and the host and port of its master.
    pub(super) moved: Option<(u16, String)>,
    /// The connection failed after the call was sent and before its answer came: Redis may still
    /// carry the call out.
    pub(super) unanswered: bool,
    /// The answer of a call that Redis has carried out, where only the wait for durability fell
    /// short.
    pub(in crate::store) undurable: Option<Box<redis::Value>>,
}

impl StoreError {
    /// An error of this class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        StoreError {
            class,
            message: message.into(),
            hint: String::new(),
            kind: None,
            told: None,
            moved: None,
            unanswered: false,
            undurable: None,
        }
    }

    /// An error of a request that is wrong: nothing was sent.
    pub fn rejected(message: impl Into<String>) -> Self {
        StoreError::new(Class::Other, message).of_kind(ErrorKind::Rejected)
    }

    /// What a program can do about the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind.unwrap_or_else(|| self.class.kind())
    }

    /// The same error, of this kind instead of that of its class.
    #[must_use]
    pub fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Whether the call was not run and can be repeated at once, with the missing part.
    pub(crate) fn was_not_run(&self) -> bool {
        matches!(self.class, Class::NoScript | Class::Moved | Class::Outdated | Class::Unshared)
    }

    /// The error as the answer to a caller: that a script is missing, again after its load, says
    /// nothing about the request.
    pub(super) fn into_answer(self) -> Self {
        match self.class {
            Class::NoScript => StoreError {
                class: Class::Unserved,
                message: format!("{}, again after it was loaded", self.message),
                ..self
            },
            Class::Unshared => StoreError { class: Class::Unserved, ..self },
            _ => self,
        }
    }

    /// Whether the server did not answer, could not be reached, or refuses the login.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.class, Class::Io | Class::Timeout | Class::Refused)
    }

    /// Whether the log already has the error: a refused login is logged once for all connections.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.class == Class::Refused
    }

    /// Whether this version cannot read the job or its bucket: a later version wrote the data, or
    /// the data is damaged. Waiting does not help.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.class == Class::Script
    }

    /// Whether the script found the damage of this very job before it wrote anything, whatever else
    /// stands in the call. A key of a wrong type may be that of another request of the call.
    pub(crate) fn is_damage(&self) -> bool {
        let is_damage = match &self.told {
            Some(told) => told.0 == "DWELL_VERSION",
            None => self.message.contains("unreadable record"),
        };
        self.class == Class::Script && is_damage
    }

    /// The error of a call that was not sent, because one before it needs a repeat first.
    pub(crate) fn held_back(doing: &str) -> Self {
        StoreError::new(Class::Outdated, format!("redis: {doing}: {NOT_SENT_SUFFIX}"))
    }

    pub(crate) fn is_held_back(&self) -> bool {
        self.class == Class::Outdated && self.message.ends_with(NOT_SENT_SUFFIX)
    }

    /// Whether the store refuses this request alone, and would refuse it again: its job is
    /// unreadable or another caller's, its queue full, or the request is wrong. Nothing changed.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self.class, Class::QueueFull | Class::Taken)
            || self.kind() == ErrorKind::Rejected
            || self.is_unreadable()
    }

    /// Redis's clock, epoch µs, if Redis refused the call because its deadline had passed.
    #[doc(hidden)]
    #[must_use]
    pub fn late(&self) -> Option<i64> {
        self.told("DWELL_LATE")?.split_ascii_whitespace().next()?.parse().ok()
    }

    /// Whether the server refused the command for its keys, and did not run it.
    pub(in crate::store) fn refuses_keys(&self) -> bool {
        KEYS_CODES.iter().any(|code| self.told(code).is_some())
    }

    /// Whether Redis is full, and the script of a command that several calls share ran none of them.
    pub(in crate::store) fn is_full_for_sharing(&self) -> bool {
        self.told("DWELL_FULL").is_some()
    }

    /// Whether the server refused the command because a script occupies it for long.
    pub(in crate::store) fn is_busy(&self) -> bool {
        self.told(BUSY_CODE).is_some()
    }

    /// The rest of the script's answer, if the answer begins with this word.
    fn told(&self, word: &str) -> Option<&str> {
        self.told.as_ref().filter(|told| told.0 == word).map(|told| told.1.as_str())
    }

    /// The same error, as the answer of a script.
    #[cfg(test)]
    pub(crate) fn answered(self, word: &str, rest: &str) -> Self {
        StoreError { told: Some(Box::new((word.to_owned(), rest.to_owned()))), ..self }
    }

    /// The same error, of a call that Redis has carried out with this answer.
    pub(in crate::store) fn after(self, answer: redis::Value) -> Self {
        StoreError { undurable: Some(Box::new(answer)), ..self }
    }

    /// The same error with a hint for people.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Classifies an error of the client library. `doing`: the operation that failed.
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
                ServerErrorKind::Ask
                    | ServerErrorKind::TryAgain
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::BusyLoading
            )
        ) {
            Class::Unserved
        } else if error.is_timeout() {
            Class::Timeout
        } else if code == "OOM" {
            Class::Oom
        } else if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
            // A master without its replicas may have been replaced; a master with a full disk takes
            // no writes.
            || matches!(code, "NOREPLICAS" | "MISCONF")
        {
            Class::Readonly
        } else if error.is_io_error()
            || error.is_connection_dropped()
            || error.is_connection_refusal()
        {
            Class::Io
        } else if matches!(code, "DWELL_BROKER" | "DWELL_AGAIN" | "DWELL_SCHEDULE" | "DWELL_EXISTS")
        {
            Class::Outdated
        } else if code == "DWELL_LATE" {
            Class::Unserved
        } else if code.starts_with("DWELL_") {
            Class::Script
        } else if is_refused(error) {
            Class::Refused
        } else if lacks_lua(&error.to_string()) {
            Class::Settings
        } else if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm))
            || is_denied(&error.to_string())
        {
            Class::Other
        } else if let Some(class) = of_script(&error.to_string()) {
            class
        } else {
            Class::Other
        };
        let hint = match (error.kind(), code) {
            (ErrorKind::Server(ServerErrorKind::NoPerm), _) => PERMISSION_HINT,
            _ if is_denied(&error.to_string()) => PERMISSION_HINT,
            (_, "DWELL_VERSION") => UNREADABLE_HINT,
            _ if error.to_string().contains("bad lua script") => SCRIPT_CHECK_HINT,
            _ if class == Class::Settings => NO_LUA_HINT,
            _ if class == Class::Script => "run `dwell fsck`",
            (_, "NOAUTH") => {
                "write the user and the password into redis.urls or redis.urls_file: redis://USER:PASSWORD@HOST:6379"
            }
            _ => "",
        };
        let moved = error
            .redirect_node()
            .filter(|_| class == Class::Moved)
            .map(|(address, slot)| (slot, address.to_owned()));
        let has_word =
            code.starts_with("DWELL_") || code == BUSY_CODE || KEYS_CODES.contains(&code);
        let told = has_word
            .then(|| Box::new((code.to_owned(), error.detail().unwrap_or_default().to_owned())));
        StoreError {
            kind: (hint == PERMISSION_HINT).then_some(kind::ErrorKind::Permission),
            told,
            moved,
            ..StoreError::new(class, format!("redis: {doing}: {error}")).hint(hint)
        }
    }
}

/// Whether Redis refuses the login. A user that lacks a permission is logged in: another connection
/// would have no more.
fn is_refused(error: &redis::RedisError) -> bool {
    error.kind() == redis::ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// Whether the server has no Lua: a module since Valkey 9.1.
fn lacks_lua(text: &str) -> bool {
    text.contains("Could not find scripting engine")
        || ["EVAL", "EVALSHA", "SCRIPT"]
            .iter()
            .any(|name| text.contains(&format!("unknown command '{name}'")))
}

/// Whether the user may not run a command of a script, or not on that key. The words of Redis 7.0,
/// then of later versions and Valkey.
fn is_denied(text: &str) -> bool {
    ["NOPERM", "The user executing the script can't", "ACL failure in script"]
        .iter()
        .any(|word| text.contains(word))
}

/// The class of an error within a script; `None` if unknown. Only known damage is class `Script`: a
/// request with known damage is rejected, so a failure through the server's state must not count as
/// damage. Servers before Redis 7 put their error word after other words.
fn of_script(text: &str) -> Option<Class> {
    let words = [
        ("WRONGTYPE", Class::Script),
        ("OOM command not allowed", Class::Oom),
        ("not enough memory", Class::Oom),
        ("READONLY", Class::Readonly),
        // WAIT and WAITAOF at a master that became a replica.
        ("cannot be used with replica instances", Class::Readonly),
        ("NOREPLICAS", Class::Readonly),
        ("MISCONF", Class::Readonly),
        ("killed by user", Class::Unserved),
        ("max number of clients reached", Class::Unserved),
        // A slot is being moved, and the script removed the last entry of one of its keys; or the
        // cluster is down.
        ("attempted to access a non local key", Class::Unserved),
        ("undeclared keys were accessed during rehashing", Class::Unserved),
        ("while the cluster is down", Class::Unserved),
        // Errors of Lua itself begin with the line; errors of commands end with `on
        // @user_script:12.`
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
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value script: 1f, on @user_script:12.",
                Some(Class::Script),
            ),
            (
                "ERR user_script:31: attempt to index a nil value script: 1f, on @user_script:31.",
                Some(Class::Script),
            ),
            (
                "ERR user_script:1: bad argument #2 to 'unpack' (data string too short) script: c1, on @user_script:1.",
                Some(Class::Script),
            ),
            (
                "ERR Error running script (call to f_1f): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.",
                Some(Class::Oom),
            ),
            (
                "ERR Error running script (call to f_1f): @user_script:9: Script killed by user with SCRIPT KILL...",
                Some(Class::Unserved),
            ),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 1f, on @user_script:9.",
                Some(Class::Unserved),
            ),
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
            (
                "ERR a later version says what nobody knows today script: 1f, on @user_script:9.",
                None,
            ),
            ("ERR max number of clients reached", Some(Class::Unserved)),
            (
                "ResponseError: WAIT cannot be used with replica instances. Please also note that since Redis 4.0",
                Some(Class::Readonly),
            ),
            ("ERR WAITAOF cannot be used with replica instances.", Some(Class::Readonly)),
            ("ERR unknown command", None),
        ] {
            assert_eq!(of_script(text), class, "{text}");
        }
    }

    #[test]
    fn a_call_that_came_too_late_tells_the_clock_and_is_sent_again() {
        let answer = redis::parse_redis_value(
            b"-DWELL_LATE 1790000000123456 script: 1f, on @user_script:4.\r\n",
        )
        .unwrap();
        let error = StoreError::from_redis("schedule", &answer.extract_error().unwrap_err());
        assert_eq!(
            (error.late(), error.class, error.is_unreadable()),
            (Some(1_790_000_000_123_456), Class::Unserved, false)
        );
        assert_eq!(StoreError::new(Class::Io, "redis: schedule: DWELL_LATE cut at 5").late(), None);
    }

    #[test]
    fn a_script_names_each_set_that_its_keys_lack() {
        let answer = redis::parse_redis_value(
            b"-DWELL_BROKER 1 =orders 17 main script: 1f, on @user_script:4.\r\n",
        )
        .unwrap();
        let error = StoreError::from_redis("schedule", &answer.extract_error().unwrap_err());
        assert_eq!(error.class, Class::Outdated);
        assert_eq!(error.unknown_sets().collect::<Vec<_>>(), [(1, "=orders"), (17, "main")]);
        assert_eq!(StoreError::held_back("schedule").unknown_sets().count(), 0);
    }

    #[test]
    fn names_of_queues_say_nothing_of_the_error() {
        for name in [
            "DWELL_AGAIN",
            "DWELL_BROKER",
            "DWELL_LATE",
            "DWELL_VERSION",
            "DWELL_LATE.12345",
            "DWELL_BROKER.DWELL_AGAIN",
        ] {
            let text =
                format!("-DWELL_BROKER 1 ={name} 2 =a.{name} script: 1f, on @user_script:4.\r\n");
            let error = StoreError::from_redis(
                "cancel",
                &redis::parse_redis_value(text.as_bytes()).unwrap().extract_error().unwrap_err(),
            );
            let sets = [(1, format!("={name}")), (2, format!("=a.{name}"))];
            assert!(
                error
                    .unknown_sets()
                    .eq(sets.iter().map(|(position, set)| (*position, set.as_str()))),
                "{error}"
            );
            assert_eq!(
                (error.late(), error.is_again(), error.is_damage()),
                (None, false, false),
                "{error}"
            );
        }
        let text = "-NOPERM User dwell has no permissions to access the '{dwell:0}:due:=WRONGTYPE' key\r\n";
        let error = StoreError::from_redis(
            "x",
            &redis::parse_redis_value(text.as_bytes()).unwrap().extract_error().unwrap_err(),
        );
        assert_eq!(error.class, Class::Other);
    }

    #[test]
    fn a_cluster_that_checks_scripts_is_told_as_such() {
        let text = "-ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array\r\n";
        let answer = redis::parse_redis_value(text.as_bytes()).unwrap();
        let error = StoreError::from_redis("schedule", &answer.extract_error().unwrap_err());
        assert!(
            error.class == Class::Other && error.hint.contains("script_check_enable"),
            "{error:?}"
        );
    }

    #[test]
    fn a_server_without_lua_can_never_work() {
        // Valkey 9.1.2 without its module, and Redis 7.0.15 with renamed commands.
        for text in [
            "-ERR Could not find scripting engine 'lua'\r\n",
            "-ERR unknown command 'EVAL', with args beginning with: 'x'\r\n",
        ] {
            let answer = redis::parse_redis_value(text.as_bytes()).unwrap();
            let error = StoreError::from_redis("EVAL", &answer.extract_error().unwrap_err());
            assert_eq!(
                (error.class, error.hint.as_str()),
                (Class::Settings, NO_LUA_HINT),
                "{text}"
            );
        }
    }

    #[test]
    fn a_login_that_is_refused_is_told_apart_from_a_right_that_is_missing() {
        let of = |text: &str| {
            let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            StoreError::from_redis("x", &answer.extract_error().unwrap_err()).class
        };
        for text in [
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
        ] {
            assert_eq!(of(text), Class::Refused, "{text}");
        }
        for text in [
            "NOPERM User dwell has no permissions to run the 'hset' command",
            "NOPERM No permissions to access a channel",
            "ERR ACL failure in script: User dwell has no permissions to run the 'hset' command script: 1f, on @user_script:1.",
            "NOPERM User dwell has no permissions to run the 'config|get' command",
            "NOPERM this user has no permissions to run the 'config' command or its subcommand",
        ] {
            assert_eq!(of(text), Class::Other, "{text}");
        }
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
