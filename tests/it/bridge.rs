//! The whole bridge in this process: a broker in memory, whose faults can be chosen, and a real Redis.

mod consumer;
mod crash;
mod cut_off;
mod delivery;
mod early;
mod faults;
mod gate;
mod late;
mod race;
mod redis_away;
mod requests;
mod returned;
mod rig;
mod roles;
mod settling;
mod silent;
mod start;
mod sweep;
mod unreadable;
