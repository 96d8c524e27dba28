//! Doors for `crate::fuzz`.

use super::{block, headers};
use crate::{Headers, Message};

pub(crate) fn headers(bytes: &[u8]) -> (Headers, bool) {
    (block::parse(bytes), block::is_plain(bytes))
}

pub(crate) fn publishable(message: Message) -> Result<(), String> {
    headers::to_nats(message.headers, "id").map(drop)
}
