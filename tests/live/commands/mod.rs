//! The commands as a shell runs them, against real servers.

mod act;
mod bed;
mod check;
mod check_servers;
mod fsck;
mod http;
mod ls;
mod permissions;
mod send;
mod show;
mod watch;
