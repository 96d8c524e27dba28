//! The jobs at the head of a set that this version cannot read, as the last call found them.

use std::time::Duration;

use bytes::Bytes;

use crate::clock::Instant;
use crate::store::call::script_call::ScriptCall;
use crate::store::jobs::Jobs;

/// Unreadable jobs are skipped once they fill one call; fewer are looked at in every call.
const SKIP_THRESHOLD_JOBS: u32 = 1024;
/// The time for which these jobs are skipped before the next look: someone may have repaired them.
const SKIP_TTL: Duration = Duration::from_secs(60);

/// Jobs at the head of a set that this version cannot read. The next call starts after them;
/// otherwise they would hide all others.
#[derive(Debug, Clone)]
pub(in crate::store::jobs) struct Unread {
    pub(super) count: u32,
    pub(super) last: Bytes,
    pub(super) score: Bytes,
    /// The time of the last look at the first of these jobs.
    pub(super) since: Instant,
}

impl Jobs {
    /// Appends the known unreadable head of this set to a call. Answers when that head was first
    /// examined.
    pub(super) fn pass_over(
        &self,
        bucket: u16,
        set: &str,
        call: &mut ScriptCall,
    ) -> Option<Instant> {
        let mut unread = self.unread.lock();
        if !unread.is_empty() {
            let of_set = (bucket, set.to_owned());
            match unread.get(&of_set) {
                Some(known)
                    if known.count >= SKIP_THRESHOLD_JOBS && known.since.elapsed() < SKIP_TTL =>
                {
                    call.arg(known.count).arg(&known.last[..]).arg(&known.score[..]);
                    return Some(known.since);
                }
                _ => drop(unread.remove(&of_set)),
            }
        }
        call.arg(0).arg("").arg("");
        None
    }

    /// Remembers the unreadable head of a set that a call found.
    pub(super) fn found_unread(&self, (bucket, set): (u16, &str), found: Unread) {
        let mut unread = self.unread.lock();
        if found.count > 0 {
            unread.insert((bucket, set.to_owned()), found);
        } else if !unread.is_empty() {
            unread.remove(&(bucket, set.to_owned()));
        }
    }
}
