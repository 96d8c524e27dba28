//! The kinds of errors, by what a program can do about them.

/// What a program can do about an [`Error`](super::StoreError).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Redis does not answer or does not serve the call now, and may have carried it out. Repeat
    /// the same call after a pause.
    Unavailable,
    /// Redis, the queue or this process has no room. Repeat the call when some is free.
    Full,
    /// The request cannot be carried out as it is: correct it. Nothing changed.
    Rejected,
    /// This version cannot read the job or its bucket: a later version wrote the data, or the data
    /// is damaged. `dwell fsck` tells which.
    Unreadable,
    /// An older or newer version of Dwell made the namespace: upgrade an older one by
    /// `Client::upgrade` or `dwell upgrade`; else use that version, or another namespace.
    Incompatible,
    /// Redis refuses the login, or the user lacks a permission.
    Permission,
    /// The configuration cannot be used with this Redis, or with any.
    Configuration,
    /// Any other failure: the message is for people.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::error::{Class, StoreError};

    #[test]
    fn each_answer_of_redis_has_its_kind() {
        for (text, kind) in [
            ("LOADING Redis is loading the dataset in memory", ErrorKind::Unavailable),
            ("READONLY You can't write against a read only replica.", ErrorKind::Unavailable),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Full),
            ("DWELL_VERSION x script: 1f, on @user_script:4.", ErrorKind::Unreadable),
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                ErrorKind::Permission,
            ),
            (
                "NOPERM User dwell has no permissions to run the 'hset' command",
                ErrorKind::Permission,
            ),
            (
                "ERR ACL failure in script: User dwell has no permissions to run the 'hset' command script: 1f, on @user_script:1.",
                ErrorKind::Permission,
            ),
            ("ERR unknown command 'EVAL', with args beginning with: 'x'", ErrorKind::Configuration),
            ("ERR syntax error", ErrorKind::Other),
        ] {
            let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            let error = StoreError::from_redis("x", &answer.extract_error().unwrap_err());
            assert_eq!(error.kind(), kind, "{text}");
        }
    }

    #[test]
    fn a_kind_of_its_own_comes_before_that_of_the_class() {
        let error = StoreError::rejected("no");
        assert_eq!((error.class, error.kind()), (Class::Other, ErrorKind::Rejected));
        let error = StoreError::new(Class::Settings, "old").of_kind(ErrorKind::Incompatible);
        assert_eq!((error.class, error.kind()), (Class::Settings, ErrorKind::Incompatible));
        assert_eq!(StoreError::new(Class::Taken, "taken").kind(), ErrorKind::Rejected);
    }
}
