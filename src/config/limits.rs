//! `[limits]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;
use super::rules::MAX_DURATION_MS;
use super::values::{Bytes, Millis, Optional};

/// 49 days: a record stores the TTR in 32 bits. The only bound of [`Ttr`] is `limits.max_ttr`.
const MAX_TTR_MS: u64 = 49 * 24 * 3600 * 1000;
/// A Redis value has at most 512 MiB, and a record holds more than the body.
const MAX_BODY_BYTES: u64 = 256 * 1024 * 1024;
/// Every client library accepts this limit.
const MAX_INBOUND_BYTES: u64 = 1 << 30;
/// The default bound of read and unstored bytes, which keeps an instance with one ingest below 256
/// MiB.
const DEFAULT_INBOUND_BYTES: u64 = 64 << 20;

/// How long a job may take until its consumer confirms or finishes it.
pub(super) type Ttr = Millis<1, MAX_DURATION_MS>;

impl Ttr {
    /// The time in ms, as a record stores it.
    #[must_use]
    pub fn stored_ms(self) -> u32 {
        u32::try_from(self.ms()).unwrap_or(u32::MAX)
    }
}

/// The limits of a request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(default)]
pub struct Limits {
    /// The longest delay; a request with a longer one is rejected.
    pub max_delay: Millis<1, MAX_DURATION_MS>,
    /// The largest body. At most 256MiB.
    pub max_body: Bytes<1, MAX_BODY_BYTES>,
    /// The maximum number of waits in `delay-retry`.
    #[schemars(range(min = 0, max = 1000))]
    pub max_retries: usize,
    /// How often a message that Dwell published may return as a new request.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub max_rounds: u32,
    /// The longest time to run where the consumer confirms. At most 49d.
    pub max_ttr: Millis<1, MAX_TTR_MS>,
    /// How many bytes of memory the read and not yet stored requests of each ingest may take:
    /// `64MiB`, `100kB`. At least `limits.max_body`. Empty: 64MiB, or `max_body` if larger.
    pub max_inbound_bytes: Optional<Bytes<0, MAX_INBOUND_BYTES>>,
}

impl Default for Limits {
    fn default() -> Self {
        defaults::section("limits")
    }
}

impl Limits {
    /// The memory of the read and not yet stored requests of an ingest, bytes.
    #[must_use]
    pub fn max_inbound_bytes(&self) -> u64 {
        let default = self.max_body.bytes().max(DEFAULT_INBOUND_BYTES);
        self.max_inbound_bytes.map_or(default, |bytes| bytes.bytes())
    }
}
