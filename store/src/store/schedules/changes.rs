//! Tells the spawner of this process that a schedule was put or resumed: its next time may be
//! earlier than all that the spawner knows of.

use tokio::sync::watch;

use crate::store::namespace::Namespace;

impl Namespace {
    /// A schedule was put or resumed by this process.
    pub(in crate::store) fn schedule_was_put(&self) {
        self.schedule_changes.send_replace(());
    }

    /// Changes whenever this process put or resumed a schedule.
    pub(crate) fn schedule_changes(&self) -> watch::Receiver<()> {
        self.schedule_changes.subscribe()
    }
}
