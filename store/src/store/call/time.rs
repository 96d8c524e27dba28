//! Times in the arguments of scripts. `time_of` of `prelude.lua` reads them.

use std::fmt;

use redis::{RedisWrite, ToRedisArgs};

use crate::job::Due;

/// A time as an argument of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Time {
    /// Epoch ms.
    At(i64),
    /// ms from the call of the script.
    In(u64),
    /// The earlier of the two.
    Earlier {
        /// Epoch ms.
        at_ms: i64,
        /// ms from the call of the script.
        in_ms: u64,
    },
    /// The later of the two.
    Later {
        /// Epoch ms.
        at_ms: i64,
        /// ms from the call of the script.
        in_ms: u64,
    },
}

impl From<Due> for Time {
    fn from(due: Due) -> Self {
        match due {
            Due::At(ms) => Time::At(ms),
            Due::In(ms) => Time::In(ms),
            Due::Earlier { at_ms, in_ms } => Time::Earlier { at_ms, in_ms },
        }
    }
}

/// The notation of the scripts.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Time::At(ms) => write!(f, "={ms}"),
            Time::In(ms) => write!(f, "+{ms}"),
            Time::Earlier { at_ms, in_ms } => write!(f, "<{at_ms} {in_ms}"),
            Time::Later { at_ms, in_ms } => write!(f, ">{at_ms} {in_ms}"),
        }
    }
}

impl ToRedisArgs for Time {
    fn write_redis_args<W>(&self, out: &mut W)
    where
        W: ?Sized + RedisWrite,
    {
        out.write_arg_fmt(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_scripts_read_them() {
        for (time, text) in [
            (Time::from(Due::At(-5)), "=-5"),
            (Due::In(30_000).into(), "+30000"),
            (Due::Earlier { at_ms: 7, in_ms: 0 }.into(), "<7 0"),
            (Time::Later { at_ms: -7, in_ms: 60 }, ">-7 60"),
        ] {
            assert_eq!(time.to_redis_args(), [text.as_bytes()]);
        }
    }
}
