//! SCAN, HSCAN and ZSCAN, page by page.

use redis::Value;

use super::bytes;
use crate::store::client::RedisClient;
use crate::store::error::StoreError;

/// The aimed size of a page, bytes: Redis sends it in about a millisecond.
const TARGET_PAGE_BYTES: usize = 1 << 20;
/// The most elements requested for a page.
const MAX_PAGE_ELEMENTS: usize = 512;

/// A running scan.
pub(super) struct Scan {
    command: &'static str,
    /// The scanned key; `None` for a scan of all keys.
    key: Option<String>,
    pattern: Option<String>,
    cursor: Vec<u8>,
    count: usize,
    ended: bool,
}

impl Scan {
    /// HSCAN: fields and values. ZSCAN: members and scores.
    pub(super) fn of(command: &'static str, key: &str) -> Self {
        Scan {
            command,
            key: Some(key.to_owned()),
            pattern: None,
            cursor: b"0".to_vec(),
            count: 16,
            ended: false,
        }
    }

    /// SCAN: all keys that contain `prefix`. The caller filters the keys that begin with `prefix`,
    /// or with a brace and `prefix`.
    pub(super) fn of_keys(prefix: &str) -> Self {
        let escaped: String = prefix
            .chars()
            .flat_map(|c| "[]*?\\^".contains(c).then_some('\\').into_iter().chain([c]))
            .collect();
        Scan {
            command: "SCAN",
            key: None,
            pattern: Some(format!("*{escaped}*")),
            cursor: b"0".to_vec(),
            count: MAX_PAGE_ELEMENTS,
            ended: false,
        }
    }

    /// The next page, which may be empty; `None` at the end. An element may occur more than once.
    pub(super) async fn next(
        &mut self,
        link: &RedisClient,
    ) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        let mut command = redis::cmd(self.command);
        command.arg(self.key.as_deref()).arg(&self.cursor[..]);
        if let Some(pattern) = &self.pattern {
            command.arg("MATCH").arg(pattern);
        }
        command.arg("COUNT").arg(self.count);
        let Value::Array(answer) = link.command(self.command, &command).await? else {
            return Ok(None);
        };
        let mut answer = answer.into_iter();
        self.cursor = answer.next().and_then(bytes).unwrap_or_else(|| b"0".to_vec());
        self.ended = self.cursor == b"0";
        let Some(Value::Array(items)) = answer.next() else { return Ok(Some(Vec::new())) };
        let items: Vec<Vec<u8>> = items.into_iter().filter_map(bytes).collect();
        let size: usize = items.iter().map(Vec::len).sum();
        // As many elements as fit in a page, by the size of the last page.
        self.count = (TARGET_PAGE_BYTES * self.count / size.max(1))
            .clamp(1, (2 * self.count).min(MAX_PAGE_ELEMENTS));
        Ok(Some(items))
    }
}
