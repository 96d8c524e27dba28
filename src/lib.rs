//! Dwell adds delayed delivery to the broker that a team already runs. The modules, in reading order:

pub mod job;
pub mod request;
pub mod units;

pub mod config;

pub mod http;
pub mod servers;
pub mod telemetry;
