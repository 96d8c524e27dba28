//! Verdicts: what an answer says is what happens, also when jobs are cancelled while they fall due.
//!
//! - `interfaces`: who cancels, and by what way.
//! - `race`: thousands of jobs on three brokers, cancelled while they fall due.

mod interfaces;
mod race;
