//! A publication that lapin has, until its confirm is judged.

use lapin::types::ShortString;
use tokio::time::Instant;

use super::quirks::return_matcher::PublishVerdict;
use crate::{Destination, Outcome, Token};

pub(super) struct InFlight {
    pub(super) token: Token,
    pub(super) to: Destination,
    pub(super) id: Option<ShortString>,
    pub(super) size: u64,
    /// It has further routing keys (`CC`, `BCC`).
    pub(super) copies: bool,
    /// When lapin got it.
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    /// It timed out: its outcome is already reported.
    pub(super) told: bool,
}

impl InFlight {
    pub(super) fn outcome(&self, verdict: PublishVerdict) -> Outcome {
        match verdict {
            PublishVerdict::Taken => Outcome::Confirmed,
            PublishVerdict::Returned => {
                Outcome::Unroutable(format!("no queue receives messages for `{}`", self.to))
            }
            PublishVerdict::Nacked if self.to.exchange.is_empty() && !self.copies => {
                Outcome::Refused(format!("the queue `{}` does not accept messages now", self.to))
            }
            PublishVerdict::Nacked => Outcome::Unknown(format!(
                "a queue of `{}` nacked: other queues may have stored the message",
                self.to
            )),
            PublishVerdict::Unclear => Outcome::Unknown(
                "the broker returned a message that matches no publication".to_owned(),
            ),
        }
    }
}

pub(super) fn too_large(size: u64, most: u64) -> Outcome {
    Outcome::Invalid(format!("the body has {size} bytes, the broker takes {most}"))
}
