//! A publication that was given to the client, until its confirm is judged.

use lapin::types::ShortString;
use tokio::time::Instant;

use super::quirks::return_matcher::PublishVerdict;
use crate::{Destination, Outcome, Token};

pub(super) struct InFlight {
    pub(super) token: Token,
    pub(super) to: Destination,
    pub(super) id: Option<ShortString>,
    pub(super) size: u64,
    /// It has more routing keys than its own.
    pub(super) copies: bool,
    /// When it was given to the client.
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    /// It was given up: its outcome is told.
    pub(super) told: bool,
}

impl InFlight {
    pub(super) fn outcome(&self, verdict: PublishVerdict) -> Outcome {
        match verdict {
            PublishVerdict::Taken => Outcome::Confirmed,
            PublishVerdict::Returned => Outcome::Unroutable(format!("no queue takes messages for `{}`", self.to)),
            PublishVerdict::Nacked if self.to.exchange.is_empty() && !self.copies => {
                Outcome::Refused(format!("the queue `{}` does not take messages now", self.to))
            }
            PublishVerdict::Nacked => Outcome::Unknown(format!("a queue behind `{}` refused: others may have taken it", self.to)),
            PublishVerdict::Unclear => Outcome::Unknown("the broker returned a message that cannot be told from others".to_owned()),
        }
    }
}

pub(super) fn too_large(size: u64, most: u64) -> Outcome {
    Outcome::Invalid(format!("the body has {size} bytes, the broker takes {most}"))
}
