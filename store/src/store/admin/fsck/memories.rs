//! Judges the memory of a bucket of completed jobs and applied messages: `completed`, `applied` and
//! the older tables of both.

use super::scan::Scan;
use super::{Fsck, Problem};
use crate::job::Verdict;
use crate::store::admin::sweep::APPLIED_ROTATION_MS;
use crate::store::answer::Items;
use crate::store::call::CALL_JOBS;
use crate::store::error::{Class, StoreError};
use crate::store::scripts::Name;

/// The four tables by their index in KEYS, from 1.
const TABLE_KEY_INDEXES: [usize; 4] = [4, 5, 6, 7];
/// The least size of an entry in `completed`: outcome, marks, fingerprint, due. Later versions
/// append to it.
const COMPLETED_BYTES: usize = 18;

/// An unreadable entry: table, field, value.
type Entry = (usize, Vec<u8>, Vec<u8>);

impl Fsck<'_> {
    /// Judges the four tables of a bucket.
    pub(super) async fn memories(&mut self, bucket: u16) -> Result<(), StoreError> {
        let mut entries: Vec<Entry> = Vec::new();
        for table in TABLE_KEY_INDEXES {
            let key = self.store.keys.fixed(bucket)[table - 1].clone();
            let mut scan = Scan::of("HSCAN", &key);
            while let Some(page) = scan.next(&self.store.link).await? {
                let mut page = page.into_iter();
                while let (Some(field), Some(value)) = (page.next(), page.next()) {
                    let is_sound = if table <= 5 {
                        is_outcome(&value)
                    } else {
                        field.len() == 8 && is_act(&value)
                    };
                    // The empty field holds the time of the table.
                    if !field.is_empty() && !is_sound {
                        entries.push((table, field, value));
                    }
                }
                while entries.len() >= CALL_JOBS {
                    let some = entries.split_off(entries.len() - CALL_JOBS);
                    self.judge_memories(bucket, &some).await?;
                }
            }
        }
        self.judge_memories(bucket, &entries).await
    }

    async fn judge_memories(&mut self, bucket: u16, entries: &[Entry]) -> Result<(), StoreError> {
        let mut call = self.store.script_call(Name::FsckMemories, bucket, &[]);
        call.arg(u8::from(self.rules.repair))
            .arg(self.rules.sweep.dedupe_window_ms)
            .arg(APPLIED_ROTATION_MS);
        for (table, field, value) in entries {
            call.arg(*table).arg(&field[..]).arg(&value[..]);
        }
        let mut items = Items::new("fsck_memories", self.store.call(&call).await?)?;
        while items.left() >= 4 {
            let table = usize::try_from(items.int()?).unwrap_or(0);
            let field = items.bytes()?;
            let word = items.text()?;
            let problem = Problem::of_word(&word).ok_or_else(|| {
                StoreError::new(
                    Class::Script,
                    format!("redis: fsck_memories answered `{word}` instead of a problem"),
                )
            })?;
            let repaired = items.int()? == 1;
            let key = self
                .store
                .keys
                .fixed(bucket)
                .get(table.wrapping_sub(1))
                .cloned()
                .unwrap_or_default();
            match (field.is_empty(), table) {
                (true, _) => self.tell(bucket, key.as_bytes(), problem, repaired),
                (false, ..=5) => self.tell(bucket, &field, problem, repaired),
                // A fingerprint is not text.
                (false, _) => {
                    let hex: String = field.iter().map(|byte| format!("{byte:02x}")).collect();
                    self.tell(bucket, hex.as_bytes(), problem, repaired);
                }
            }
        }
        Ok(())
    }
}

fn is_outcome(value: &[u8]) -> bool {
    value.len() >= COMPLETED_BYTES && matches!(value[0], b'f' | b'd' | b'n')
}

/// Whether the value is a verdict, a colon, and a time or nothing.
fn is_act(value: &[u8]) -> bool {
    let Some((verdict, due)) =
        std::str::from_utf8(value).ok().and_then(|text| text.rsplit_once(':'))
    else {
        return false;
    };
    Verdict::parse(verdict).is_some() && (due.is_empty() || due.parse::<i64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_from_damage() {
        assert!(is_act(b"added:1000") && is_act(b"not_found:") && is_act(b"fired:-5"));
        assert!(
            !is_act(b"added") && !is_act(b"soon:1") && !is_act(b"added:soon") && !is_act(b"\xff:1")
        );
        assert!(is_outcome(b"f\0fingerpr\0\0\0\0\0\0\0\x01"));
        assert!(is_outcome(b"f\0fingerpr\0\0\0\0\0\0\0\x01generati"));
        assert!(!is_outcome(b"x\0fingerpr\0\0\0\0\0\0\0\x01") && !is_outcome(b"f"));
    }
}
