//! The runtime in this process: a broker in memory with injectable faults, and a real Redis.

mod consumer;
mod crash;
mod cut_off;
mod delivery;
mod durability;
mod early;
mod environment;
mod events;
mod faults;
mod in_flight;
mod late;
mod limits;
mod race;
mod redis_away;
mod requests;
mod returned;
mod roles;
mod settling;
mod silent;
mod start;
mod sweep;
mod unreadable;
