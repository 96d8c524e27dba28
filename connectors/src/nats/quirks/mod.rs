//! Workarounds for behaviour of async-nats. Each file names the behaviour and when the file may go.

pub(super) mod delivery_connection;
pub(super) mod header_block;
pub(super) mod unreadable_message;
