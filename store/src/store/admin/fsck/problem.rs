//! The kinds of damage: a word and a meaning each.

use serde::Serialize;

/// The kinds with their words and meanings. Only lists: they stay readable as a table.
macro_rules! problems {
    ($($name:ident = $word:literal, $meaning:literal;)+) => {
        /// A kind of damage. `docs/reference/fsck.md` describes the repair of each kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs, reason = "each has its meaning beside it")]
        pub enum Problem { $($name,)+ }

        impl Problem {
            /// Every kind.
            pub const ALL: &'static [Problem] = &[$(Problem::$name,)+];

            /// The word in scripts and JSON.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Problem::$name => $word,)+ }
            }

            /// The meaning, for people.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Problem::$name => $meaning,)+ }
            }
        }
    };
}

problems! {
    RecordWithoutIndex = "record_without_index", "a job in none of due, the leases, held and dead: it would never fire";
    IndexWithoutRecord = "index_without_record", "an id in due, a lease, held or dead without a job";
    StateWithoutRecord = "state_without_record", "the state of a job that does not exist";
    InTwoSets = "in_two_sets", "a job in more than one of due, the leases, held and dead";
    WrongBroker = "wrong_broker", "a job in the set of another broker";
    WrongBucket = "wrong_bucket", "a job in a bucket that does not fit its id: no command finds it";
    BadId = "bad_id", "a job under an id that dwell does not write: it cannot be settled";
    UnreadableRecord = "unreadable_record", "a job whose record cannot be decoded";
    UnreadableState = "unreadable_state", "a job whose state cannot be decoded";
    UnknownVersion = "unknown_version", "written by another version of dwell, or damaged in its first byte; left in place";
    LeaseWithoutOwner = "lease_without_owner", "a lease without its jobs, or a job that is held for nobody";
    LeaseExpired = "lease_expired", "a reserved job whose lease ended over a minute ago: no instance rescues it";
    FenceWithoutLease = "fence_without_lease", "a waiting or dead job that counts as held for a consumer";
    BadScore = "bad_score", "an impossible time in due, held, dead or of a lease";
    BadCount = "bad_count", "a count of the reserved jobs of a queue that is not their number";
    ScheduleTime = "schedule_time", "a recurring schedule whose next time is not in schedule_times: it would fire at another time, or never";
    EarlyScore = "early_score", "a job that would fire before its due time";
    DeadWithoutReason = "dead_without_reason", "a dead job without a reason";
    DeadPastRetention = "dead_past_retention", "a dead job that is kept longer than delivery.dead_retention";
    GoneButLive = "gone_but_live", "a job that exists and is also remembered as over";
    BadMemory = "bad_memory", "a remembered outcome or verdict that cannot be read";
    MemoryPastTime = "memory_past_time", "remembered outcomes that are kept too long";
    MemoryWithoutTime = "memory_without_time", "remembered outcomes that would never be removed";
    MetaMissing = "meta_missing", "buckets without the key that holds their number: no instance can join";
    MetaBuckets = "meta_buckets", "a number of buckets that does not fit the jobs";
    MetaBroker = "meta_broker", "jobs of a broker that the namespace does not know: no instance would read them";
    WrongType = "wrong_type", "a key of the wrong type: every script on it fails";
    KeyExpires = "key_expires", "a key with a time to live: its content would vanish";
    UnknownKey = "unknown_key", "a key below the namespace that dwell does not write; left in place";
}

impl Problem {
    /// The kind of this word.
    pub(super) fn of_word(word: &str) -> Option<Problem> {
        Problem::ALL.iter().copied().find(|problem| problem.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_json_and_the_docs() {
        let docs = include_str!("../../../../../docs/reference/fsck.md");
        for problem in Problem::ALL {
            assert_eq!(
                serde_json::to_string(problem).unwrap(),
                format!("\"{}\"", problem.as_str())
            );
            assert_eq!(Problem::of_word(problem.as_str()), Some(*problem));
            assert!(
                docs.contains(&format!("| `{}` |", problem.as_str())),
                "docs/reference/fsck.md has nothing of {}",
                problem.as_str()
            );
        }
    }
}
