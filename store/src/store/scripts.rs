//! The Lua scripts: a `.lua` file with a header each. The needed parts of the shared prelude
//! precede each script, or stand in the block of it that alone needs them.

mod prelude_parts;

use std::sync::Arc;

use redis::Script;

/// A script of the store: the file, the method and the metric share its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is explained in the header of its .lua file")]
pub enum Name {
    Schedule,
    Claim,
    Reclaim,
    Complete,
    Hold,
    Release,
    Retry,
    Bury,
    Rescue,
    TimeOut,
    Sweep,
    Cancel,
    Reschedule,
    Fire,
    Finish,
    Fail,
    Requeue,
    Move,
    Pop,
    Unpop,
    Acknowledge,
    Purge,
    Forget,
    End,
    ChangeSchedule,
    FsckJobs,
    FsckAdopt,
    FsckKey,
    FsckMemories,
    FsckLeases,
    FsckHold,
    FsckCounts,
}

/// The least number of finished jobs, and of applied requests, that a namespace remembers, if no
/// time makes it forget them: each of the four tables of a bucket has its share of them, and a few
/// more.
pub const MIN_REMEMBERED_JOBS: u32 = 1_000_000;
const MEMORY_MAX: &str = "local MEMORY_MAX = ";
const PRELUDE: &str = include_str!("scripts/prelude.lua");
const SOUND: &str = include_str!("scripts/sound.lua");
const ACT: &str = include_str!("scripts/act.lua");
const SETTLE: &str = include_str!("scripts/settle.lua");
const SHARED: &str = include_str!("scripts/shared.lua");
/// The word of `sound.lua` that stands for the number of keys behind the sets.
const BEHIND: &str = "BEHIND";
/// What `sound.lua` does besides in a script that has the recurring schedules as its last key.
const SCHEDULE_COUNT: &str = "local SCHEDULE_COUNT = call('HLEN', KEYS[#KEYS])\n";
/// The line of `shared.lua` that stands for the text of the script.
const SHARED_PLACE: &str = "-- SCRIPT\n";

impl Name {
    /// Every script.
    pub const ALL: [Name; 32] = [
        Name::Schedule,
        Name::Claim,
        Name::Reclaim,
        Name::Complete,
        Name::Hold,
        Name::Release,
        Name::Retry,
        Name::Bury,
        Name::Rescue,
        Name::TimeOut,
        Name::Sweep,
        Name::Cancel,
        Name::Reschedule,
        Name::Fire,
        Name::Finish,
        Name::Fail,
        Name::Requeue,
        Name::Move,
        Name::Pop,
        Name::Unpop,
        Name::Acknowledge,
        Name::Purge,
        Name::Forget,
        Name::End,
        Name::ChangeSchedule,
        Name::FsckJobs,
        Name::FsckAdopt,
        Name::FsckKey,
        Name::FsckMemories,
        Name::FsckLeases,
        Name::FsckHold,
        Name::FsckCounts,
    ];

    /// The name in the file name and in `dwell_redis_seconds{script}`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.parts().0
    }

    /// The name, the text between the prelude and the script, and the script.
    fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Name::Schedule => ("schedule", "", include_str!("scripts/schedule.lua")),
            Name::Claim => ("claim", "", include_str!("scripts/claim.lua")),
            Name::Reclaim => ("reclaim", "", include_str!("scripts/reclaim.lua")),
            Name::Complete => ("complete", "", include_str!("scripts/complete.lua")),
            Name::Hold => ("hold", SETTLE, include_str!("scripts/hold.lua")),
            Name::Release => ("release", SETTLE, include_str!("scripts/release.lua")),
            Name::Retry => ("retry", SETTLE, include_str!("scripts/retry.lua")),
            Name::Bury => ("bury", SETTLE, include_str!("scripts/bury.lua")),
            Name::Rescue => ("rescue", "", include_str!("scripts/rescue.lua")),
            Name::TimeOut => ("time_out", "", include_str!("scripts/time_out.lua")),
            Name::Sweep => ("sweep", "", include_str!("scripts/sweep.lua")),
            Name::Cancel => ("cancel", ACT, include_str!("scripts/cancel.lua")),
            Name::Reschedule => ("reschedule", ACT, include_str!("scripts/reschedule.lua")),
            Name::Fire => ("fire", ACT, include_str!("scripts/fire.lua")),
            Name::Finish => ("finish", ACT, include_str!("scripts/finish.lua")),
            Name::Fail => ("fail", ACT, include_str!("scripts/fail.lua")),
            Name::Requeue => ("requeue", ACT, include_str!("scripts/requeue.lua")),
            Name::Move => ("move", "", include_str!("scripts/move.lua")),
            Name::Pop => ("pop", "", include_str!("scripts/pop.lua")),
            Name::Unpop => ("unpop", "", include_str!("scripts/unpop.lua")),
            Name::Acknowledge => ("acknowledge", "", include_str!("scripts/acknowledge.lua")),
            Name::Purge => ("purge", "", include_str!("scripts/purge.lua")),
            Name::Forget => ("forget", "", include_str!("scripts/forget.lua")),
            Name::End => ("end", "", include_str!("scripts/end.lua")),
            Name::ChangeSchedule => {
                ("change_schedule", "", include_str!("scripts/change_schedule.lua"))
            }
            Name::FsckJobs => ("fsck_jobs", "", include_str!("scripts/fsck_jobs.lua")),
            Name::FsckAdopt => ("fsck_adopt", "", include_str!("scripts/fsck_adopt.lua")),
            Name::FsckKey => ("fsck_key", "", include_str!("scripts/fsck_key.lua")),
            Name::FsckMemories => ("fsck_memories", "", include_str!("scripts/fsck_memories.lua")),
            Name::FsckLeases => ("fsck_leases", "", include_str!("scripts/fsck_leases.lua")),
            Name::FsckHold => ("fsck_hold", "", include_str!("scripts/fsck_hold.lua")),
            Name::FsckCounts => ("fsck_counts", "", include_str!("scripts/fsck_counts.lua")),
        }
    }

    /// The whole text for Redis, for a namespace of this many buckets.
    #[must_use]
    pub fn source(self, buckets: u16) -> String {
        let (_, shared, source) = self.parts();
        // The scripts of fsck must run on damaged keys. Schedule, pop and acknowledge, most of whose
        // calls are for one job, check the keys that they write themselves.
        let checks_itself = matches!(self, Name::Schedule | Name::Pop | Name::Acknowledge);
        let repairs = self.as_str().starts_with("fsck_");
        let sound = if repairs || checks_itself { String::new() } else { self.sound() };
        let own = format!("{sound}\n{shared}\n{source}");
        let share = memory_share(buckets);
        let prelude = PRELUDE.replace(
            &format!("{MEMORY_MAX}{MIN_REMEMBERED_JOBS}\n"),
            &format!("{MEMORY_MAX}{share}\n"),
        );
        prelude_parts::with_prelude(&prelude, &own)
    }

    /// The check of the keys. The keys behind the sets are those of `Keys::schedule_keys_of`, or of
    /// pops.
    fn sound(self) -> String {
        let (behind, count) = match self {
            Name::ChangeSchedule => ("4", SCHEDULE_COUNT),
            Name::Cancel
            | Name::Reschedule
            | Name::Fire
            | Name::Finish
            | Name::Fail
            | Name::Requeue => ("2", SCHEDULE_COUNT),
            Name::Unpop => ("2", ""),
            _ => ("0", ""),
        };
        SOUND.replace(BEHIND, behind) + count
    }

    /// Whether several calls may share a command: those that callers send one a job, and whose
    /// answers do not hold jobs.
    fn is_shared(self) -> bool {
        matches!(
            self,
            Name::Schedule
                | Name::Cancel
                | Name::Reschedule
                | Name::Fire
                | Name::Finish
                | Name::Fail
                | Name::Requeue
        )
    }

    /// The whole text for Redis that runs several calls in one command; `None` if a call of this
    /// script is always a command of its own.
    #[must_use]
    pub fn shared_source(self, buckets: u16) -> Option<String> {
        self.is_shared().then(|| SHARED.replace(SHARED_PLACE, &(self.source(buckets) + "\n")))
    }
}

/// The most entries of a turn of a table, before the turn ends. Ids fall into buckets by chance: of
/// the newest [`MIN_REMEMBERED_JOBS`] a bucket may have more than the mean. Four standard
/// deviations (each the square root of `mean × (1 - 1 / buckets)`) are enough for all but one
/// bucket of 30 000.
fn memory_share(buckets: u16) -> u32 {
    let buckets = u32::from(buckets.max(1));
    let mean = MIN_REMEMBERED_JOBS.div_ceil(buckets);
    mean + 4 * (mean - mean / buckets).isqrt()
}

/// The scripts of a namespace: the SHA-1 of each, computed once.
#[derive(Debug)]
pub struct Scripts {
    buckets: u16,
    hashes: Vec<String>,
    /// Those of the texts that run several calls.
    shared_hashes: Vec<Option<Arc<str>>>,
}

impl Scripts {
    /// The scripts of a namespace of this many buckets.
    #[must_use]
    pub fn new(buckets: u16) -> Self {
        let hash = |source: &str| Script::new(source).get_hash().to_owned();
        let shared =
            |name: Name| -> Option<Arc<str>> { Some(hash(&name.shared_source(buckets)?).into()) };
        Scripts {
            buckets,
            hashes: Name::ALL.iter().map(|name| hash(&name.source(buckets))).collect(),
            shared_hashes: Name::ALL.into_iter().map(shared).collect(),
        }
    }

    /// The whole text for Redis.
    #[must_use]
    pub fn source(&self, name: Name) -> String {
        name.source(self.buckets)
    }

    /// The hash by which Redis identifies the script.
    #[must_use]
    pub fn hash(&self, name: Name) -> &str {
        &self.hashes[name as usize]
    }

    /// The whole text for Redis that runs several calls in one command, if there is one.
    #[must_use]
    pub fn shared_source(&self, name: Name) -> Option<String> {
        name.shared_source(self.buckets)
    }

    /// The hash of that text.
    #[must_use]
    pub(in crate::store) fn shared_hash(&self, name: Name) -> Option<Arc<str>> {
        self.shared_hashes[name as usize].clone()
    }
}
