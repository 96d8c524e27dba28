//! Dwell adds delayed delivery to the broker that a team already runs. The modules, in reading order:
//!
//! - [`config`]: the settings; [`units`]: durations, sizes and times as people write them.
//! - [`job`]: a job and the words for its states, verdicts and ends.
//! - [`request`]: a message becomes a request, or is refused with a code.
//! - [`store`]: the only place that knows Redis.
//! - [`clock`]: the one place that reads time.

pub mod clock;
pub mod config;
pub mod http;
pub mod job;
pub mod request;
pub mod servers;
pub mod store;
pub mod telemetry;
pub mod units;
