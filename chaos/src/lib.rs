//! Breaks Dwell, its Redis and its brokers on purpose, while load runs, and checks that no promise broke with them.
//!
//! In reading order:
