//! The maker of the load's destinations.

use dwell_connectors::{BrokerConfig, Destination, Role};

use super::{Error, jetstream};

/// Creates destinations of the load.
#[derive(Debug, Clone)]
pub struct Maker {
    pub(crate) broker: BrokerConfig,
    /// The port of NATS, which takes the login of the load, or has no users.
    pub(crate) nats: Option<u16>,
}

impl Maker {
    /// Creates a destination for letters. On NATS the stream forgets ids at once, so that its
    /// deduplication hides no copy of Dwell's.
    ///
    /// # Errors
    /// The destination was not created, or the result is unknown.
    pub async fn make(&self, name: &str) -> Result<(), Error> {
        match self.nats {
            Some(port) => jetstream::make_target(port, name).await,
            None => {
                self.broker.declare(&Destination::new(name), Role::Letters).await?;
                Ok(())
            }
        }
    }
}
