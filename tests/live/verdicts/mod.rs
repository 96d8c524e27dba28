//! Verdicts: an answer tells the truth, also when jobs are cancelled while they fall due.
//!
//! - `interfaces`: the interfaces that cancel.
//! - `race`: thousands of jobs on three brokers, cancelled while they fall due.

mod interfaces;
mod race;
