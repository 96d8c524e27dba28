//! The commands as a shell runs them, against real servers.

mod act;
pub(crate) mod bed;
mod check;
mod check_servers;
mod fsck;
mod ls;
mod permissions;
mod send;
mod show;
mod start;
mod stranded;
mod watch;
