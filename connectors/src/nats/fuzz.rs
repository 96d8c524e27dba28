//! Entry points for `crate::fuzz`.

use super::headers;
use super::quirks::header_block;
use crate::{Headers, Message};

pub(crate) fn headers(bytes: &[u8]) -> (Headers, bool) {
    (header_block::parse(bytes), header_block::is_plain(bytes))
}

pub(crate) fn publishable(message: Message) -> Result<(), String> {
    headers::to_nats(message.headers, "id").map(drop)
}
