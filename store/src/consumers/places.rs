//! What the waiting pops of a process may take together: the queues that it watches, and the names
//! that they keep.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::error::{Class, StoreError};

/// The most queues that a process watches, of about 3.5 kB each: 28 MB. Each bucket of each is
/// looked at.
const MAX_WATCHED_QUEUES: usize = 8192;
/// The most names of all waiting pops together, besides the first of each, which stands for a
/// connection. A name has up to 255 bytes: 15 MB.
const MAX_FURTHER_NAMES: usize = 50_000;

/// The places of waiting pops.
pub(super) struct Places {
    /// The most queues that are watched.
    pub(super) queues: usize,
    /// The most names besides the first of each pop.
    names: usize,
    /// The names that are left.
    left: Arc<Semaphore>,
}

/// The place of the names of one pop. Dropped, others have it.
pub(super) type NamesPlace = OwnedSemaphorePermit;

impl Default for Places {
    fn default() -> Self {
        Places::new(MAX_WATCHED_QUEUES, MAX_FURTHER_NAMES)
    }
}

impl Places {
    /// Places for so many watched queues, and so many names besides the first of each pop.
    pub(super) fn new(queues: usize, names: usize) -> Places {
        Places { queues, names, left: Arc::new(Semaphore::new(names)) }
    }

    /// Takes the place of a waiting pop of so many queues; `None`: it needs none.
    ///
    /// # Errors
    /// [`Class::Memory`]: other pops have the places.
    pub(super) fn take(&self, queues: usize) -> Result<Option<NamesPlace>, StoreError> {
        let further = u32::try_from(queues.saturating_sub(1)).unwrap_or(u32::MAX);
        if further == 0 {
            return Ok(None);
        }
        self.left.clone().try_acquire_many_owned(further).map(Some).map_err(|_| {
            refused(format!(
                "the waiting pops of this instance may name {} queues besides the first of each, \
                 and this pop has too many for what is left",
                self.names
            ))
        })
    }

    /// The error of a pop that would wait for a queue which is not watched, while so many are.
    pub(super) fn no_queue(&self) -> StoreError {
        let most = self.queues;
        refused(format!("pops wait for {most} queues at this instance, and for no more at a time"))
    }
}

fn refused(why: String) -> StoreError {
    StoreError::new(Class::Memory, why)
        .hint("name fewer queues in a pop, run more instances, or try again")
}
