//! The load of the queue scenario: consumers that fetch over HTTP, as strangers would.
//!
//! - `consumer`, `words`, `producer`: the load; `scene`: what they share; `faults`: those that a
//!   queue has.

pub(crate) mod consumer;
pub(crate) mod faults;
pub(crate) mod producer;
pub(crate) mod scene;
mod words;
