//! Consumers that go away before their answer.

use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
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

/// A waiting pop that goes away while it is granted a bucket.
struct GoesAway {
    waits: Mutex<Option<BoxFuture<'static, ()>>>,
    gone: Notify,
}

impl Wake for GoesAway {
    fn wake(self: Arc<Self>) {
        let waits = self.waits.lock().take();
        drop(waits);
        self.gone.notify_one();
    }
}

#[test]
fn a_pop_that_goes_away_while_it_is_granted_a_bucket_holds_nobody_up() {
    let (ended, ends) = std::sync::mpsc::channel();
    // A thread of its own: a watch that waits for itself fails the test.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fixture = Fixture::new().await;
            let waiter = fixture.consumers.waiter(&request(1, MAX_POP_WAIT)).unwrap();
            let waits = async move { drop(waiter.granted().await) }.boxed();
            let pop = Arc::new(GoesAway { waits: Mutex::new(Some(waits)), gone: Notify::new() });
            let waker = Waker::from(pop.clone());
            let mut context = Context::from_waker(&waker);
            let polled = pop.waits.lock().as_mut().unwrap().poll_unpin(&mut context);
            assert!(polled.is_pending(), "no job is due");
            fixture.add("x", Due::In(0)).await;
            pop.gone.notified().await;
            let jobs = fixture.pop(1, MAX_POP_WAIT).await.sent();
            assert_eq!(jobs.len(), 1, "the next one has the grant");
        });
        ended.send(()).unwrap();
    });
    ends.recv_timeout(Duration::from_secs(60)).expect("the next pop has its answer in time");
}
