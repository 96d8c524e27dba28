//! The commands as a shell runs them, against real servers.

mod actions;
mod check;
mod check_limits;
mod check_servers;
mod declared_schedules;
pub(crate) mod fixture;
mod fsck;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "nats"))]
mod losses;
mod ls;
mod permissions;
mod queues;
mod ready;
mod schedules;
mod send;
mod show;
mod start;
mod stranded;
mod upgrade;
mod watch;
