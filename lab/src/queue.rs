//! Queues measured: consumers that fetch over HTTP, as strangers would. Under faults they are the
//! queue scenario of [`chaos`](crate::chaos).
//!
//! - [`mod@bench`]: how fast, how late, and what waiting consumers cost; `limit`: open files.

pub mod bench;
pub(crate) mod limit;
