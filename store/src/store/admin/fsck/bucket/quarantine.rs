//! The quarantine of a bucket, from which a job in the wrong bucket moves to its own.

use std::collections::HashSet;

use crate::store::admin::fsck::scan::Scan;
use crate::store::admin::fsck::{Fsck, Problem, bytes};
use crate::store::call::script_call::ScriptCall;
use crate::store::due_set::DueSet;
use crate::store::error::StoreError;
use crate::store::record;
use crate::store::scripts::Name;

/// The begin of a quarantine entry whose job is being moved to its own bucket.
const UNFINISHED_MOVE_PREFIX: &[u8] = b"1 wrong_bucket ";

impl Fsck<'_> {
    /// Moves a job from quarantine to the bucket of its id. Leaves it there if another job has that
    /// id.
    pub(super) async fn move_home(
        &mut self,
        bucket: u16,
        id: &[u8],
        field: &[u8],
    ) -> Result<(), StoreError> {
        let quarantine = self.store.keys.quarantine(bucket);
        let answer =
            self.store.link.command("HGET", redis::cmd("HGET").arg(&quarantine).arg(field)).await?;
        let (Some(entry), Ok(text)) = (bytes(answer), std::str::from_utf8(id)) else {
            return Ok(());
        };
        let Some(aside) = QuarantinedJob::read(&entry) else { return Ok(()) };
        let home = self.store.keys.bucket_of(text);
        let mark = [b"taken_in ", field].concat();
        let read = record::decode(bytes::Bytes::copy_from_slice(aside.record)).ok();
        let set = read.as_ref().map(|read| DueSet::of(&read.job)).filter(|set| set.is_of_queue());
        let set = set.map(|set| set.to_string());
        let mut call = self.call_with_quarantine(Name::FsckAdopt, home, set.iter());
        call.arg(id)
            .arg(aside.record)
            .arg(aside.state)
            .arg(aside.place)
            .arg(aside.score)
            .arg(&mark);
        if bytes(self.store.call(&call).await?).as_deref() == Some(b"done") {
            // The order matters: after an interruption between the two, the job is neither lost in
            // quarantine nor added again.
            self.store.link.command("HDEL", redis::cmd("HDEL").arg(&quarantine).arg(field)).await?;
            let at_home = self.store.keys.quarantine(home);
            self.store.link.command("HDEL", redis::cmd("HDEL").arg(at_home).arg(&mark)).await?;
            self.moved.push((home, id.to_vec()));
        } else {
            let stays = [b"1 id_taken ", &entry[UNFINISHED_MOVE_PREFIX.len()..]].concat();
            self.store
                .link
                .command("HSET", redis::cmd("HSET").arg(&quarantine).arg(field).arg(stays))
                .await?;
            tracing::warn!(
                id = text,
                bucket,
                quarantine,
                "another job has this id: the one in the wrong bucket stays in quarantine"
            );
        }
        Ok(())
    }

    /// Completes moves to other buckets that an interrupted run left in quarantine.
    pub(in crate::store::admin::fsck) async fn unfinished(
        &mut self,
        bucket: u16,
    ) -> Result<(), StoreError> {
        let mut scan = Scan::of("HSCAN", &self.store.keys.quarantine(bucket));
        let mut seen = HashSet::new();
        while let Some(page) = scan.next(&self.store.link).await? {
            let mut page = page.into_iter();
            while let (Some(field), Some(entry)) = (page.next(), page.next()) {
                let Some(space) = field.iter().position(|byte| *byte == b' ') else { continue };
                if !entry.starts_with(UNFINISHED_MOVE_PREFIX) || !seen.insert(field.clone()) {
                    continue;
                }
                let id = &field[space + 1..];
                if self.rules.repair {
                    self.move_home(bucket, id, &field).await?;
                }
                self.tell(bucket, id, Problem::WrongBucket, self.rules.repair);
            }
        }
        Ok(())
    }

    /// Makes a script call with the sets of the brokers and of these queues, and with the
    /// quarantine.
    pub(super) fn call_with_quarantine<'a>(
        &self,
        name: Name,
        bucket: u16,
        queues: impl Iterator<Item = &'a String>,
    ) -> ScriptCall {
        let mut sets = self.store.brokers().to_vec();
        sets.extend(queues.cloned());
        self.store.script_call_with(name, bucket, &sets, &[self.store.keys.quarantine(bucket)])
    }
}

/// A quarantine entry: `1 problem place score length-of-state length-of-record`, a line feed,
/// state, record.
struct QuarantinedJob<'a> {
    place: &'a str,
    score: &'a str,
    state: &'a [u8],
    record: &'a [u8],
}

impl<'a> QuarantinedJob<'a> {
    fn read(entry: &'a [u8]) -> Option<Self> {
        let end = entry.iter().position(|byte| *byte == b'\n')?;
        let head = std::str::from_utf8(&entry[..end]).ok()?;
        // A broker's name may contain spaces, so the place is the rest of the line.
        let rest = head.strip_prefix("1 ")?.split_once(' ')?.1;
        let mut words = rest.rsplitn(4, ' ');
        let record: usize = words.next()?.parse().ok()?;
        let state: usize = words.next()?.parse().ok()?;
        let (score, place) = (words.next()?, words.next()?);
        let bytes = &entry[end + 1..];
        (bytes.len() == state + record).then(|| QuarantinedJob {
            place,
            score,
            state: &bytes[..state],
            record: &bytes[state..],
        })
    }
}
