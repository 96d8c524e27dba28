//! The sizes of queues, which anybody may ask for, also without a token: such calls cost Redis little,
//! however many come.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::clock::{self, Instant};
use crate::compat::service::Service;
use crate::store::error::StoreError;
use crate::store::reader::lookup::Place;

/// How old a size may be that a caller without a token gets.
const AGE: Duration = Duration::from_secs(1);
/// How long such callers wait after a count before the next one, whatever queue it is of.
const PAUSE: Duration = Duration::from_millis(20);
/// The most sizes that are kept.
const KEPT: usize = 256;

/// The sizes that callers without a token got last.
#[derive(Default)]
pub(super) struct Sizes(Mutex<HashMap<(String, bool), (Instant, u64)>>);

impl Sizes {
    /// How many jobs of a queue are ready, or dead. `is_known`: for the bearer of a token, who gets the
    /// size of now.
    pub(super) async fn of(&self, service: &Service, queue: String, place: Place, is_known: bool) -> Result<u64, StoreError> {
        if is_known {
            return service.count(&queue, place).await;
        }
        // One after the other.
        let mut kept = self.0.lock().await;
        let asked = (queue, place == Place::Dead);
        if let Some((_, size)) = kept.get(&asked).filter(|(at, _)| at.elapsed() < AGE) {
            return Ok(*size);
        }
        let size = service.count(&asked.0, place).await?;
        if kept.len() >= KEPT {
            kept.retain(|_, (at, _)| at.elapsed() < AGE);
        }
        if kept.len() < KEPT {
            kept.insert(asked, (clock::now(), size));
        }
        clock::sleep(PAUSE).await;
        Ok(size)
    }
}
