//! Calls that stall until their caller gives up.

use dwell::job::{Action, Verdict};
use dwell::request::NewJob;
use dwell_connectors::conformance::proxy::{Direction, Flow};

use super::fixture::{FAR, Fixture, RETRY, action, id, request};
use super::lossy::Lossy;

/// The first delivery of a message on a broker that does not tell one message from another.
fn unmarked(mut request: NewJob) -> NewJob {
    request.origin.maybe_redelivered = false;
    request
}

#[tokio::test]
async fn a_schedule_that_its_caller_has_given_up_stores_nothing() {
    let fixture = Fixture::new().await;
    let stalled = Lossy::beside(&fixture).await;
    // It opens the connection.
    stalled.store.jobs.schedule(&[request("first", 9, FAR)]).await.unwrap();
    stalled.link.set(Direction::Up, Flow::Stall);
    stalled.store.jobs.schedule(&[unmarked(request("a", 1, FAR))]).await.unwrap_err();
    // The message was given back: another instance stores it, and it is cancelled.
    assert_eq!(fixture.put(request("a", 1, FAR)).await, Verdict::Added);
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 2)).await, Verdict::Cancelled);
    stalled.link.heal();
    // Behind what stood still.
    assert!(stalled.store.reader.find(&id("a")).await.unwrap().is_none());
    // It goes on as before.
    let answers =
        stalled.store.jobs.schedule(&[unmarked(request("b", 3, FAR))]).await.unwrap().answers;
    assert_eq!(answers[0].verdict, Verdict::Added);
}

#[tokio::test]
async fn a_cancel_that_its_caller_has_given_up_touches_no_newer_job() {
    let fixture = Fixture::new().await;
    let stalled = Lossy::beside(&fixture).await;
    // It opens the connection.
    stalled.store.jobs.schedule(&[request("first", 9, FAR)]).await.unwrap();
    assert_eq!(fixture.put(request("a", 1, FAR)).await, Verdict::Added);
    let mut cancel = action(Action::Cancel, "a", 2);
    cancel.origin.maybe_redelivered = false;
    stalled.link.set(Direction::Up, Flow::Stall);
    stalled.store.jobs.act(&cancel, RETRY).await.unwrap_err();
    assert_eq!(fixture.act(&action(Action::Cancel, "a", 2)).await, Verdict::Cancelled);
    assert_eq!(fixture.put(request("a", 3, FAR)).await, Verdict::Added);
    stalled.link.heal();
    assert!(stalled.store.reader.find(&id("a")).await.unwrap().is_some());
}
