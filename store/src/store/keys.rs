//! Every Redis key of Dwell. All keys of a bucket share one hash tag, so that a script touches one
//! slot.

use std::sync::Arc;

use crate::store::due_set::DueSet;
use crate::store::scripts::Name;

/// The number of keys that come first in every script call.
pub(super) const FIXED_KEYS: usize = 12;
const FIXED_KEY_NAMES: [&str; FIXED_KEYS] = [
    "claim_deadlines",
    "jobs",
    "state",
    "completed",
    "completed_old",
    "applied",
    "applied_old",
    "dead",
    "claims",
    "settled",
    "held",
    "queues",
];
/// The pops of consumers: two hashes that take turns.
const POPS_KEYS: [&str; 2] = ["pops", "pops_old"];
/// The index of jobs that have an end of their own, or an expiry.
const ENDS_KEY: &str = "ends";
/// The recurring schedules, in the order of KEYS (change_schedule.lua), and the index of ends, which
/// the same scripts write.
const SCHEDULE_KEYS: [&str; 4] = ["schedule_times", "schedule_states", ENDS_KEY, "schedules"];
/// The recurring schedules that instances have in their settings.
const DECLARED_KEY: &str = "declared_schedules";
/// The turns of limited targets.
const LIMITS_KEY: &str = "limits";
/// The begin of the names of what is out of each limit, in the slot of [`LIMITS_KEY`].
const PLACES_PREFIX: &str = "places:";

/// The keys of one namespace.
#[derive(Debug, Clone)]
pub struct Keys {
    namespace: Arc<str>,
    buckets: u16,
    /// Per bucket, in the order of KEYS (prelude.lua).
    fixed: Arc<[[String; FIXED_KEYS]]>,
    /// Per bucket, in the order of [`SCHEDULE_KEYS`].
    schedules: Arc<[[String; 4]]>,
}

/// The kind of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A fixed key of a bucket.
    Fixed(u16),
    /// The `due` of a broker, or of `=` and a queue.
    Due(u16, String),
    /// Another key of a queue.
    Queue(u16),
    /// A key of the recurring schedules.
    Schedules(u16),
    /// A key of the whole namespace, or one in quarantine.
    Whole,
    /// Not a key of Dwell; in this bucket, if known.
    Unknown(Option<u16>),
}

impl Keys {
    /// The keys of a namespace with this many buckets.
    #[must_use]
    pub fn new(namespace: &str, buckets: u16) -> Self {
        let fixed = (0..buckets)
            .map(|bucket| FIXED_KEY_NAMES.map(|name| format!("{{{namespace}:{bucket:02}}}:{name}")))
            .collect();
        let schedules = (0..buckets)
            .map(|bucket| SCHEDULE_KEYS.map(|name| format!("{{{namespace}:{bucket:02}}}:{name}")))
            .collect();
        Keys { namespace: namespace.into(), buckets, fixed, schedules }
    }

    /// The number of buckets.
    #[must_use]
    pub fn buckets(&self) -> u16 {
        self.buckets
    }

    /// The bucket of an id: the first 8 bytes of the BLAKE3 hash of its [root](root_of),
    /// little-endian, modulo the number of buckets. Part of the stored format.
    #[must_use]
    pub fn bucket_of(&self, id: &str) -> u16 {
        bucket_of(id, self.buckets)
    }

    /// The keys that come first in every script call of this bucket.
    #[must_use]
    pub fn fixed(&self, bucket: u16) -> &[String; FIXED_KEYS] {
        &self.fixed[usize::from(bucket)]
    }

    /// Jobs that wait for their due time, of one broker, or of `=` and a queue: zset id → due ms.
    #[must_use]
    pub fn due(&self, bucket: u16, set: &str) -> String {
        format!("{{{}:{bucket:02}}}:due:{set}", self.namespace)
    }

    /// Dead jobs of a queue, by `=` and its name: zset id → time of death ms.
    #[must_use]
    pub fn dead_of(&self, bucket: u16, set: &str) -> String {
        format!("{{{}:{bucket:02}}}:dead:{set}", self.namespace)
    }

    /// The sets of one broker or queue that a script may change.
    pub(super) fn sets(&self, bucket: u16, set: &str) -> impl Iterator<Item = String> {
        let dead = DueSet::named(set).is_of_queue().then(|| self.dead_of(bucket, set));
        std::iter::once(self.due(bucket, set)).chain(dead)
    }

    /// The jobs that the pops of this bucket handed out: hash nonce → ids; the newer hash, then the
    /// older one.
    #[must_use]
    pub fn pops(&self, bucket: u16) -> [String; 2] {
        POPS_KEYS.map(|name| format!("{{{}:{bucket:02}}}:{name}", self.namespace))
    }

    /// Jobs by when to look at them, because of an expiry or an end of their own (`ttl` of lmstfy):
    /// zset id → epoch ms. The index is a hint: the record of the job says when it ends.
    #[must_use]
    pub fn ends(&self, bucket: u16) -> String {
        format!("{{{}:{bucket:02}}}:{ENDS_KEY}", self.namespace)
    }

    /// The next times of the recurring schedules that are not paused: zset id → epoch ms, nominal.
    #[must_use]
    pub fn schedule_times(&self, bucket: u16) -> &str {
        &self.schedule_keys(bucket)[0]
    }

    /// The mutable parts of the recurring schedules: hash id → state.
    #[must_use]
    pub fn schedule_states(&self, bucket: u16) -> &str {
        &self.schedule_keys(bucket)[1]
    }

    /// The recurring schedules: hash id → record.
    #[must_use]
    pub fn schedules(&self, bucket: u16) -> &str {
        &self.schedule_keys(bucket)[3]
    }

    /// The keys of the recurring schedules, in the order of KEYS of `change_schedule.lua`.
    #[must_use]
    pub fn schedule_keys(&self, bucket: u16) -> &[String; 4] {
        &self.schedules[usize::from(bucket)]
    }

    /// The keys of the recurring schedules that this script has behind its sets: all of them; the
    /// index of ends, and the last one, by which the script knows that an id is a schedule's; or
    /// none.
    #[must_use]
    pub fn schedule_keys_of(&self, script: Name, bucket: u16) -> &[String] {
        let keys = self.schedule_keys(bucket);
        match script {
            Name::ChangeSchedule => keys,
            Name::Schedule
            | Name::Cancel
            | Name::Reschedule
            | Name::Fire
            | Name::Finish
            | Name::Fail
            | Name::Requeue => &keys[2..],
            _ => &[],
        }
    }

    /// The queues: hash `=` and queue → number of held jobs; `!=` and queue → `1` while paused.
    #[must_use]
    pub fn queues(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[11]
    }

    /// Claims by deadline: zset nonce → deadline ms.
    #[must_use]
    pub fn claim_deadlines(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[0]
    }

    /// The jobs of each claim: hash nonce → ids and due times.
    #[must_use]
    pub fn claims(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[8]
    }

    /// The settled jobs of each claim: hash nonce → time of its first write, then a bit per job.
    #[must_use]
    pub fn settled(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[9]
    }

    /// Jobs that wait for their consumers: zset id → end of the TTR ms.
    #[must_use]
    pub fn held(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[10]
    }

    /// The job pool: hash id → record.
    #[must_use]
    pub fn jobs(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[1]
    }

    /// The mutable parts of jobs: hash id → state.
    #[must_use]
    pub fn state(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[2]
    }

    /// Dead jobs: zset id → time of death ms.
    #[must_use]
    pub fn dead(&self, bucket: u16) -> &str {
        &self.fixed(bucket)[7]
    }

    /// Entries that `fsck --repair` removed from this bucket: hash, time and id → a line of
    /// description, then the bytes.
    #[must_use]
    pub fn quarantine(&self, bucket: u16) -> String {
        format!("{{{}:{bucket:02}}}:quarantine", self.namespace)
    }

    /// The name to which `fsck --repair` moves a whole key of a wrong type, in the same slot.
    #[must_use]
    pub fn aside(&self, key: &str, now_ms: i64) -> String {
        match key.split_once("}:") {
            Some((tag, name)) => format!("{tag}}}:quarantined:{name}:{now_ms}"),
            None => format!("{{{key}}}:quarantined:{now_ms}"),
        }
    }

    /// The kind of a key by its name; `None` if the key belongs to another namespace.
    #[must_use]
    pub fn part_of(&self, key: &str) -> Option<Part> {
        let name = |rest: &str| {
            rest.strip_prefix(&*self.namespace)
                .and_then(|rest| rest.strip_prefix(':'))
                .map(str::to_owned)
        };
        let Some(rest) = key.strip_prefix('{').and_then(name) else {
            // A name with another colon belongs to a namespace with a longer name.
            return match name(key)?.as_str() {
                "meta" | "instances" | DECLARED_KEY | LIMITS_KEY => Some(Part::Whole),
                other => (!other.contains(':')).then_some(Part::Unknown(None)),
            };
        };
        let (tag, name) = rest.split_once("}:")?;
        if tag == LIMITS_KEY && name.starts_with(PLACES_PREFIX) {
            return Some(Part::Whole);
        }
        if matches!(tag, "meta" | "instances" | DECLARED_KEY | LIMITS_KEY) {
            return name.starts_with("quarantined:").then_some(Part::Whole);
        }
        let bucket: u16 =
            tag.parse().ok().filter(|_| tag.bytes().all(|byte| byte.is_ascii_digit()))?;
        let is_ours = bucket < self.buckets && tag == format!("{bucket:02}");
        Some(match name.strip_prefix("due:") {
            _ if !is_ours => Part::Unknown(Some(bucket)),
            Some(set) => Part::Due(bucket, set.to_owned()),
            None if is_dead_of_queue(name) || name == ENDS_KEY || POPS_KEYS.contains(&name) => {
                Part::Queue(bucket)
            }
            None if SCHEDULE_KEYS.contains(&name) => Part::Schedules(bucket),
            None if name == "quarantine" || name.starts_with("quarantined:") => Part::Whole,
            None if self.fixed(bucket).iter().any(|fixed| fixed == key) => Part::Fixed(bucket),
            None => Part::Unknown(Some(bucket)),
        })
    }

    /// The description of the namespace (schema, buckets, brokers, epoch): hash.
    #[must_use]
    pub fn meta(&self) -> String {
        format!("{}:meta", self.namespace)
    }

    /// Living instances: zset `name broker,broker` (an older version: `name`) → heartbeat ms.
    #[must_use]
    pub fn instances(&self) -> String {
        format!("{}:instances", self.namespace)
    }

    /// The recurring schedules that instances have in their settings: zset id → when an instance
    /// last said so, epoch ms.
    #[must_use]
    pub fn declared_schedules(&self) -> String {
        format!("{}:{DECLARED_KEY}", self.namespace)
    }

    /// The turns of limited targets (`limit.lua`): hash of a broker, a space and a pattern → until
    /// when turns are taken, epoch µs; since when jobs wait, epoch ms; the rule.
    #[must_use]
    pub fn limits(&self) -> String {
        format!("{}:{LIMITS_KEY}", self.namespace)
    }

    /// What is out of the limit of this name at a time (`places.lua`): zset place → end of its lease,
    /// epoch ms. All are in the slot of [`limits`](Keys::limits), so that one call reaches several.
    #[must_use]
    pub fn places(&self, limit: &str) -> String {
        format!("{{{}:{LIMITS_KEY}}}:{PLACES_PREFIX}{limit}", self.namespace)
    }

    /// Whether this key of the namespace is one of [`places`](Keys::places).
    pub(super) fn is_of_places(&self, key: &str) -> bool {
        key.split_once("}:").is_some_and(|(_, name)| name.starts_with(PLACES_PREFIX))
    }

    /// The channel of the wake-ups between instances: `bucket due broker`.
    #[must_use]
    pub fn wake(&self) -> String {
        format!("{}:wake", self.namespace)
    }
}

/// Whether this is the name of the dead jobs of a queue, in its bucket (see [`Keys::dead_of`]).
fn is_dead_of_queue(name: &str) -> bool {
    name.strip_prefix("dead:").is_some_and(|set| DueSet::named(set).is_of_queue())
}

/// The number of digits of the time in the id of an occurrence.
const OCCURRENCE_DIGITS: usize = 13;

/// The root of an id: the id without one `@` and 13 digits at its end. The occurrences of a
/// recurring schedule have the id of the schedule as their root, so one bucket has them all.
#[must_use]
pub fn root_of(id: &str) -> &str {
    match id.len().checked_sub(OCCURRENCE_DIGITS + 1).and_then(|at| id.split_at_checked(at)) {
        Some((root, end)) if is_end_of_occurrence(end) => root,
        _ => id,
    }
}

fn is_end_of_occurrence(end: &str) -> bool {
    end.strip_prefix('@').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The bucket of an id for this number of buckets, as [`Keys::bucket_of`].
#[must_use]
pub fn bucket_of(id: &str, buckets: u16) -> u16 {
    let hash = blake3::hash(root_of(id).as_bytes());
    let first: [u8; 8] = std::array::from_fn(|i| hash.as_bytes()[i]);
    // The remainder is less than `buckets`, which is a u16.
    (u64::from_le_bytes(first) % u64::from(buckets)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_bucket_share_one_hash_tag() {
        let keys = Keys::new("dwell", 16);
        assert_eq!(keys.due(7, "main"), "{dwell:07}:due:main");
        assert!(keys.fixed(7).iter().all(|key| key.starts_with("{dwell:07}:")));
    }

    #[test]
    fn a_script_has_the_keys_of_schedules_that_it_reads() {
        let keys = Keys::new("dwell", 16);
        let known = "{dwell:07}:schedules".to_owned();
        for script in Name::ALL {
            let source = script.source(16);
            let given = keys.schedule_keys_of(script, 7);
            assert_eq!(source.contains("SCHEDULES"), given.last() == Some(&known), "{script:?}");
            assert_eq!(source.contains("SCHEDULE_STATES"), given.len() == 4, "{script:?}");
        }
        assert_eq!(
            (keys.schedule_times(7), keys.schedule_states(7), keys.schedules(7)),
            ("{dwell:07}:schedule_times", "{dwell:07}:schedule_states", known.as_str())
        );
    }

    #[test]
    fn a_script_looks_for_sets_in_all_keys_but_those_behind_its_sets() {
        let keys = Keys::new("dwell", 16);
        for script in Name::ALL {
            // The number stands in the text, as `#KEYS - 2`.
            let source = script.source(16);
            let checks = source.split("for i = FIRST_DUE, #KEYS - ").skip(1);
            let left_out: Vec<usize> = checks
                .map(|rest| rest.split(' ').next().unwrap_or_default().parse::<usize>().unwrap())
                .collect();
            // Scripts of fsck run on damaged keys, and these two check the keys that they write.
            let checks_no_set = matches!(script, Name::Pop | Name::Acknowledge)
                || script.as_str().starts_with("fsck_");
            assert_eq!(left_out.is_empty(), checks_no_set, "{script:?}");
            let of_pops = if script == Name::Unpop { keys.pops(7).len() } else { 0 };
            let behind = keys.schedule_keys_of(script, 7).len() + of_pops;
            assert!(
                left_out.iter().all(|count| *count == behind),
                "{script:?} leaves out {left_out:?} keys, and has {behind} behind its sets"
            );
        }
    }

    #[test]
    fn the_bucket_of_an_id_never_changes() {
        // Golden values: with another hash, no stored job would be found.
        let keys = Keys::new("dwell", 16);
        assert_eq!(["order-1", "order-2", "x", "ü"].map(|id| keys.bucket_of(id)), GOLDEN_BUCKETS);
    }

    #[test]
    fn an_occurrence_has_the_bucket_of_its_schedule() {
        for (id, root) in [
            ("daily@1763722800000", "daily"),
            ("ü@1763722800000", "ü"),
            ("a@1763722800000@1763722800000", "a@1763722800000"),
            ("@1763722800000", ""),
            ("daily@176372280000", "daily@176372280000"),
            ("daily@17637228000000", "daily@17637228000000"),
            ("daily@176372280000x", "daily@176372280000x"),
            ("daily1763722800000", "daily1763722800000"),
            ("üüüüüüü", "üüüüüüü"),
            ("", ""),
        ] {
            assert_eq!(root_of(id), root, "{id}");
        }
        assert_eq!(bucket_of("order-1@1763722800000", 16), GOLDEN_BUCKETS[0]);
    }

    #[test]
    fn a_key_is_known_by_its_name() {
        let keys = Keys::new("dwell", 16);
        for (key, part) in [
            ("{dwell:07}:due:main", Some(Part::Due(7, "main".to_owned()))),
            ("{dwell:07}:due:=orders", Some(Part::Due(7, "=orders".to_owned()))),
            ("{dwell:07}:dead:=orders", Some(Part::Queue(7))),
            ("{dwell:07}:pops_old", Some(Part::Queue(7))),
            ("{dwell:07}:ends", Some(Part::Queue(7))),
            ("{dwell:07}:schedules", Some(Part::Schedules(7))),
            ("{dwell:07}:schedule_states", Some(Part::Schedules(7))),
            ("{dwell:07}:schedule_times", Some(Part::Schedules(7))),
            ("{dwell:07}:applied_old", Some(Part::Fixed(7))),
            ("{dwell:07}:quarantine", Some(Part::Whole)),
            (keys.aside("{dwell:07}:due:main", 5).as_str(), Some(Part::Whole)),
            (keys.aside("dwell:meta", 5).as_str(), Some(Part::Whole)),
            ("dwell:instances", Some(Part::Whole)),
            ("dwell:declared_schedules", Some(Part::Whole)),
            ("dwell:limits", Some(Part::Whole)),
            (keys.places("main orders.a").as_str(), Some(Part::Whole)),
            (keys.aside(&keys.places("main orders.a"), 5).as_str(), Some(Part::Whole)),
            ("{dwell:limits}:other", None),
            ("dwell:metas", Some(Part::Unknown(None))),
            ("{dwell:16}:jobs", Some(Part::Unknown(Some(16)))),
            ("{dwell:007}:jobs", Some(Part::Unknown(Some(7)))),
            ("{dwell:07}:job", Some(Part::Unknown(Some(7)))),
            // Keys of the namespaces `dwell:eu` and `dwell2`, and of none.
            ("{dwell:eu:07}:jobs", None),
            ("dwell:eu:meta", None),
            ("{dwell2:07}:jobs", None),
            ("other", None),
        ] {
            assert_eq!(keys.part_of(key), part, "{key}");
        }
        assert_eq!(keys.aside("{dwell:07}:due:main", 5), "{dwell:07}:quarantined:due:main:5");
    }

    const GOLDEN_BUCKETS: [u16; 4] = [3, 3, 10, 11];
}
