//! The Lua scripts: a `.lua` file with a header each. The needed parts of the shared prelude
//! precede each script.

mod needed;

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
    Sweep,
    Cancel,
    Reschedule,
    Fire,
    Finish,
    Fail,
    Requeue,
    Move,
    FsckJobs,
    FsckAdopt,
    FsckKey,
    FsckMemories,
}

const PRELUDE: &str = include_str!("scripts/prelude.lua");
const SOUND: &str = include_str!("scripts/sound.lua");
const ACT: &str = include_str!("scripts/act.lua");

impl Name {
    /// Every script.
    pub const ALL: [Name; 21] = [
        Name::Schedule,
        Name::Claim,
        Name::Reclaim,
        Name::Complete,
        Name::Hold,
        Name::Release,
        Name::Retry,
        Name::Bury,
        Name::Rescue,
        Name::Sweep,
        Name::Cancel,
        Name::Reschedule,
        Name::Fire,
        Name::Finish,
        Name::Fail,
        Name::Requeue,
        Name::Move,
        Name::FsckJobs,
        Name::FsckAdopt,
        Name::FsckKey,
        Name::FsckMemories,
    ];

    /// The name in the file name and in `dwell_redis_seconds{script}`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.parts().0
    }

    fn parts(self) -> (&'static str, bool, &'static str) {
        match self {
            Name::Schedule => ("schedule", false, include_str!("scripts/schedule.lua")),
            Name::Claim => ("claim", false, include_str!("scripts/claim.lua")),
            Name::Reclaim => ("reclaim", false, include_str!("scripts/reclaim.lua")),
            Name::Complete => ("complete", false, include_str!("scripts/complete.lua")),
            Name::Hold => ("hold", false, include_str!("scripts/hold.lua")),
            Name::Release => ("release", false, include_str!("scripts/release.lua")),
            Name::Retry => ("retry", false, include_str!("scripts/retry.lua")),
            Name::Bury => ("bury", false, include_str!("scripts/bury.lua")),
            Name::Rescue => ("rescue", false, include_str!("scripts/rescue.lua")),
            Name::Sweep => ("sweep", false, include_str!("scripts/sweep.lua")),
            Name::Cancel => ("cancel", true, include_str!("scripts/cancel.lua")),
            Name::Reschedule => ("reschedule", true, include_str!("scripts/reschedule.lua")),
            Name::Fire => ("fire", true, include_str!("scripts/fire.lua")),
            Name::Finish => ("finish", true, include_str!("scripts/finish.lua")),
            Name::Fail => ("fail", true, include_str!("scripts/fail.lua")),
            Name::Requeue => ("requeue", true, include_str!("scripts/requeue.lua")),
            Name::Move => ("move", false, include_str!("scripts/move.lua")),
            Name::FsckJobs => ("fsck_jobs", false, include_str!("scripts/fsck_jobs.lua")),
            Name::FsckAdopt => ("fsck_adopt", false, include_str!("scripts/fsck_adopt.lua")),
            Name::FsckKey => ("fsck_key", false, include_str!("scripts/fsck_key.lua")),
            Name::FsckMemories => ("fsck_memories", false, include_str!("scripts/fsck_memories.lua")),
        }
    }

    /// The whole text for Redis.
    #[must_use]
    pub fn source(self) -> String {
        let (_, acts, source) = self.parts();
        // The scripts of fsck must run on damaged keys.
        let repairs = matches!(self, Name::FsckJobs | Name::FsckAdopt | Name::FsckKey | Name::FsckMemories);
        let shared = match (repairs, acts) {
            (true, _) => String::new(),
            (false, true) => format!("{SOUND}\n{ACT}\n"),
            (false, false) => format!("{SOUND}\n"),
        };
        let own = shared + source;
        needed::needed(PRELUDE, &own) + &own
    }
}

/// The SHA-1 of every script, computed once.
#[derive(Debug)]
pub struct Scripts(Vec<String>);

impl Default for Scripts {
    fn default() -> Self {
        Scripts(Name::ALL.into_iter().map(|name| Script::new(&name.source()).get_hash().to_owned()).collect())
    }
}

impl Scripts {
    /// The hash by which Redis identifies the script.
    #[must_use]
    pub fn hash(&self, name: Name) -> &str {
        &self.0[name as usize]
    }
}
