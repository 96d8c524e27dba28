//! Jobs with a due time, kept in Redis. (Front page follows.)

pub mod clock;
pub mod config;
pub mod job;
pub mod request;
pub mod retry;
pub mod store;
