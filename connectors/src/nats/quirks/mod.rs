//! Workarounds for behaviour of async-nats. Each file says what the library does and where, what
//! Dwell does about it, and when the workaround may go.

pub(super) mod delivery_connection;
pub(super) mod header_block;
pub(super) mod lost_deliveries;
pub(super) mod unreadable_message;
