//! Consumers that go away before their answer.

use futures_util::FutureExt;
use tokio::sync::Notify;

use super::*;

/// Notes the verdicts, and tells of a job that is dead.
#[derive(Default)]
struct Seen {
    verdicts: Mutex<Vec<LeaseVerdict>>,
    dead: Notify,
}

impl Observer for Seen {
    fn observe(&self, event: &JobEvent<'_>) {
        match event {
            JobEvent::Acknowledged { verdict, .. } => self.verdicts.lock().push(*verdict),
            JobEvent::Dead { .. } => self.dead.notify_one(),
            _ => {}
        }
    }
}

#[tokio::test]
async fn the_end_of_a_lease_is_reported_without_its_consumer() {
    let fixture = Fixture::new().await;
    fixture.add("x", Due::In(0)).await;
    let Popped { id, lease, .. } = fixture.take().await;
    let seen = Arc::new(Seen::default());
    let consumers = Consumers::new(
        fixture.store.clone(),
        LateRules::default(),
        seen.clone(),
        CancellationToken::new(),
    );
    let dies = [Acknowledgement { id, lease, action: fail(None) }];
    // The future is dropped before the acknowledgement is sent.
    assert!(consumers.acknowledge(&dies).now_or_never().is_none());
    let told = clock::timeout(Duration::from_secs(60), seen.dead.notified()).await;
    assert!(told.is_some(), "in time");
    assert_eq!(*seen.verdicts.lock(), [LeaseVerdict::Dead]);
}
