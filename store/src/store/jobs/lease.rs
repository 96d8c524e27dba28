//! The lease of a job that a pop handed out, as its consumer names it.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::job::is_queue_name;
use crate::store::record::Nonce;

/// The first bytes of a token: nonce, span, wait, seal.
const TOKEN_HEAD_BYTES: usize = 8 + 4 + 6 + 8;
/// Between the queue and the expiry of the job; the name of a queue has no such character.
const EXPIRY: char = '<';
/// No wait.
const NO_WAIT: u64 = (1 << 48) - 1;

/// The lease of a job that was handed out, as its consumer names it. Opaque to consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The nonce of the pop.
    pub nonce: Nonce,
    /// The span of the lease, ms.
    pub ttr_ms: u32,
    /// The wait that a `fail` begins, ms; `None`: the retry array is at its end.
    pub wait_ms: Option<u64>,
    /// The time from which the job is expired, epoch ms: a wait that would end past it is not begun.
    pub expires_ms: Option<i64>,
    /// The queue.
    pub queue: String,
    /// Proves that the store made the lease for this job, with these terms.
    pub seal: [u8; 8],
}

impl Lease {
    /// Reads the text of a token. `None` if the text is no token.
    #[must_use]
    pub fn read(text: &str) -> Option<Lease> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (head, rest) = bytes.split_at_checked(TOKEN_HEAD_BYTES)?;
        let rest = std::str::from_utf8(rest).ok()?;
        let (queue, expires_ms) = match rest.split_once(EXPIRY) {
            Some((queue, expires)) => (queue, Some(expires.parse().ok()?)),
            None => (rest, None),
        };
        let mut wait = [0; 8];
        wait[2..].copy_from_slice(&head[12..18]);
        let wait = u64::from_be_bytes(wait);
        Some(Lease {
            nonce: head[..8].try_into().ok()?,
            ttr_ms: u32::from_be_bytes(head[8..12].try_into().ok()?),
            wait_ms: (wait != NO_WAIT).then_some(wait),
            seal: head[18..].try_into().ok()?,
            expires_ms,
            queue: Some(queue).filter(|queue| is_queue_name(queue))?.to_owned(),
        })
    }

    /// The text of the token, of `A-Z a-z 0-9 _ -`.
    #[must_use]
    pub fn text(&self) -> String {
        let (terms, of_job) = (self.terms(), self.of_job());
        let parts = [&terms[..], &self.seal, of_job.as_bytes()];
        URL_SAFE_NO_PAD.encode(parts.concat())
    }

    /// The queue, and the expiry if there is one.
    pub(in crate::store) fn of_job(&self) -> Cow<'_, str> {
        match self.expires_ms {
            Some(ms) => Cow::Owned(format!("{}{EXPIRY}{ms}", self.queue)),
            None => Cow::Borrowed(&self.queue),
        }
    }

    /// Nonce, span and wait.
    pub(in crate::store) fn terms(&self) -> [u8; 18] {
        let wait = self.wait_ms.map_or(NO_WAIT, |ms| ms.min(NO_WAIT - 1)).to_be_bytes();
        let mut terms = [0; 18];
        terms[..8].copy_from_slice(&self.nonce);
        terms[8..12].copy_from_slice(&self.ttr_ms.to_be_bytes());
        terms[12..].copy_from_slice(&wait[2..]);
        terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for (wait_ms, expires_ms) in
            [(None, None), (Some(0), Some(i64::MAX)), (Some(54_000_000), Some(-1))]
        {
            let token = Lease {
                nonce: [9; 8],
                ttr_ms: 30_000,
                wait_ms,
                expires_ms,
                queue: "orders.close".to_owned(),
                seal: [7; 8],
            };
            assert_eq!(Lease::read(&token.text()), Some(token));
        }
        for text in ["", "x", "AAAA", "====", "\u{fc}", &"A".repeat(24), &"A".repeat(400)] {
            assert_eq!(Lease::read(text), None, "{text}");
        }
    }
}
