//! The runtime on Redis of every kind, and the jobs that each durability level keeps of those that
//! it acknowledged.
//!
//! - [`kind`]: jobs under load on a kind of Redis, their fate, the commands, and a figure or two.
//! - [`cluster`] (its durability [`gate`], masters [`frozen`]), [`sentinel`], [`tls`], [`acl`],
//!   [`versions`]: a kind each. [`loss`]: power cut, replicas that lag.
//! - [`places`]: a target that limits how many attempts are out.
//!
//! `DWELL_KIND_JOBS=20000` is the long form of those with failovers.

mod acl;
mod cluster;
mod durability;
mod frozen;
mod kind;
mod loss;
mod places;
mod sentinel;
mod tls;
mod versions;
