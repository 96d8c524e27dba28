//! Entry points for `crate::fuzz`.

use super::headers::to_kafka;
use crate::Message;

pub(crate) fn publishable(message: &Message) -> Result<(), String> {
    to_kafka(&message.headers).map(drop)
}
